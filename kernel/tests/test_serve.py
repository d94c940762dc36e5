"""Services on a real NATS server: order, batches, replies, invalid messages, reconnection, graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import nkeys
import pytest

from kernel import bus, keyvalue
from kernel import serve as serve_module
from kernel.serve import Reply, Route
from kernel.tests.nats_tools import LIMIT_S, Peer, Served, until
from mlp.tests.servers import begin, free_port, wait_for_port
from supervision import binaries


class Echo:
    name = "echo"

    def __init__(self, handle, subject="test.in", **route):
        self.subjects = {subject: Route(handle, **route)}


@pytest.fixture
def peer():
    peer = Peer("test.out")
    yield peer
    peer.close()


def serving(*services):
    return Served(*services)


def test_messages_of_a_subject_are_handled_in_order(peer):
    with serving(Echo(lambda data: [("test.out", data)])) as served:
        served.wait()
        for number in range(300):
            peer.publish("test.in", b"%d" % number)
        assert peer.wait("test.out", 300) == [b"%d" % number for number in range(300)]


def test_batches_have_at_most_the_requested_size(peer):
    sizes = []

    def handle(batch):
        sizes.append(len(batch))
        return [("test.out", b"".join(batch))]

    with serving(Echo(handle, batch=50, linger_s=0.2)) as served:
        served.wait()
        for _ in range(120):
            peer.publish("test.in", b"x")
        until(lambda: sum(sizes) == 120)
    assert max(sizes) <= 50
    assert len(sizes) < 60


def test_a_lone_message_does_not_wait_for_others(peer):
    with serving(Echo(lambda batch: [("test.out", b"".join(batch))], batch=500, linger_s=0.05)) as served:
        served.wait()
        peer.publish("test.in", b"alone")
        assert peer.wait("test.out") == [b"alone"]


def test_a_reply_is_sent_after_its_announcements_and_before_the_work(peer):
    go = threading.Event()

    def work():
        assert go.wait(LIMIT_S)
        return [("test.out", b"after")]

    def handle(data):
        return Reply(b"yes", before=[("test.out", b"before")], after=work)

    with serving(Echo(handle)) as served:
        served.wait()
        assert peer.ask("test.in", b"?") == b"yes"
        assert peer.wait("test.out") == [b"before"]
        go.set()
        assert peer.wait("test.out", 2) == [b"before", b"after"]


def test_a_message_that_cannot_be_handled_is_logged_with_its_subject_and_dropped(peer, caplog):
    def handle(data):
        if data == b"bad":
            raise ValueError("this is no number")
        return [("test.out", data)]

    with serving(Echo(handle)) as served, caplog.at_level(logging.WARNING):
        served.wait()
        peer.publish("test.in", b"bad")
        peer.publish("test.in", b"good")
        assert peer.wait("test.out") == [b"good"]
    assert any("test.in" in record.message and "no number" in record.message for record in caplog.records)


def test_one_member_of_a_queue_group_gets_a_message_and_every_other_subscriber_too(peer):
    first, second = (Echo(lambda data: [("test.out", data)], queue="workers") for _ in range(2))
    every = [Echo(lambda data: [("test.out", data)], subject="test.all") for _ in range(2)]
    with serving(first, every[0]) as one, serving(second, every[1]) as other:
        one.wait(), other.wait()
        peer.publish("test.in", b"shared")
        peer.publish("test.all", b"all")
        heard = peer.wait("test.out", 3)
        assert sorted(heard) == [b"all", b"all", b"shared"]


class Meeting:
    """A service of two subjects and a tick, whose handlers wait for each other, a second where they must not meet;
    `met` says whether two ran at the same time.
    """

    name = "meeting"

    def __init__(self, serial: bool):
        self.serial, self.met, self.calls = serial, False, 0
        self.barrier = threading.Barrier(2)
        self.subjects = {"test.in": Route(self.handle), "test.all": Route(self.handle)}

    def handle(self, data):
        self.calls += 1
        try:
            self.barrier.wait(1 if self.serial else 60)
            self.met = True
        except threading.BrokenBarrierError:
            self.barrier.reset()


@pytest.mark.parametrize("serial", [True, False])
def test_handlers_of_a_service_run_serially_by_default(peer, serial):
    service = Meeting(serial)
    with serving(service) as served:
        served.wait()
        peer.publish("test.in", b"one")
        peer.publish("test.all", b"two")
        until(lambda: service.calls == 2)
    assert service.met is not serial


def test_ticks_do_not_overlap_with_messages(peer):
    service = Meeting(serial=True)
    service.ticks = ((0.05, lambda: service.handle(b"")),)
    with serving(service) as served:
        served.wait()
        peer.publish("test.in", b"one")
        until(lambda: service.calls >= 3)
    assert not service.met


def test_received_messages_are_handled_before_the_end(peer):
    with serving(Echo(lambda data: [("test.out", data)])) as served:
        served.wait()
        for number in range(100):
            peer.publish("test.in", b"%d" % number)
    assert len(peer.wait("test.out", 100)) == 100


def test_messages_that_the_server_had_sent_before_the_end_are_handled(peer):
    with serving(Echo(lambda data: [("test.out", data)])) as served:
        served.wait()
        held = threading.Event()
        served.loop.call_soon_threadsafe(held.wait, LIMIT_S)  # reads nothing meanwhile
        served.loop.call_soon_threadsafe(served.stop_event.set)
        for number in range(100):
            peer.publish("test.in", b"%d" % number)
        held.set()
    assert peer.wait("test.out", 100) == [b"%d" % number for number in range(100)]


def test_ticks_continue_after_a_failure(peer):
    class Clock:
        name = "clock"
        subjects: dict = {}
        count = 0

        def __init__(self):
            self.ticks = ((0.02, self.tick),)

        def tick(self):
            self.count += 1
            if self.count == 1:
                raise RuntimeError("once")
            return [("test.out", b"tick")]

    with serving(Clock()) as served:
        served.wait()
        peer.wait("test.out", 3)


class Server:
    """A NATS server of the test's own, which can be killed and restarted on the same port."""

    def __init__(self, folder: Path):
        self.folder, self.port, self.process = folder, free_port(), None

    def start(self, *options):
        log = self.folder / "nats.log"
        address = ["-a", "127.0.0.1", "-p", str(self.port)]
        command = [binaries.find(binaries.NATS), *address, "-js", "-sd", str(self.folder / "js"), *options]
        self.process = begin(command, log)
        wait_for_port(self.port, self.process, log)

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def test_services_wait_for_the_server_and_reconnect(tmp_path, settings, caplog):
    server = Server(tmp_path)
    settings.NATS_URL = f"nats://127.0.0.1:{server.port}"
    try:
        with serving(Echo(lambda data: [("test.out", data)])) as served:
            until(lambda: "message bus: " in caplog.text)
            assert not served.ready.is_set()
            server.start()
            served.wait()
            for word in (b"one", b"two"):
                far = Peer("test.out")
                until(lambda far=far, word=word: far.publish("test.in", word) or far.heard["test.out"])
                far.close()
                server.kill()
                server.start()
    finally:
        server.kill()


