"""Watches and logs under broken connections, expired history and killed processes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest
from django.conf import settings

from mlp.tests.tiers import later
from runners.errors import RunnerError
from runners.kubernetes import KubernetesRunner, logs, object_names, runner, watch
from runners.kubernetes.cluster import PIECE, Cluster, Gone, lines

from .cluster.node import RECORD
from .helpers import end_of, eventually, spec

BITS = """
import sys
for line in open('feed'):
    sys.stdout.write('\\n' if line == 'end\\n' else line[:-1])
    sys.stdout.flush()
"""

TICKS = """
import os
for line in open('feed'):
    print(line, end='', flush=True)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(watch, "PAUSE_S", 0.05)
    monkeypatch.setattr(watch, "LONGEST_PAUSE_S", 0.2)


@pytest.fixture
def watched(kubernetes):
    with kubernetes.watch(lambda: None):
        eventually(lambda: all(feed.current for feed in kubernetes._watcher.feeds))
        yield kubernetes


@pytest.fixture
def feed(tmp_path):
    """A run whose output the test writes, line by line."""
    (tmp_path / "work").mkdir(exist_ok=True)
    os.mkfifo(tmp_path / "work/feed")
    opened = []

    def write(*lines: object) -> None:
        if not opened:
            opened.append(open(tmp_path / "work/feed", "w", buffering=1))  # noqa: SIM115
        for line in lines:
            opened[0].write(f"{line}\n")

    yield write
    for file in opened:
        with contextlib.suppress(OSError):
            file.close()


def shown(tmp_path, *lines: object) -> None:
    """Wait until the log has exactly these lines."""
    text = "".join(f"{line}\n" for line in lines)
    path = tmp_path / "job-1-1.log"
    eventually(lambda: path.exists() and path.read_text() == text, what=f"{text!r} in the log")


# --- the watch --------------------------------------------------------------------------------------------------
def test_polls_are_answered_from_memory(watched, cluster, tmp_path):
    watched.start(spec(tmp_path, "import os; os.mkfifo('go'); open('go').read()"))
    eventually(lambda: watched.poll("job-1-1").started)
    asked = len(cluster.requests)
    for _ in range(20):
        assert watched.poll("job-1-1").state == "running"
    assert not [path for verb, path in cluster.requests[asked:] if verb == "GET" and "/pods/" not in path]


@pytest.mark.parametrize("missed", ["all", "the end"])
def test_an_end_is_complete_though_the_watch_of_pods_is_behind(watched, tmp_path, monkeypatch, missed):
    """Jobs and pods come in separate streams, in any order."""
    pods, take = watched._watcher.pods, watched._watcher.pods._take

    def late(kind, obj):
        if missed == "the end" and obj["status"].get("phase") in {"Pending", "Running"}:
            take(kind, obj)

    monkeypatch.setattr(pods, "_take", late)
    watched.start(spec(tmp_path, "import sys; print('last words'); sys.exit(3)"))
    status = end_of(watched)
    assert (status.state, status.exit_code, status.reason) == ("exited", 3, "exit code 3")
    assert (tmp_path / "job-1-1.log").read_text() == "last words\n"


def test_changes_are_reported_at_once(kubernetes, tmp_path):
    moved = []
    with kubernetes.watch(lambda: moved.append(time.monotonic())):
        kubernetes.start(spec(tmp_path, "print(1)"))
        eventually(lambda: len(moved) > 3)
        assert end_of(kubernetes).succeeded


def test_a_broken_watch_is_resumed(watched, cluster, tmp_path):
    lists = [feed.relists for feed in watched._watcher.feeds]
    cluster.break_streams()
    watched.start(spec(tmp_path, "raise SystemExit(3)"))
    assert end_of(watched).exit_code == 3
    eventually(lambda: all(feed.current for feed in watched._watcher.feeds))
    assert [feed.relists for feed in watched._watcher.feeds] == lists  # from the last version, not all again


