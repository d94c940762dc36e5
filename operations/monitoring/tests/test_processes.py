"""What several processes have counted is joined, and a kill loses and doubles nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from kernel.telemetry import files
from mlp.tests.tiers import later

# A process that counts in the folder of its argument, says so, and waits for its end.
COUNTS = """
import os, pathlib, sys
os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]
sys.path.insert(0, sys.argv[3])
from prometheus_client import Counter, Gauge, Histogram, values
from kernel.telemetry import files
values.ValueClass = values.MultiProcessValue(files.Identity(pathlib.Path(sys.argv[1])))
count = Counter("done", "Done.", ("kind",), registry=None)
open_ = Gauge("open", "Open.", ("kind",), registry=None, multiprocess_mode="livesum")
took = Histogram("took_seconds", "Took.", ("kind",), registry=None, buckets=(1, 10))
for number in range(int(sys.argv[2])):
    count.labels("a").inc()
    took.labels("a").observe(number % 3 * 4)
open_.labels("a").inc(2)
print("counted", flush=True)
sys.stdin.read()
"""


class Counting:
    """A process that has counted `times`, and runs until it is killed."""

    def __init__(self, folder: Path, times: int, prefix: tuple[str, ...] = ()):
        command = [*prefix, sys.executable, "-c", COUNTS, str(folder), str(times), str(settings.BASE_DIR)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"counted\n"

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def start(tmp_path):
    started: list[Counting] = []

    def begin(times: int, *prefix: str) -> Counting:
        started.append(Counting(tmp_path, times, prefix))
        return started[-1]

    yield begin
    for counting in started:
        if counting.process.poll() is None:
            counting.kill()


def totals(folder: Path) -> dict[str, float]:
    values = {}
    for metric in files.collect(folder):
        for sample in metric.samples:
            values[sample.name + sample.labels.get("le", "")] = sample.value
    return values


def test_the_counts_of_all_processes_are_added(tmp_path, start):
    start(3), start(4)
    values = totals(tmp_path)
    assert values["done_total"] == 7
    assert values["open"] == 4
    assert (values["took_seconds_count"], values["took_seconds_bucket1.0"], values["took_seconds_bucket+Inf"]) == (
        7,
        3,
        7,
    )


def test_what_a_killed_process_has_counted_is_kept_and_its_files_are_removed(tmp_path, start):
    first, _second = start(3), start(4)
    before = totals(tmp_path)
    first.kill()
    after = totals(tmp_path)
    assert {name: value for name, value in after.items() if name != "open"} == {
        name: value for name, value in before.items() if name != "open"
    }
    assert after["open"] == 2  # what it had open is closed
    assert len(list(tmp_path.glob("counter_*.db"))) == len(list(tmp_path.glob("*.alive"))) + 1 == 2
    start(5).kill()
    assert totals(tmp_path)["done_total"] == 12
    assert totals(tmp_path)["done_total"] == 12
    assert len(list(tmp_path.glob("counter_*.db"))) == 2  # of the one that lives, and the sum


def test_processes_of_several_containers_have_the_same_process_id(tmp_path, start):
    """Each is the first process of a container, and none sees the others'."""
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    first, _second = start(3, *alone), start(4, *alone)
    assert totals(tmp_path)["done_total"] == 7
    first.kill()
    start(5, *alone)
    assert totals(tmp_path)["done_total"] == totals(tmp_path)["done_total"] == 12


def test_files_that_a_crash_has_cut_are_left_out(tmp_path, start):
    """Zeros are what many file systems leave of a page; a length may also be beyond the file, or negative."""
    start(3)
    entries = b"\x08\0\0\0\xf0\xf0\xf0", b"\xff\xff\0\0", b"\x08\0\0\0no JSON!", b"", b"\xe4\xff\xff\xff"
    for number, entry in enumerate(entries):
        (tmp_path / f"counter_{number}.db").write_bytes(b"\x40\0\0\0\0\0\0\0" + entry + bytes(100))
        assert totals(tmp_path)["done_total"] == 3, entry
    assert totals(tmp_path)["done_total"] == 3


# Ends the process at the given change of a file, before or after it, while it joins the counts of ended processes.
INTERRUPTED = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from kernel.telemetry import files
left = int(sys.argv[3])
def dying(change):
    def wrapper(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        result = change(*arguments, **options)
        left -= 1
        if left == 0:
            os._exit(9)
        return result
    return wrapper
for name in ("replace", "unlink", "write_text"):
    setattr(pathlib.Path, name, dying(getattr(pathlib.Path, name)))
files.collect(pathlib.Path(sys.argv[2]))
"""


@pytest.mark.parametrize("step", [13, later(1)])
def test_a_kill_at_any_moment_of_joining_loses_and_doubles_nothing(tmp_path, start, step):
    interrupted, expected = 0, 0
    for moment in range(1, 60, step):
        one, other = start(1), start(2)
        one.kill(), other.kill()
        expected += 3
        command = [sys.executable, "-c", INTERRUPTED, str(settings.BASE_DIR), str(tmp_path), str(moment)]
        ended = subprocess.run(command, env={"PATH": os.environ["PATH"]}, check=False).returncode
        assert ended in {0, 9}
        assert totals(tmp_path)["done_total"] == expected, f"killed at change {moment}"
        interrupted += ended == 9
        if not ended:
            break
    assert ended == 0  # the last moment was passed
    assert interrupted > 10 / step
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["counter_ended.db", "histogram_ended.db"]


def test_a_new_start_of_the_platform_begins_at_zero(tmp_path, start):
    start(3).kill()
    assert totals(tmp_path)["done_total"] == 3
    files.clear(tmp_path)
    assert totals(tmp_path) == {}
