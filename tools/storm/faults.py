"""What is done to the platform, in an order that the seed decides."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from . import processes
from .extras import Clock, Disk
from .site import Site

VICTIM_S = 60  # how long to wait for a process of the kind to appear
HOUR_S = 3600
BLOWS = 8  # kills in a row of a kind that is gone as soon as it is found, such as a script at its end


@dataclass(frozen=True)
class Plan:
    """How hard the storm is. `rounds` kills of each kind; stopped processes stay so for `stopped_s`."""

    rounds: int
    stops: int
    stopped_s: float
    machine: int
    disk: int
    clock: int
    pause_s: tuple[float, float]
    upgrades: int = 0

    def faults(self, chance: random.Random) -> list[tuple[str, str]]:
        """Return (what, kind) in order: each round kills every kind once, the others are spread evenly."""
        kills = []
        for _ in range(self.rounds):
            kills += [("kill", kind) for kind in chance.sample(processes.KINDS, len(processes.KINDS))]
        parts = chance.sample(processes.PARTS, len(processes.PARTS))
        special = [("stop", parts[index % len(parts)]) for index in range(self.stops)]
        special += [("machine", "")] * self.machine + [("disk", "")] * self.disk + [("clock", "")] * self.clock
        special += [("upgrade", "")] * self.upgrades
        chance.shuffle(special)
        for index, fault in enumerate(special):
            kills.insert((index + 1) * len(kills) // (len(special) + 1), fault)
        return kills


SHORT = Plan(rounds=1, stops=2, stopped_s=4, machine=1, disk=0, clock=0, pause_s=(0.2, 1.0))
UPGRADES = Plan(rounds=0, stops=0, stopped_s=0, machine=0, disk=0, clock=0, pause_s=(8, 12), upgrades=3)


def long(minutes: float) -> Plan:
    """Return the plan of a storm of that many minutes: in thirty each kind is killed ten times."""
    few = max(1, round(minutes / 10))
    return Plan(
        rounds=max(1, round(minutes / 3)),
        stops=2 * few,
        stopped_s=60 if minutes >= 10 else 10,
        machine=few,
        disk=few,
        clock=few,
        pause_s=(0.2, 2.0),
    )


@dataclass
class Storm:
    """Carries a plan out on a site and counts. `heal_s` is how long it may take to recover from a fault."""

    site: Site
    heal_s: float
    chance: random.Random
    say: Callable[[str], None]
    disk: Disk | None = None
    clock: Clock | None = None
    kills: Counter = field(default_factory=Counter)
    recoveries: list[tuple[float, str]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def blow(self, plan: Plan, until: float = float("inf")) -> None:
        """Execute the plan; end early at that time of the monotonic clock."""
        acts = {"kill": self.kill, "stop": self.stop, "machine": self.machine, "disk": self.fill, "clock": self.jump}
        acts["upgrade"] = self.upgrade
        for what, kind in plan.faults(self.chance):
            if time.monotonic() > until:
                self.say("the time is over before the plan is")
                return
            time.sleep(self.chance.uniform(*plan.pause_s))
            acts[what](kind, plan)

    def kill(self, kind: str, plan: Plan) -> None:
        """Kill one process of the kind, wait until there is another and the platform is healthy."""
        also = self.chance.random() < 0.5  # its children in the same moment
        for _ in range(BLOWS):
            victims = self.victims(kind)
            if not victims and kind in processes.WITH_NETWORKS:
                self.say(f"left out: {kind}, since runs have no network of their own here")
                return
            if not victims:
                self.missed.append(f"there was no process to kill: {kind}")
                return
            victim = self.chance.choice(victims)
            children = self.of(f"{kind}'s child") if also and kind in processes.CHILDREN else []
            if self._signal([victim, *children], signal.SIGKILL):
                break
        self.kills[kind] += 1
        what = f"kill {kind}" + (f" and its {len(children)} children" if children else "")
        if kind == "up":
            self.site.process.wait(60)
            self.recovered(what, self.site.start())
        else:
            self.recovered(what, self.healed(kind, victim))

    def victims(self, kind: str) -> list[int]:
        """Return the processes of the kind, oldest first; wait for one where there is none."""
        end = time.monotonic() + VICTIM_S
        while time.monotonic() < end:
            if pids := sorted(self.of(kind)):
                return pids
            time.sleep(0.2)
        return []

    def of(self, kind: str) -> list[int]:
        """Return the living processes of the kind."""
        return self.site.kinds(runs=kind in processes.RUNS).get(kind, [])

    def healed(self, kind: str, victim: int) -> float:
        """Return the seconds until the platform is healthy, with another process where one was killed."""
        began = time.monotonic()
        while kind not in processes.RUNS and not set(self.of(kind)) - {victim}:
            if time.monotonic() - began > self.heal_s:
                self.missed.append(f"{kind} was not back {self.heal_s:.0f} s after it was killed")
                break
            time.sleep(0.2)
        return time.monotonic() - began + self.site.wait_healthy(2 * self.heal_s)

    def recovered(self, what: str, seconds: float) -> None:
        self.recoveries.append((seconds, what))
        self.say(f"{what}: healthy after {seconds:.1f} s")
        if seconds > self.heal_s:
            self.missed.append(f"{what}: healthy only after {seconds:.1f} s, more than {self.heal_s:.0f}")

    def stop(self, part: str, plan: Plan) -> None:
        """Stop all processes of a part for a while and continue them."""
        pids = [*self.of(part), *self.of(f"{part}'s child")]
        self._signal(pids, signal.SIGSTOP)
        try:
            time.sleep(plan.stopped_s)
        finally:
            self._signal(pids, signal.SIGCONT)
        self.kills["stop"] += 1
        self.recovered(f"stop {part} for {plan.stopped_s:.0f} s", self.site.wait_healthy(2 * self.heal_s))

    @staticmethod
    def _signal(pids: list[int], number: int) -> int:
        """Send the signal to all of them; return how many there were."""
        sent = 0
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                sent += 1
        return sent

    def machine(self, _kind: str, plan: Plan) -> None:
        """Kill every process at once, runs included, and start on what is left."""
        count = self.site.kill_everything()
        self.kills["machine"] += 1
        self.recovered(f"kill all {count} processes", self.site.start())

    def upgrade(self, _kind: str, plan: Plan) -> None:
        """Stop the servers in the middle of everything while runs go on, as `make upgrade` does, and start them."""
        done = self.site.manage("up", "--down", "--keep-runs")
        if done.returncode:
            self.missed.append(f"it has not stopped: {done.stdout}{done.stderr}")
        self.site.process.wait(60)
        self.kills["upgrade"] += 1
        self.recovered("a stop that keeps runs, and a start", self.site.start())

    def fill(self, _kind: str, plan: Plan) -> None:
        """Keep the disk full to the last byte for a while."""
        if self.disk is None:
            return
        with self.disk.full():
            time.sleep(plan.stopped_s / 2)
        self.kills["disk"] += 1
        self.recovered("a full disk", self.site.wait_healthy(2 * self.heal_s))

    def jump(self, _kind: str, plan: Plan) -> None:
        """Have the clock jump an hour forwards or backwards, and back after a while."""
        if self.clock is None:
            return
        by = self.chance.choice([HOUR_S, -HOUR_S])
        for offset in (by, 0):
            self.clock.set(offset)
            self.recovered(f"the clock jumps to {offset:+d} s", self.site.wait_healthy(2 * self.heal_s))
            time.sleep(plan.stopped_s / 4)
        self.kills["clock"] += 1