class Follows:
    """A service that is called when a key may have changed."""

    name = "follows"
    subjects: dict = {}

    def __init__(self):
        self.calls = 0
        self.keys = (("test-keys", "one", self.changed),)

    def changed(self) -> None:
        self.calls += 1


def test_a_change_of_a_key_is_told_and_one_of_another_key_is_not():
    service = Follows()
    with serving(service) as served:
        served.wait()
        keyvalue.put("test-keys", "two", b"1")
        assert service.calls == 0
        for count in (1, 2):
            keyvalue.put("test-keys", "one", b"%d" % count)
            until(lambda count=count: service.calls == count)


def test_a_change_that_a_lost_connection_may_have_missed_is_told(tmp_path, settings):
    server, service = Server(tmp_path), Follows()
    settings.NATS_URL = f"nats://127.0.0.1:{server.port}"
    try:
        server.start()
        with serving(service) as served:
            served.wait()
            server.kill()
            assert service.calls == 0
            server.start()
            until(lambda: service.calls)
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("took", "pauses"), [(0.25, [0.25, 0.75, 0.75]), (0.75, [0.75, 0.75, 0.75]), (40.5, [1.0, 1.0, 1.0])]
)
def test_ticks_meet_at_the_multiples_of_their_period(took, pauses, monkeypatch):
    """Unless one takes longer than half of it: then it rests for as long, for one period at most."""

    class Stopped(asyncio.SelectorEventLoop):
        """Stands in for the clock, which goes only by the work and by the pauses."""

        now = 8.5

        def time(self) -> float:
            return self.now

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        loop.now += seconds
        if len(slept) == len(pauses):
            raise asyncio.CancelledError

    def work() -> None:
        loop.now += took

    loop, slept = Stopped(), []
    host = serve_module._Host([])
    host.client = SimpleNamespace(is_connected=True)
    # For this module only: the connection to NATS sleeps in another thread.
    only = SimpleNamespace(get_running_loop=asyncio.get_running_loop, sleep=sleep)
    monkeypatch.setattr(serve_module, "asyncio", only)
    with contextlib.closing(loop), pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(host.tick(SimpleNamespace(name="clock"), 1.0, work))
    host.end_threads()
    assert slept == pauses


