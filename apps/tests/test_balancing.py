"""What the gateway knows of a replica that hangs, or writes what it likes, and how long it remembers an application."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from apps import balancing, places
from apps.models import Application, Replica
from apps.places import Draw, Place, Target, place_of
from mlp.tests.patience import LIMIT_S

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
LONG_S = 60


class Process:
    """A process that says of its load what the test lets it say."""

    def __init__(self) -> None:
        self.writer: asyncio.StreamWriter | None = None
        self.connected = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        writer.write(HEAD)
        self.connected.set()
        with contextlib.suppress(ConnectionError):
            await reader.read()

    def say(self, line: bytes) -> None:
        self.writer.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))


@contextlib.asynccontextmanager
async def linked() -> AsyncIterator[tuple[Process, balancing.Link]]:
    replica = Process()
    server = await asyncio.start_server(replica.take, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    link = balancing.Link(Target("app-1-1", address, f"http://127.0.0.1:{address[1]}", "secret"), lambda: None)
    await asyncio.wait_for(replica.connected.wait(), LIMIT_S)
    try:
        yield replica, link
    finally:
        link.task.cancel()
        replica.writer.close()
        server.close()


async def until(done) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not done():
            await asyncio.sleep(0.01)


def long_ago(link: balancing.Link) -> None:
    """Let everything that the replica was sent and has said be older."""
    link.unseen = type(link.unseen)(at - LONG_S for at in link.unseen)
    link.heard -= LONG_S


def test_a_replica_that_hangs_has_what_it_was_sent():
    async def work() -> None:
        async with linked() as (replica, link):
            replica.say(b"0 0")
            await until(lambda: link.heard)
            link.sent()
            long_ago(link)
            assert link.load() == 1
            replica.say(b"0 0")  # it answers again, and has not got the request
            await until(lambda: link.load() == 0)

    asyncio.run(work())


def test_a_request_is_forgotten_after_the_longest_time_of_an_answer(settings):
    settings.APP_ANSWER_S = LONG_S - 1

    async def work() -> None:
        async with linked() as (_replica, link):
            link.sent()
            assert link.load() == 1
            long_ago(link)
            assert link.load() == 0

    asyncio.run(work())


@pytest.mark.parametrize("nonsense", [b"x" * 200_000, b"9" * 5_000 + b" 1", b"-1 0", b"1", b"\xff 1"])
def test_nonsense_is_ignored(nonsense):
    async def work() -> None:
        async with linked() as (replica, link):
            replica.say(b"2 2")
            await until(lambda: link.running == 2)
            replica.say(nonsense)
            replica.say(b"3 3")
            await until(lambda: link.running == 3)
            assert not link.lost

    asyncio.run(work())


def test_of_many_reports_the_last_one_counts():
    async def work() -> None:
        async with linked() as (replica, link):
            for number in range(20_000):
                replica.say(b"%d %d" % (number % 7, number))
            replica.say(b"1 20000")
            await until(lambda: link.begun == 20_000)
            assert link.running == 1

    asyncio.run(work())


@pytest.fixture
def app(adder, monkeypatch, tasks):
    """An application with two replicas, each of which has one request at once; without addresses."""
    places._places.clear()
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # as in the process `data`
    return Application.objects.create(
        user=adder.user, tenant=adder.tenant, model=adder, name="calc", port=31000, state="ready", replicas_max=2,
        reserved=False, target=1, run_name="app-1-1",
    )  # fmt: skip


class Held:
    """A request that waits to be told where it goes."""

    user, name, waits = "alice", "calc", True

    def __init__(self, failed: str = "", gone: bool = False, draw: Draw | None = None):
        self.draw = draw or Draw(0.5)
        self.failed, self.gone, self.target, self.refused = failed, gone, "", None

    def is_gone(self) -> bool:
        return self.gone

    def admit(self, place: Place, target: Target) -> None:
        self.target = target.run_name

    def refuse(self, place: Place | None, wait_s: int) -> None:
        self.refused = wait_s


@pytest.mark.django_db(transaction=True)
def test_an_application_without_requests_is_not_followed_for_ever(app, monkeypatch):
    monkeypatch.setattr(balancing, "UNUSED_S", 0.5)

    async def work() -> None:
        balancer = balancing.Balancer()
        balancer.send(place_of("alice", "calc"), Held(gone=True))
        pool = balancer.pools[app.pk]
        await until(lambda: not balancer.pools)
        await until(pool.ticking.done)

    asyncio.run(work())


@pytest.mark.django_db(transaction=True)
def test_a_request_that_waits_for_another_replica_does_not_hold_up_others(app):
    async def work() -> None:
        async with linked() as (first, own), linked() as (second, other):
            own.task.cancel()
            other.task.cancel()
            first.connected.clear()
            second.connected.clear()
            address, port = other.target.address
            Replica.objects.create(app=app, slot=1, generation=0, phase="ready", run_name="app-1-2",
                                   address=f"{address}:{port}")  # fmt: skip
            address, port = own.target.address
            Application.objects.update(address=f"{address}:{port}")
            place = place_of("alice", "calc")
            balancer = balancing.Balancer()
            failed, plain = Held(own.target.base), Held()
            second_busy = Held(own.target.base)
            balancer.send(place, second_busy)
            assert second_busy.target == "app-1-2"
            balancer.send(place, failed)
            balancer.send(place, plain)
            assert (failed.target, plain.target) == ("", "")  # the first one is in doubt
            await asyncio.wait_for(first.connected.wait(), LIMIT_S)
            first.say(b"0 0")
            await until(lambda: plain.target)
            assert (failed.target, plain.target) == ("", "app-1-1")
            await asyncio.wait_for(second.connected.wait(), LIMIT_S)
            [follower] = [link for target, link in balancer.pools[app.pk].links.items() if target.run_name == "app-1-2"]
            second.say(b"0 0")
            await until(lambda: follower.heard)
            second.say(b"1 1")
            second.say(b"0 1")
            await until(lambda: failed.target)
            assert failed.target == "app-1-2"

    asyncio.run(work())


@pytest.mark.django_db(transaction=True)
def test_without_another_replica_a_request_that_has_failed_is_refused(app):
    async def work() -> None:
        async with linked() as (_replica, link):
            link.task.cancel()
            address, port = link.target.address
            Application.objects.update(address=f"{address}:{port}")
            held = Held(link.target.base)
            balancing.Balancer().send(place_of("alice", "calc"), held)
            assert held.refused == 0

    asyncio.run(work())
