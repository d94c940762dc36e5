"""Which replica of an application gets a request: the one with least in work. Part of apps.routing, on its event loop.

Each replica says at once how many requests it has in work (serving/load.py). A request waits here, in order, while each
replica has as many as the owner allows, and while the application starts or wakes; beyond MLP_APP_QUEUE it is refused
with 429. A replica whose connection has broken gets nothing until it answers again, so a crash is noticed before the
database knows of it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

from django.conf import settings
from django.db import close_old_connections

from kernel import after_commit

from . import demand, proof
from .places import Draw, Place, Target, place_of

log = logging.getLogger(__name__)

TICK_S, AGAIN_S = 0.2, 0.2
PUBLISHED_S = 1.0
# A request that a replica was sent is not expected any more when it has reported this long after, without counting it.
UNSEEN_S = 2.0
READS, PAUSE_S = 2_000, 0.002  # a replica that reports more often than this in a second is read after pauses
AWAY_S = 2.0  # until the next look after one that has failed, as while the database does not respond
UNUSED_S = 30.0  # after which nobody follows the load of an application that gets no requests
WAIT_S = 1  # after which a caller beyond the queue may try again
LOAD = re.compile(rb"([0-9]{1,9}) ([0-9]{1,15})")
PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"


class Held(Protocol):
    """A request of nginx that waits to be told where it goes."""

    user: str
    name: str
    waits: bool  # nginx waits for long
    draw: Draw  # whether it goes to a canary
    failed: str  # the beginning of the URL of the replica that did not answer it; empty at the first try

    def is_gone(self) -> bool:
        """Return whether nginx no longer waits."""

    def hold(self) -> None:
        """Let nginx ask again, and wait for the answer."""

    def admit(self, place: Place, target: Target) -> None:
        """Send the request to the target."""

    def refuse(self, place: Place | None, wait_s: int) -> None:
        """Refuse the request: the caller may try again after `wait_s`; 0: nginx asks why."""


class Link:
    """What one replica says of its load, and what it has been sent since."""

    def __init__(self, target: Target, changed: Callable[[], None]):
        self.target, self.changed = target, changed
        self.running, self.begun = 0, None
        self.unseen: deque[float] = deque()  # when requests were sent that it has not counted yet
        self.heard, self.reports = 0.0, True
        self.lost = False
        self.task = asyncio.ensure_future(self._follow())

    def load(self) -> int:
        """Return how many requests it has in work, or soon will have. While it does not report, it has all that it was
        sent.
        """
        now = time.monotonic()
        until = max((self.heard if self.reports else now) - UNSEEN_S, now - settings.APP_ANSWER_S)
        while self.unseen and self.unseen[0] < until:
            self.unseen.popleft()
        return self.running + len(self.unseen)

    def sent(self) -> None:
        """Record that a request was sent to it."""
        self.unseen.append(time.monotonic())

    def doubt(self) -> None:
        """Send it nothing until it reports again: it has not answered a request, so its node may be away."""
        self.lost = self.lost or self.reports

    async def _follow(self) -> None:
        while True:
            try:
                known = await self._read()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                known = True
            if not known:  # the process is of an earlier release: what it was sent is all that is known
                self.reports = False
                return
            self.lost, self.running, self.begun = True, 0, None
            self.unseen.clear()
            await asyncio.sleep(AGAIN_S)

    async def _read(self) -> bool:
        """Read the replica's load until the connection ends; return False where it does not tell any."""
        address = self.target.address
        if isinstance(address, str):
            reader, writer = await asyncio.open_unix_connection(address)
        else:
            reader, writer = await asyncio.open_connection(*address)
        try:
            headers = f"Host: replica\r\n{proof.HEADER}: {self.target.secret}\r\n\r\n"
            writer.write(f"GET {proof.LOAD}?follow=1 HTTP/1.1\r\n{headers}".encode())
            status = await reader.readline()
            if status and b" 200 " not in status:
                return False
            await self._take_all(reader)
        finally:
            writer.close()
        return True

    async def _take_all(self, reader: asyncio.StreamReader) -> None:
        """Take over the newest report of each part that is read. The process runs a user's code, which may write
        anything, and as much as it can.
        """
        rest, second, reads = b"", 0, 0
        while part := await reader.read(4096):
            *lines, rest = (rest + part).split(b"\n")
            rest = rest[-100:]
            matches = filter(None, map(LOAD.fullmatch, reversed(lines)))
            if newest := next(matches, None):
                self._take(int(newest[1]), int(newest[2]))
            now = int(time.monotonic())
            second, reads = now, reads + 1 if now == second else 0
            if reads > READS:
                await asyncio.sleep(PAUSE_S)

    def _take(self, running: int, begun: int) -> None:
        for _request in range(min(len(self.unseen), begun - (begun if self.begun is None else self.begun))):
            self.unseen.popleft()
        self.lost, self.running, self.begun, self.heard = False, running, begun, time.monotonic()
        self.changed()