def test_it_lists_again_when_the_history_has_expired(watched, cluster, tmp_path):
    watched.start(spec(tmp_path, "import os; os.mkfifo('go'); open('go').read()"))
    eventually((tmp_path / "work/go").exists)
    jobs = watched._watcher.jobs
    cluster.broken = True  # it hears nothing meanwhile
    cluster.break_streams()
    eventually(lambda: not jobs.current)
    (tmp_path / "work/go").write_text("")
    eventually(lambda: cluster.store.list("jobs")[0]["status"]["conditions"])
    lists = jobs.relists
    cluster.store.compact()
    cluster.broken = False
    eventually(lambda: jobs.relists > lists and jobs.current, what="a new list")
    assert end_of(watched).succeeded


def test_objects_deleted_meanwhile_are_removed(watched, cluster, tmp_path):
    watched.start(spec(tmp_path, "print(1)"))
    end_of(watched)
    jobs = watched._watcher.jobs
    eventually(lambda: "mlp-job-1-1" in jobs.objects)
    cluster.broken = True
    cluster.break_streams()
    eventually(lambda: not jobs.current)
    cluster.store.remove("jobs", "mlp-job-1-1")
    cluster.store.compact()
    cluster.broken = False
    eventually(lambda: "mlp-job-1-1" not in jobs.objects)
    assert watched.poll("job-1-1").state == "unknown"


def test_bookmarks_move_a_quiet_watch_forward(watched, cluster):
    cluster.store.create("configmaps", {"metadata": {"name": "something-else"}})
    version = str(cluster.store.version)
    eventually(lambda: all(feed.version == version for feed in watched._watcher.feeds), what="a bookmark")


def test_an_end_stays_an_end_while_the_watch_is_behind(watched, tmp_path, monkeypatch):
    """A failed service's pod is removed at once; the record of its end arrives by the watch a moment later."""
    key, before = object_names.object_name("app-1-1"), []
    watched.start(spec(tmp_path, "raise SystemExit(4)", name="app-1-1", kind="service", port=31999, owner=7))

    def ended():
        before.append(watched._watcher.known(key))
        status = watched.poll("app-1-1")
        return None if status.state == "running" else status

    status = eventually(ended)
    assert (status.state, status.exit_code) == ("exited", 4)
    monkeypatch.setattr(watched._watcher, "known", lambda _key: (before[-1][0], []))
    assert watched.poll("app-1-1") == status


def test_an_old_resource_version_is_410(cluster, configured):
    api = Cluster(configured())
    cluster.store.compact()
    with pytest.raises(Gone):
        list(api.watch(api.core.list_namespaced_pod, "1", "", 5))


@pytest.mark.long
def test_a_stream_ends_at_its_time_out(cluster, configured):
    api = Cluster(configured())
    version = str(cluster.store.version)
    assert {event["type"] for event in api.watch(api.core.list_namespaced_pod, version, "", 3)} == {"BOOKMARK"}


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_chunked_event_is_one_line_and_an_endless_one_is_refused(monkeypatch, end):
    chunk = b"x" * (PIECE - 1)
    assert list(lines(Stream(b"a\nb", *[chunk] * 5, b"y" + end))) == [b"a", b"b" + chunk * 5 + b"y"]
    monkeypatch.setattr("runners.kubernetes.cluster.LONGEST_LINE", 5 * PIECE)
    with pytest.raises(RunnerError, match="longer than"):
        list(lines(Stream(*[chunk] * 1000, end)))


class Stream:
    """A fake response of the API server, in chunks of a test's choice."""

    def __init__(self, *chunks: bytes):
        self.chunks = chunks

    def stream(self, **_):
        yield from self.chunks

    def close(self):
        pass


# --- logs -------------------------------------------------------------------------------------------------------
def test_output_is_copied_while_it_is_written(watched, tmp_path, feed):
    watched.start(spec(tmp_path, TICKS))
    feed("one")
    shown(tmp_path, "one")
    feed("two")
    shown(tmp_path, "one", "two")


