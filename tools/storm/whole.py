"""One storm from the first start to the verdict."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from .client import Wrong
from .compare import Comparison, callers, history_of
from .ending import HISTORY, Ending
from .extras import Clock, Disk
from .faults import Plan, Storm
from .ledger import Ledger
from .load.actor import Actor, World
from .load.files import Datasets, Home
from .load.jobs import Jobs, Watcher
from .load.logs import Shipper
from .load.serving import Calls, Models
from .load.sweeps import Sweeps
from .load.tracking import Tracking
from .load.users import Users
from .site import NotHealthy, Site

CREW: tuple[tuple[type[Actor], str], ...] = (
    (Home, "holly"),
    (Datasets, "dora"),
    (Jobs, "jill"),
    (Jobs, "jack"),
    (Shipper, "lola"),
    (Models, "mona"),
    (Calls, "carl"),
    (Users, "uma"),
    (Sweeps, "sven"),
)
CLIENTS = 20  # of MLflow, of one user
JOIN_S = 400
QUIET_START_S = 15  # a machine that is slower may take longer to recover, too


@dataclass
class Report:
    """The outcome. It is good when there are no differences."""

    differences: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    recoveries: list[tuple[float, str]] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    compared: dict[str, int] = field(default_factory=dict)


def storm(
    site: Site, plan: Plan, seed: int, *, heal_s: float, patience_s: float, pace: float = 1.0,
    minutes: float | None = None, wanted: Collection[str] = (), thorough: bool = True,
    disk: Disk | None = None, clock: Clock | None = None, say: Callable[[str], None] = print,
) -> Report:  # fmt: skip
    """Start the platform, let the storm blow, and compare. The site's root must be empty.

    The load goes on until each `wanted` kind of thing was acknowledged: on a fast machine the faults are over early.
    """
    report, wrong = Report(), Wrong()
    ledger = Ledger(site.root.with_name(site.root.name + ".ledger"))
    took = site.start()
    heal_s = max(heal_s, heal_s * took / QUIET_START_S)
    say(f"started after {took:.1f} s; the ledger is {ledger.path}")
    world = World(site.base, seed, ledger, wrong, pace)
    weather = Storm(site, heal_s, random.Random(f"{seed} faults"), say, disk, clock)
    crew = hire(world)
    try:
        until = time.monotonic() + 60 * minutes if minutes else float("inf")
        weather.blow(plan)  # all of it, also where the machine is so slow that it takes longer
        while minutes and time.monotonic() < until and not weather.missed:
            weather.blow(plan, until)
        end = time.monotonic() + patience_s
        while not set(wanted) <= ledger.counts.keys() and time.monotonic() < end:
            time.sleep(0.2)
        world.over.set()
        site.wait_healthy(2 * heal_s)
        dismiss(crew, wrong)
        say("the storm is over; waiting for what is in flight")
        compare(site, world, report, patience_s, thorough, say)
    except NotHealthy as problem:
        report.differences.append(str(problem))
    finally:
        world.over.set()
        ledger.close()
    report.differences += [*weather.missed, *wrong.words]
    report.kills, report.recoveries = dict(weather.kills), sorted(weather.recoveries, reverse=True)
    report.acknowledged = dict(ledger.counts)
    return report


def hire(world: World) -> list[Actor]:
    """Register the users of the load and start it."""
    crew: list[Actor] = []
    for kind, user in CREW:
        token = world.register(user)
        crew.append(kind(world, user, token))
        if kind is Jobs:
            crew.append(Watcher(world, user, token))
    token = world.register("mila")
    crew += [Tracking(world, "mila", token, place) for place in range(CLIENTS)]
    for actor in crew:
        actor.start()
    return crew


def dismiss(crew: list[Actor], wrong: Wrong) -> None:
    """Wait until every actor has ended what it was doing."""
    end = time.monotonic() + JOIN_S
    for actor in crew:
        actor.join(max(0.0, end - time.monotonic()))
        if actor.is_alive():
            wrong.add(f"{actor.name} has not ended")


def compare(
    site: Site, world: World, report: Report, patience_s: float, thorough: bool, say: Callable[[str], None]
) -> None:
    """Compare everything, delete everything, stop the platform and look at what is left. `thorough`: also by the
    platform's own commands, which need a process each.
    """
    caller_for = callers(site, world)
    ending = Ending(site, caller_for, patience_s)
    ending.settle()
    comparison = Comparison(site, world.ledger, caller_for)
    say("comparing")
    comparison.run()
    if thorough:
        ending.check_books()
    report.differences += comparison.differences + history_of(ending.rows(HISTORY))
    report.compared = dict(comparison.counts)
    say("deleting everything")
    try:
        ending.delete_everything()
        ending.stop()
    finally:
        report.differences += ending.differences
