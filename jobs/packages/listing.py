"""A user's environments as pages and REST show them: what is in each, who uses it; and the verb that removes one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from django.db.models import Q

import runners
from accounts.models import User
from jobs.models import Job, State
from kernel import masking
from kernel.locking import Missing, WrongState
from kernel.messages import word

from . import store, using
from .store import Environment
from .using import Use

TAIL = 12  # lines of the installer's output
JOBS_LOOKED_AT = 500  # the newest of a user that have packages
LIVE = (State.CREATING, State.RUNNING)
STATES = ("building", "ready", "failed")


@dataclass
class Shown:
    """An environment as it is shown. `size` in MiB; `log` are the installer's last lines while it works."""

    digest: str
    state: str
    reason: str
    requirements: str
    packages: list[str]
    size: int
    created: datetime
    used: datetime | None
    log: str = ""
    used_by: list[Use] = field(default_factory=list)

    @property
    def lines(self) -> str:
        """Return what was installed, a package a line."""
        return "\n".join(self.packages)

    @property
    def bytes(self) -> int:
        return self.size << 20

    @property
    def live_use(self) -> Use | None:
        """Return what needs it now, if anything."""
        return next((use for use in self.used_by if use.live), None)


def of_user(user: User) -> list[Shown]:
    """Return the user's environments, those that were used last first."""
    uses: dict[str, list[Use]] = {}
    for use in (*_jobs(user), *using.uses_of(user.pk)):
        uses.setdefault(use.digest, []).append(use)
    shown = []
    for environment in store.of_user(user.pk):
        with suppress(OSError):  # it was just removed
            shown.append(_shown(environment, uses.get(environment.digest, [])))
    return sorted(shown, key=lambda row: (row.used or row.created, row.digest), reverse=True)


def find(user: User, digest: str) -> Shown:
    """Return the user's environment of that digest. Raises Missing."""
    for row in of_user(user):
        if row.digest == digest:
            return row
    raise Missing("environment")


def require_unused(row: Shown) -> None:
    """Raise WrongState, which names what needs the environment now, if anything."""
    if use := row.live_use:
        raise WrongState("the %(kind)s %(name)s uses this environment", kind=word(use.kind), name=use.name)


def remove(user: User, digest: str) -> Shown:
    """Remove an environment that nothing needs now; an installation ends. What names it installs it again.

    Raises Missing; WrongState while something needs it.
    """
    row = find(user, digest)
    require_unused(row)
    environment = Environment(user.pk, digest)
    runners.get().discard(environment.run_name)
    environment.remove()
    return row


def _shown(environment: Environment, uses: list[Use]) -> Shown:
    created, used = environment.times()
    failed = None if environment.is_ready else environment.failure()
    state = "ready" if environment.is_ready else "failed" if failed else "building"
    return Shown(
        environment.digest,
        state,
        failed[0] if failed else "",
        masking.without_credentials(environment.wanted()),
        environment.installed() if state == "ready" else [],
        environment.size_mib(),
        _moment(created),
        None if used is None else _moment(used),
        runners.tail(environment.log, TAIL) if state == "building" else "",
        uses,
    )


def _jobs(user: User) -> list[Use]:
    """Return the jobs that have packages: those that need them now, and the newest of the others."""
    own = Job.kept.filter(user=user, environment_version=None)  # of the others their version says
    rows = own.exclude(packages="").order_by("-pk").values_list("packages", "name", "state")
    live = list(rows.filter(state__in=LIVE))
    others = rows.filter(~Q(state__in=LIVE))[:JOBS_LOOKED_AT]
    return [Use(digest, "job", name, state in LIVE) for digest, name, state in (*live, *others)]


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