def test_a_tick_that_has_nothing_to_do_is_not_called(peer):
    done, asked = [], []

    class Clock:
        name = "clock"
        subjects: dict = {}
        ticks = ((0.01, lambda: done.append(len(asked)), lambda: asked.append(1) or len(asked) % 3 == 0),)

    with serving(Clock()) as served:
        served.wait()
        until(lambda: len(done) >= 3)
    assert done[:3] == [3, 6, 9]


def test_requests_distinguish_time_outs_from_missing_subscribers(peer):
    with pytest.raises(bus.NoAnswer, match="nobody"):
        bus.request("test.nobody", b"", LIMIT_S)
    peer.listen("test.silent")
    with pytest.raises(bus.NoAnswer, match=r"0\.2 s"):
        bus.request("test.silent", b"", 0.2)
    peer.listen("test.talks", answer=lambda data: data + b"!")
    assert bus.request("test.talks", b"hello", LIMIT_S) == b"hello!"


def test_nkey_authentication(tmp_path, settings):
    """Opni's server is configured like this."""
    pair = nkeys.from_seed(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    seed = tmp_path / "seed"
    seed.write_bytes(bytes(pair.seed))
    conf = tmp_path / "nats.conf"
    conf.write_text(f"authorization {{ users: [ {{ nkey: {pair.public_key.decode()} }} ] }}\n")
    server = Server(tmp_path)
    settings.NATS_URL = f"nats://127.0.0.1:{server.port}"
    try:
        server.start("-c", str(conf))
        settings.NATS_NKEY_SEED = str(seed)
        far = Peer("test.out")
        far.publish("test.out", b"let in")
        assert far.wait("test.out") == [b"let in"]
        far.close()
    finally:
        server.kill()


def test_pending_messages_are_bounded(peer, monkeypatch):
    """Bug 13 of the original: its queues had no bound."""
    monkeypatch.setattr("kernel.serve.WAITING", 10)
    monkeypatch.setattr("kernel.serve.BEHIND", 20)
    go, handled = threading.Event(), []

    def handle(data):
        assert go.wait(LIMIT_S)
        handled.append(data)

    with serving(Echo(handle)) as served:
        served.wait()
        for number in range(200):
            peer.publish("test.in", b"%d" % number)
        go.set()
        until(lambda: len(handled) >= 20)
        until(lambda: peer.publish("test.in", b"last") or handled[-1] == b"last")
    assert len(handled) < 200
    numbers = [int(data) for data in handled if data != b"last"]
    assert numbers == sorted(numbers)