class Pool:
    """The replicas of one application, and the requests that wait for one."""

    def __init__(self, place: Place, user: str, name: str, unused: Callable[[int], object]):
        self.place, self.user, self.name, self.unused = place, user, name, unused
        self.links: dict[Target, Link] = {}
        self.waiting: deque[tuple[float, Held]] = deque()
        self.turn = itertools.count()
        self.peak, self.published, self.enqueued, self.asked = 0, 0.0, 0.0, time.monotonic()
        self.update(place)
        self.ticking = asyncio.ensure_future(self._tick())

    def update(self, place: Place) -> None:
        """Take over which replicas there are now."""
        self.place = place
        targets = set(place.targets)
        for target in self.links.keys() - targets:
            self.links.pop(target).task.cancel()
        for target in targets - self.links.keys():
            self.links[target] = Link(target, self.serve)

    def send(self, held: Held) -> None:
        """Send a request to a replica, now or later, or refuse it."""
        self.asked = time.monotonic()
        for link in self.links.values():
            if link.target.base == held.failed:
                link.doubt()
        link = None if self._must_wait(held) else self._choose(held)
        if link is not None:
            self._admit(held, link)
        elif held.failed and self._has_only(held.failed):
            held.refuse(self.place, 0)
        elif len(self.waiting) >= settings.APP_QUEUE:
            held.refuse(self.place, WAIT_S)
        elif not held.waits:
            held.hold()
        else:
            self.waiting.append((time.monotonic(), held))
            self._ask()
        self.peak = max(self.peak, self.running())

    def running(self) -> int:
        """Return how many requests are in work."""
        return sum(link.load() for link in self.links.values())

    def _must_wait(self, held: Held) -> bool:
        """Return whether requests wait that come before this one: all but those that may go to the other model only, or
        to another replica than the one that has failed them.
        """
        way = self._way(held)
        return any(not other.failed and self._way(other) in (None, way) for _since, other in self.waiting)

    def _way(self, held: Held) -> bool | None:
        """Return whether a request may go to the canary only, or to the others only; None: to each."""
        canary = self.place.canary
        return canary.takes(held.draw) if canary is not None and held.draw.sticky else None

    def serve(self) -> None:
        """Send what waits, as far as replicas are free. A request that waits for one of them, since the others have the
        other model or have failed it, does not keep others from those.
        """
        kept, full = [], set()  # of which ways no replica is free
        while self.waiting and None not in full and len(full) < 2:
            held = self.waiting[0][1]
            gone, way = held.is_gone(), self._way(held)
            link = None if gone or way in full else self._choose(held)
            if not gone and link is None and not held.failed:
                full.add(way)
            entry = self.waiting.popleft()
            if link is not None:
                self._admit(held, link)
            elif not gone:
                kept.append(entry)
        self.waiting.extendleft(reversed(kept))
        self.peak = max(self.peak, self.running())

    def _admit(self, held: Held, link: Link) -> None:
        link.sent()
        held.admit(self.place, link.target)

    def _choose(self, held: Held) -> Link | None:
        """Return the free replica with the least in work; of equals, each in turn. While a canary is up, it is that or
        one of the others, as the request's draw has it, unless those are all busy or lost; for a sticky request, lost.
        """
        there = [link for link in self.links.values() if not link.lost and link.target.base != held.failed]
        preferred = {target.base for target in self.place.preferred(held.draw)}
        own = [link for link in there if link.target.base in preferred]
        links = self._free(own)
        if not links and not (own and held.draw.sticky):
            links = self._free(there)
        if not links:
            return None
        turn = next(self.turn)
        order = sorted(links, key=lambda link: link.target.run_name)
        turned = order[turn % len(order) :] + order[: turn % len(order)]
        return min(turned, key=Link.load)

    def _free(self, links: list[Link]) -> list[Link]:
        most = self.place.target
        return [link for link in links if link.load() < most] if most else links

    def _has_only(self, failed: str) -> bool:
        """Return whether there is no other replica than the one at this address."""
        return bool(self.links) and all(target.base == failed for target in self.links)

    def _ask(self) -> None:
        """Have the application woken, or more replicas ordered, once a second."""
        now = time.monotonic()
        if now - self.enqueued >= PUBLISHED_S:
            self.enqueued = now
            self._publish(now)
            after_commit.enqueue("apps.wake" if self.place.asleep else "apps.scale", self.place.app_id)

    def _publish(self, now: float) -> None:
        demand.publish(self.place.app_id, PROCESS, max(self.peak, self.running()), len(self.waiting))
        self.published, self.peak = now, 0

    async def _tick(self) -> None:
        """Update what changes without a request, until there has been none for long."""
        while not self._is_unused(time.monotonic()):
            await asyncio.sleep(TICK_S)
            try:
                self._look(time.monotonic())
            except Exception:  # the next look repeats it
                log.exception("the replicas of the application %s/%s are not known", self.user, self.name)
                await asyncio.sleep(AWAY_S)
        self.unused(self.place.app_id)
        for link in self.links.values():
            link.task.cancel()

    def _look(self, now: float) -> None:
        close_old_connections()
        self._drop_gone()
        place = place_of(self.user, self.name)
        if place is None or not place.balanced or place.app_id != self.place.app_id:
            self.update(self.place.emptied())
            self._refuse_all()
            return
        self.update(place)
        self.serve()
        if self.waiting:
            self._ask()
            self._refuse_late(now)
        if now - self.published >= PUBLISHED_S and (self.waiting or self.peak or self.running()):
            self._publish(now)

    def _drop_gone(self) -> None:
        """Forget requests whose callers have disconnected: they neither fill the queue nor need replicas."""
        if any(held.is_gone() for _since, held in self.waiting):
            self.waiting = deque(entry for entry in self.waiting if not entry[1].is_gone())

    def _refuse_late(self, now: float) -> None:
        """Refuse what has waited too long: the caller may try again where replicas are up, else nginx asks why not."""
        up = any(not link.lost for link in self.links.values())
        while self.waiting and now - self.waiting[0][0] > settings.APP_START_S:
            self.waiting.popleft()[1].refuse(self.place, WAIT_S if up else 0)

    def _refuse_all(self) -> None:
        while self.waiting:
            self.waiting.popleft()[1].refuse(None, 0)

    def _is_unused(self, now: float) -> bool:
        """Return whether there has been no request for long."""
        return now - self.asked > UNUSED_S and not self.waiting and not self.running()


class Balancer:
    """The pools of the applications that have been asked lately."""

    def __init__(self) -> None:
        self.pools: dict[int, Pool] = {}

    def send(self, place: Place, held: Held) -> None:
        """Send a request to a replica of an application, now or later, or refuse it."""
        pool = self.pools.get(place.app_id)
        if pool is None:
            pool = self.pools[place.app_id] = Pool(place, held.user, held.name, self.pools.pop)
        elif pool.place is not place:
            pool.update(place)
        pool.send(held)
