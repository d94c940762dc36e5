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
from collections.abc import Callable, Mapping
from typing import Protocol

from django.conf import settings
from django.db import close_old_connections

from kernel import after_commit

from . import demand, proof
from .places import Place, Target, place_of

log = logging.getLogger(__name__)

TICK_S, AGAIN_S = 0.2, 0.2
PUBLISHED_S = 1.0
UNSEEN_S = 2.0  # after which a request that a replica was sent, and has not counted, is not expected any more
UNUSED_S = 30.0  # after which nobody follows the load of an application that gets no requests
WAIT_S = 1  # after which a caller beyond the queue may try again
LOAD = re.compile(rb"([0-9]+) ([0-9]+)\n")
PROCESS = f"{os.getpid()}-{secrets.token_hex(4)}"


class Held(Protocol):
    """A request of nginx that waits to be told where it goes."""

    user: str
    name: str
    waits: bool  # nginx waits for long
    meta: Mapping[str, str]  # its headers, with names as WSGI has them
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
        self.lost = False
        self.task = asyncio.ensure_future(self._follow())

    def load(self) -> int:
        """Return how many requests it has in work, or soon will have."""
        while self.unseen and time.monotonic() - self.unseen[0] > UNSEEN_S:
            self.unseen.popleft()
        return self.running + len(self.unseen)

    def sent(self) -> None:
        """Record that a request was sent to it."""
        self.unseen.append(time.monotonic())

    async def _follow(self) -> None:
        while True:
            try:
                known = await self._read()
            except (OSError, asyncio.IncompleteReadError, ValueError):
                known = True
            if not known:  # the process is of an earlier release: what it was sent is all that is known
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
            while line := await reader.readline():
                if match := LOAD.fullmatch(line):
                    self._take(int(match[1]), int(match[2]))
        finally:
            writer.close()
        return True

    def _take(self, running: int, begun: int) -> None:
        for _request in range(min(len(self.unseen), begun - (begun if self.begun is None else self.begun))):
            self.unseen.popleft()
        self.lost, self.running, self.begun = False, running, begun
        self.changed()


class Pool:
    """The replicas of one application, and the requests that wait for one."""

    def __init__(self, place: Place, user: str, name: str):
        self.place, self.user, self.name = place, user, name
        self.links: dict[str, Link] = {}
        self.waiting: deque[tuple[float, Held]] = deque()
        self.turn = itertools.count()
        self.peak, self.published, self.enqueued, self.asked = 0, 0.0, 0.0, time.monotonic()
        self.update(place)
        self.ticking = asyncio.ensure_future(self._tick())

    def update(self, place: Place) -> None:
        """Take over which replicas there are now."""
        self.place = place
        targets = {target.base: target for target in place.targets}
        for base in self.links.keys() - targets.keys():
            self.links.pop(base).task.cancel()
        for base in targets.keys() - self.links.keys():
            self.links[base] = Link(targets[base], self.serve)

    def send(self, held: Held) -> None:
        """Send a request to a replica, now or later, or refuse it."""
        self.asked = time.monotonic()
        link = None if self.waiting else self._choose(held)
        if link is not None:
            self._admit(held, link)
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

    def serve(self) -> None:
        """Send what waits, as far as replicas are free."""
        while self.waiting:
            held = self.waiting[0][1]
            if held.is_gone():
                self.waiting.popleft()
                continue
            link = self._choose(held)
            if link is None:
                return
            self.waiting.popleft()
            self._admit(held, link)
        self.peak = max(self.peak, self.running())

    def _admit(self, held: Held, link: Link) -> None:
        link.sent()
        held.admit(self.place, link.target)

    def _choose(self, held: Held) -> Link | None:
        """Return the free replica with the least in work; of equals, each in turn. While a canary is up, it is that or
        one of the others, as the request's share has it, unless those are all busy or lost.
        """
        free = [link for link in self.links.values() if not link.lost and link.target.base != held.failed]
        if self.place.target:
            free = [link for link in free if link.load() < self.place.target]
        preferred = {target.base for target in self.place.preferred(held.meta)}
        links = [link for link in free if link.target.base in preferred] or free
        if not links:
            return None
        turn = next(self.turn)
        order = sorted(links, key=lambda link: link.target.run_name)
        turned = order[turn % len(order) :] + order[: turn % len(order)]
        return min(turned, key=Link.load)

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
        """Update what changes without a request."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._look(time.monotonic())
            except Exception:  # the next look repeats it
                log.exception("the replicas of the application %s/%s are not known", self.user, self.name)

    def _look(self, now: float) -> None:
        close_old_connections()
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

    def _refuse_late(self, now: float) -> None:
        """Refuse what has waited too long: the caller may try again where replicas are up, else nginx asks why not."""
        up = any(not link.lost for link in self.links.values())
        while self.waiting and now - self.waiting[0][0] > settings.APP_START_S:
            self.waiting.popleft()[1].refuse(self.place, WAIT_S if up else 0)

    def _refuse_all(self) -> None:
        while self.waiting:
            self.waiting.popleft()[1].refuse(None, 0)

    def is_unused(self, now: float) -> bool:
        """Return whether there has been no request for long."""
        return now - self.asked > UNUSED_S and not self.waiting and not self.running()

    def close(self) -> None:
        """End what follows the replicas."""
        self.ticking.cancel()
        for link in self.links.values():
            link.task.cancel()


class Balancer:
    """The pools of the applications that have been asked lately."""

    def __init__(self) -> None:
        self.pools: dict[int, Pool] = {}

    def send(self, place: Place, held: Held) -> None:
        """Send a request to a replica of an application, now or later, or refuse it."""
        pool = self.pools.get(place.app_id)
        if pool is None:
            self._forget()
            pool = self.pools[place.app_id] = Pool(place, held.user, held.name)
        elif pool.place is not place:
            pool.update(place)
        pool.send(held)

    def _forget(self) -> None:
        now = time.monotonic()
        for app_id in [app_id for app_id, pool in self.pools.items() if pool.is_unused(now)]:
            self.pools.pop(app_id).close()
