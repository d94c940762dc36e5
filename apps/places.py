"""Where the requests of an application go: the addresses of its runs, as the gateway knows them for a second."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from django.db.models import Q

from kernel import sockets

from . import proof, reported_metrics
from .lifecycle import PLACE_REMEMBERED_S
from .models import Application, Replica, Rollout, State
from .records import plan
from .shadows import rows as shadow_rows

MAX_PLACES = 10_000
REQUEST = "HTTP_X_APP_REQUEST"  # nginx's id of a request, by which it asks once, or again while the request waits
READ = (
    "user_id", "public", "address_rate", "origins", "body_mib", "answer_s",
    "state", "run_name", "address", "replicas_min", "replicas_max", "target", "asleep", "canary",
    "tenant__record_days", "recording__on", "recording__share", "recording__record_kib", "recording__mask",
    "rollout__phase", "rollout__address", "rollout__run_name", "rollout__percent",
    "rollout__step_since", "rollout__shadow__percent",
)  # fmt: skip
# One that may sleep is reachable while it starts: a request waits for it.
WAKING = Q(state=State.CREATING, replicas_min=0, reserved=True, failures=0)
REACHABLE = Q(state=State.READY) | WAKING


@dataclass(frozen=True)
class Target:
    """A run that requests of an application go to."""

    run_name: str
    address: sockets.Address
    base: str
    secret: str
    model: str = ""  # where there are two


class Draw(NamedTuple):
    """By what a request goes to the canary or not. It is the same each time that nginx asks for one request."""

    number: float  # from 0 to 1: below the canary's share it goes there
    sticky: bool = False  # decided by the value of a header: it goes nowhere else while its model has a run


@dataclass(frozen=True)
class Canary:
    """The run of another model that a share of the requests goes to; those with the same value of a header, always."""

    target: Target
    percent: int
    header: str  # "HTTP_X_USER_ID", empty for none
    metric: str = ""  # what callers report of it, empty for nothing
    step: str = ""  # where that is counted

    def takes(self, draw: Draw) -> bool:
        """Return whether a request goes to it."""
        return 100 * draw.number < self.percent


@dataclass(frozen=True)
class Place:
    """The address of an application that is up, or that a request starts, and who may call it.

    One that is `balanced` may have several runs, or none while it sleeps or wakes: apps.balancing chooses among
    `targets`, each with at most `target` requests at once.
    """

    app_id: int
    user_id: int
    public: bool
    address_rate: int | None
    origins: tuple[str, ...]
    body_mib: int | None
    answer_s: int | None
    targets: tuple[Target, ...]
    balanced: bool
    target: int | None
    asleep: bool
    canary: Canary | None
    record: str  # how its requests are recorded and copied; empty for not at all
    until: float  # on the monotonic clock

    def draw(self, meta: Mapping[str, str]) -> Draw:
        """Return by what a request goes to the canary that there is, or that begins while it waits."""
        value = meta.get(self.canary.header, "") if self.canary is not None and self.canary.header else ""
        text = value or meta.get(REQUEST, "")
        if not text:  # asked by an nginx that was started with an earlier release
            return Draw(random.random())
        digest = hashlib.sha256(f"{self.app_id}:{text}".encode()).digest()
        return Draw(int.from_bytes(digest[:4], "big") / 2**32, bool(value))

    def arm(self, target: Target) -> str:
        """Return which model a run has while a canary is up: "canary", or "base" for that of all others."""
        if self.canary is None:
            return ""
        return "canary" if target.run_name == self.canary.target.run_name else "base"

    def preferred(self, draw: Draw) -> tuple[Target, ...]:
        """Return the runs that a request should go to: the canary, or all others."""
        if self.canary is None:
            return self.targets
        own = self.canary.takes(draw)
        return tuple(target for target in self.targets if (target is self.canary.target) == own)

    def emptied(self) -> Place:
        """Return the place as it is without runs."""
        return replace(self, targets=())


_places: dict[tuple[str, str], Place] = {}


def place_of(user: str, name: str) -> Place | None:
    """Return the cached or queried place; None where no request could be answered."""
    now, key = time.monotonic(), (user, name)
    place = _places.get(key)
    if place is not None and now < place.until:
        return place
    return _looked_up(key)


def is_known(user: str, name: str) -> bool:
    """Return whether the application has been looked up and could be called."""
    return (user, name) in _places


def renew_oldest(keys: Iterable[tuple[str, str]]) -> None:
    """Read again the one of these applications that was read first."""
    known = [key for key in keys if key in _places]
    if known:
        _looked_up(min(known, key=lambda key: _places[key].until))


def _looked_up(key: tuple[str, str]) -> Place | None:
    now, (user, name) = time.monotonic(), key
    _places.pop(key, None)
    rows = Application.objects.filter(REACHABLE, user__username=user, name=name)
    row = rows.select_related("rollout__shadow", "recording", "tenant").only(*READ).first()
    if row is None:
        return None
    canary = _canary(row)
    balanced = row.replicas_max > 1 or row.replicas_min == 0 or row.target is not None or canary is not None
    targets = _targets(row, balanced)
    if canary is not None:
        model = row.model.name
        targets = (*(replace(target, model=model) for target in targets), canary.target)
    if not targets and not balanced:
        return None
    if len(_places) >= MAX_PLACES:
        _places.clear()
    place = _places[key] = Place(
        row.pk, row.user_id, row.public, row.address_rate, tuple(row.origins), row.body_mib, row.answer_s,
        targets, balanced, row.target, row.asleep, canary, plan.header(row, shadow_rows.percent_of(row)),
        now + PLACE_REMEMBERED_S,
    )  # fmt: skip
    return place


def _canary(app: Application) -> Canary | None:
    """Return the run of another model that a share of the requests goes to."""
    rollout = getattr(app, "rollout", None)
    if app.state != State.READY or rollout is None or rollout.phase != Rollout.Phase.CANARY:
        return None
    try:
        address = sockets.parse(rollout.address)
        base = nginx_base(address)
    except OSError:
        return None
    name = app.canary.get("sticky", "")
    header = f"HTTP_{name.upper().replace('-', '_')}" if name else ""
    target = Target(rollout.run_name, address, base, proof.secret(rollout.run_name), rollout.model.name)
    metric = app.canary.get("metric", {}).get("name", "")
    return Canary(target, rollout.percent or 0, header, metric, reported_metrics.key(rollout.pk, rollout.step_since))


def _targets(app: Application, balanced: bool) -> tuple[Target, ...]:
    """Return the runs that requests go to."""
    up = [(app.run_name, app.address)] if app.state == State.READY and app.address and not app.asleep else []
    if balanced:
        ready = Replica.objects.filter(app=app, phase=Replica.Phase.READY)
        up += ready.order_by("pk").values_list("run_name", "address") if app.state == State.READY else []
    targets = []
    for run_name, text in up:
        with contextlib.suppress(OSError):
            address = sockets.parse(text)
            targets.append(Target(run_name, address, nginx_base(address), proof.secret(run_name)))
    return tuple(targets)


def nginx_base(address: sockets.Address) -> str:
    """Return the address as the beginning of a URL for nginx, which looks up no names. Raises OSError."""
    if isinstance(address, str):
        return f"http://unix:{address}:"
    numeric = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][4][0]
    return f"http://[{numeric}]:{address[1]}" if ":" in numeric else f"http://{numeric}:{address[1]}"