def test_an_interrupted_log_continues_without_loss_or_duplicates(watched, cluster, tmp_path, feed):
    watched.start(spec(tmp_path, TICKS))
    lines = []
    for number in range(5):
        more = [f"{number}-{each}" for each in range(40)]
        feed(*more)
        lines += more
        shown(tmp_path, *lines)
        cluster.break_streams()
    feed("the end")
    shown(tmp_path, *lines, "the end")


def test_an_unterminated_line_is_copied_in_pieces_and_resumed(watched, cluster, tmp_path, feed):
    watched.start(spec(tmp_path, BITS))
    path, line = tmp_path / "job-1-1.log", ""
    for number in range(4):
        line += f"{number}" * 100_000
        feed(f"{number}" * 100_000)
        there = len(line) - PIECE - RECORD  # of which one is kept by the reader, one by the node
        eventually(lambda least=there: path.exists() and path.stat().st_size > least, what="a piece")
        cluster.break_streams()
    feed("end", "after", "end")
    shown(tmp_path, line, "after")


def test_another_process_takes_over_the_log(kubernetes, configured, tmp_path, feed):
    with kubernetes.watch(lambda: None):
        kubernetes.start(spec(tmp_path, TICKS))
        feed("one", "two")
        shown(tmp_path, "one", "two")
        followers = list(kubernetes._watcher.following.values())
    feed("three")  # wakes the follower, which then sees that it is to end
    eventually(lambda: not any(thread.is_alive() for thread in followers))
    with open(tmp_path / "job-1-1.log", "a") as file:
        file.write("half of a li")  # written, and killed before it was noted
    other = KubernetesRunner(configured())
    with other.watch(lambda: None):
        feed("four")
        shown(tmp_path, "one", "two", "three", "four")


@pytest.mark.long
def test_the_log_of_a_run_that_prints_fast_is_whole(watched, tmp_path, monkeypatch):
    """The stream that follows it is far behind when the run ends; the end waits for the rest."""
    monkeypatch.setattr(runner, "LOG_PATIENCE_S", -1)
    watched.start(spec(tmp_path, "for i in range(50_000): print('line', i)"))
    assert end_of(watched).succeeded
    assert (tmp_path / "job-1-1.log").read_text() == "".join(f"line {i}\n" for i in range(50_000))


def test_a_log_that_cannot_be_fetched_says_so(kubernetes, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "LOG_PATIENCE_S", -1)
    portions = logs.portions

    def broken(response):
        yield from portions(response)
        raise RunnerError("the cluster's stream broke off: %(problem)s", problem="reset")

    monkeypatch.setattr(logs, "portions", broken)
    kubernetes.start(spec(tmp_path, "print('first words')"))
    assert end_of(kubernetes).succeeded
    remark = "[the rest of the log cannot be had: the cluster did not answer]\n"
    assert (tmp_path / "job-1-1.log").read_text() == "first words\n" + remark


def test_a_log_that_its_node_has_removed_says_so(kubernetes, cluster, tmp_path, monkeypatch):
    """The node answers with a sentence of its own instead of the output."""
    real = cluster.node.output

    def removed(name):
        output = real(name)
        output.removed = True
        return output

    monkeypatch.setattr(cluster.node, "output", removed)
    kubernetes.start(spec(tmp_path, "print('first words')"))
    assert end_of(kubernetes).succeeded
    remark = "[the rest of the log cannot be had: its node no longer has it]\n"
    assert (tmp_path / "job-1-1.log").read_text() == remark


def test_lines_with_the_same_timestamp_are_distinguished():
    position = logs.Position(pod="p", second=1767268800, nano=5, same=2)
    skip = logs.Skip(position)
    stamp = b"2026-01-01T12:00:00.000000005Z "
    given = [b"2026-01-01T11:59:59.9Z before", stamp + b"a", stamp + b"b", stamp + b"c"]
    given += [b"2026-01-01T13:00:00.00000001+01:00 d", b"", b"2026-01-01T12:00:01Z "]
    assert [skip(line + b"\n") for line in given] == [b"", b"", b"", b"c\n", b"d\n", b"", b"\n"]
    assert (position.second, position.nano, position.same) == (1767268801, 0, 1)


def test_pieces_of_a_line_are_distinguished():
    """The connection breaks after `ab`, in the second line of that time; the line before it comes in pieces, too."""
    position = logs.Position(pod="p", second=1767268800, nano=5, same=2, part=2)
    skip = logs.Skip(position)
    stamp = b"2026-01-01T12:00:00.000000005Z "
    given = [stamp + b"x", b"y\n", stamp + b"a", b"b", b"c"]
    assert [skip(piece) for piece in given] == [b"", b"", b"", b"", b"c"]
    assert (position.same, position.part) == (2, 3)
    assert [skip(piece) for piece in (b"d\n", stamp + b"e")] == [b"d\n", b"e"]
    assert (position.same, position.part) == (3, 1)
    gone = logs.Skip(position)  # the node does not keep the rest of it any more
    assert gone(b"2026-01-01T12:00:01Z f\n") == b"\nf\n"
    assert (position.second, position.same, position.part) == (1767268801, 1, 0)


KEEPER = """
import json, sys, time
from pathlib import Path
from runners.kubernetes import ClusterConfig, KubernetesRunner
runner = KubernetesRunner(ClusterConfig(Path(sys.argv[1]), kubeconfig=sys.argv[2]))
with runner.watch(lambda: None):
    time.sleep(600)
"""


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, later(3)])
def test_a_log_survives_kills_of_the_copying_process(kubernetes, configured, tmp_path, kills):
    """Killed repeatedly at any moment: no line is lost or duplicated."""
    code = (
        "import itertools, os, time\n"
        "for i in itertools.count():\n"
        "    print('line', i, flush=True)\n"
        "    i % 10 or time.sleep(0.02)\n"
        "    if os.path.exists('enough'): break\n"
        "open('count', 'w').write(str(i + 1))"
    )
    kubernetes.start(spec(tmp_path, code))
    path = tmp_path / "job-1-1.log"
    for _ in range(kills):
        size = path.stat().st_size if path.exists() else 0
        command = [sys.executable, "-c", KEEPER, str(tmp_path), str(tmp_path / "kubeconfig")]
        keeper = subprocess.Popen(command, cwd=settings.BASE_DIR, stderr=subprocess.DEVNULL)
        eventually(lambda before=size: path.exists() and path.stat().st_size > before + 2000, what="more of the log")
        keeper.kill()
        keeper.wait()
    (tmp_path / "work/enough").touch()
    assert end_of(kubernetes).succeeded
    count = int((tmp_path / "work/count").read_text())
    assert path.read_text() == "".join(f"line {i}\n" for i in range(count))


@pytest.mark.parametrize(
    "trick", ["os.symlink(os.path.abspath('../precious'), 'log/job.log')", "os.mkfifo('log/job.log')"]
)
def test_links_instead_of_the_log_are_not_followed(kubernetes, tmp_path, trick):
    (tmp_path / "precious").write_text("unharmed")
    code = f"import os; LOG = 'log/job.log'; os.mkdir('log'); {trick}; print('overwritten')"
    kubernetes.start(spec(tmp_path, code, log=tmp_path / "work/log/job.log"))
    assert end_of(kubernetes).succeeded
    assert (tmp_path / "precious").read_text() == "unharmed"


def test_linked_folders_in_the_logs_path_are_not_followed(kubernetes, tmp_path):
    (tmp_path / "theirs").mkdir()
    code = "import os; os.symlink(os.path.abspath('../theirs'), 'log'); print('elsewhere')"
    kubernetes.start(spec(tmp_path, code, log=tmp_path / "work/log/job.log"))
    assert end_of(kubernetes).succeeded
    assert list((tmp_path / "theirs").iterdir()) == []
