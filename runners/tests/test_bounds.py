"""Limits of a hostile script at every level of confinement: memory, processes, disk, time, links."""

from __future__ import annotations

import importlib
import json
import os
import stat
import subprocess
import time

import pytest

from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from runners import confine

from .confined import KINDS, World, each, each_that_is_limited, processes_in
from .helpers import end_of, eventually

pytestmark = pytest.mark.begins(0.1)  # minutes


@each_that_is_limited
def test_unlimited_memory_use_ends_the_run_with_a_reason(world):
    """Many processes, each below any limit of a single process."""
    code = (
        "import time\n"
        "for _ in range(6):\n"
        "    if not os.fork():\n"
        "        held = bytearray(60 << 20)\n"
        "        time.sleep(600)\n"
        "time.sleep(600)"
    )
    status = world.run(code, ram_mib=200)
    assert not status.succeeded
    assert "needed more than 200 MiB of memory" in status.reason or status.exit_code, status


@each_that_is_limited
def test_one_process_that_takes_too_much_memory(world):
    status = world.run("held = []\nwhile True: held.append(bytearray(1 << 20))", ram_mib=150)
    assert not status.succeeded
    assert "memory" in status.reason


@each_that_is_limited
def test_memory_that_belongs_to_no_process_counts(world):
    """Files without a name in memory, written and never mapped."""
    code = (
        "import time\n"
        "for _ in range(300):\n"
        "    file = os.memfd_create('held')\n"
        "    for _ in range(4): os.write(file, bytes(1 << 20))\n"
        "time.sleep(600)"
    )
    status = world.run(code, ram_mib=150)
    assert not status.succeeded
    assert "memory" in status.reason


@pytest.mark.parametrize("world", few((kind for kind in KINDS if kind.startswith("bwrap")), 1, 1), indirect=True)
def test_shared_memory_segments_count(world):
    """In namespaces of its own a run's segments are its own."""
    code = (
        "import ctypes, time\n"
        "libc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(60):\n"
        "    if not os.fork():\n"
        "        place = libc.shmat(libc.shmget(0, 8 << 20, 0o1600), None, 0)\n"
        "        ctypes.memset(place, 1, 8 << 20); os._exit(0)\n"
        "    os.wait()\n"
        "time.sleep(600)"
    )
    status = world.run(code, ram_mib=150)
    assert not status.succeeded
    assert "memory" in status.reason


@each_that_is_limited
def test_shared_memory_pages_count_once(world):
    code = (
        "import time\n"
        "held = bytearray(os.urandom(1)) * (100 << 20)\n"
        "for _ in range(8):\n"
        "    if not os.fork(): time.sleep(1); os._exit(0)\n"
        "for _ in range(8): os.wait()\n"
        "print(json.dumps('well'))"
    )
    assert world.answer(code, ram_mib=300) == "well"


@each_that_is_limited
def test_a_fork_bomb_is_bounded_and_ends(world):
    code = (
        "import time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "write('ready')\n"
        "while True:\n"
        "    try: os.fork()\n"
        "    except OSError: time.sleep(0.1)"
    )
    world.runner.start(world.spec(code, processes=40))
    eventually((world.workspace / "ready").exists)
    most, end = 0, time.monotonic() + 1.5
    while time.monotonic() < end:
        most = max(most, len(processes_in(world.workspace)))
        time.sleep(0.02)
    world.runner.stop("job-1-1", 0)
    status = end_of(world.runner)
    assert status.state == "exited"
    assert not status.succeeded
    assert most <= 200  # the watcher sees it a moment later than the kernel would
    assert processes_in(world.workspace) == []


@each_that_is_limited
@pytest.mark.parametrize(
    "how",
    [
        "n = 0\nwhile True: open(f'f{n}', 'wb').write(bytes(1 << 20)); n += 1; time.sleep(0.02)",
        "n = 0\nwhile True:\n    open(f'f{n}', 'wb'); n += 1\n    if n % 25 == 0: time.sleep(0.01)",
        "n, held = 0, []\nwhile True:\n"
        "    held.append(open('f', 'wb')); os.unlink('f'); held[-1].write(bytes(1 << 20)); held[-1].flush()\n"
        "    time.sleep(0.02)",
    ],
    ids=["files", "empty files", "files without a name"],
)
def test_filling_the_disk_ends_the_run_with_a_reason(world, how):
    status = world.run("import time\n" + how, disk_mib=2)
    assert status.reason.startswith("wrote more than 2 MiB"), status
    assert not status.succeeded


@pytest.mark.parametrize(
    ("taken", "rest", "before_it_is_full"),
    [(0, 10 << 30, 64 << 20), (60 << 20, 10 << 30, 4 << 20), (0, (2 << 30) + (8 << 20), 8 << 20), (0, 1 << 30, None)],
    ids=["a small limit", "most of it is written", "the disk is nearly full", "the disk is full"],
)
def test_the_disk_is_looked_at_sooner_the_nearer_a_limit_is(tmp_path, monkeypatch, taken, rest, before_it_is_full):
    """Else a fast disk takes many times the limit between two looks. A disk that others filled is no such reason."""
    monkeypatch.syspath_prepend(str(confine.SHIM))  # its modules import each other by name
    disks = importlib.import_module("disk")
    disk = disks.Disk([str(tmp_path)], 64, 2048, print)
    pause = disk.pause(taken, rest)
    if before_it_is_full is None:
        assert pause == disk.LOOK_S
    else:
        assert pause == disk.QUICK_S or pause * disk.SPEED <= before_it_is_full
    assert disks.Disk([str(tmp_path)], 64 << 10, 2048, print).pause(0, 100 << 30) == disk.LOOK_S


def test_who_uses_up_the_inodes_is_ended_while_others_have_some(tmp_path):
    """A small disk of its own, which can hold 30,000 files."""
    command = ["mount", "-t", "tmpfs", "-o", "nr_inodes=30000,mode=755", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a disk of a given size takes the right to mount one")
    try:
        world = World(KINDS[0], tmp_path / "root")
        code = "import time\nfor number in range(29_000): open(str(number), 'w').close()\ntime.sleep(60)"
        status = world.run(code, LIMIT_S)
        assert "it can hold few more files" in status.reason, status
        for number in range(100):
            (world.root / f"other-{number}").touch()
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


@each_that_is_limited
def test_one_file_cannot_be_larger_than_the_limit(world):
    code = (
        "import time\n"
        "with open('big', 'wb', buffering=0) as file:\n"
        "    try:\n"
        "        while True: file.write(bytes(1 << 20))\n"
        "    except OSError: os.truncate('big', 0)\n"
        "print(json.dumps('refused'))"
    )
    runs = world.run(code, disk_mib=30)
    assert runs.reason.startswith("wrote more than") or world.log == '"refused"\n'
    assert not (world.workspace / "big").exists() or (world.workspace / "big").stat().st_size <= 30 << 20


@each_that_is_limited
def test_shared_memory_and_tmpfs_are_limited(world):
    if not world.kind.startswith("bwrap"):
        pytest.skip("only bubblewrap gives a run a shared memory of its own")
    code = (
        "def fill(path):\n"
        "    with open(path, 'wb') as file:\n"
        "        for _ in range(1000): file.write(bytes(1 << 20))\n"
        "print(json.dumps([attempt(fill, path + '/x') for path in ('/', '/dev', '/run', '/etc', '/datasets')]))"
    )
    assert not any(worked for worked, _ in world.answer(code))
    status = world.run(
        "with open('/dev/shm/x', 'wb') as file:\n    for _ in range(1000): file.write(bytes(1 << 20))",
        name="job-1-2", ram_mib=100,
    )  # fmt: skip
    assert not status.succeeded


@each_that_is_limited
def test_endless_output_is_limited(world):
    code = "for _ in range(2000): print('x' * 1000)\nopen('more', 'w')\nwhile True: print('x' * 1000)"
    world.runner.start(world.spec(code, log_limit=100_000))
    log = world.workspace / "log/job.log"
    eventually((world.workspace / "more").exists)
    world.runner.stop("job-1-1", 0)
    assert not end_of(world.runner).succeeded
    assert log.stat().st_size < 100_000 + (64 << 10) + 200


DAEMON = """
import time
for _ in range(2):
    if not os.fork():
        os.setsid()
        if not os.fork():
            for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
            os.environ.clear()
            os.closerange(0, 100)
            write('daemon')
            while True: time.sleep(1)
        os._exit(0)
signal.signal(15, signal.SIG_IGN)
while True: time.sleep(1)
"""


@each_that_is_limited
def test_a_script_that_forks_and_ignores_signals_ends_with_all_its_processes(world):
    world.runner.start(world.spec(DAEMON))
    eventually(lambda: (world.workspace / "daemon").exists() and (world.workspace / "daemon").stat().st_size == 2)
    assert len(processes_in(world.workspace)) >= 3
    world.runner.stop("job-1-1", 0.3)
    status = end_of(world.runner)
    assert status.reason == "stopped on request, did not end within 0.3 s, killed by signal 9 (SIGKILL)"
    eventually(lambda: processes_in(world.workspace) == [])


@each_that_is_limited
def test_killed_watchers_leave_no_process(world):
    world.runner.start(world.spec(DAEMON))
    eventually(lambda: (world.workspace / "daemon").exists() and (world.workspace / "daemon").stat().st_size == 2)
    begun = json.loads((world.root / "run/runs/job-1-1/begun.json").read_text())
    os.kill(begun["shim"], 9)
    assert end_of(world.runner).state == "lost"
    eventually(lambda: processes_in(world.workspace) == [])


# --- links that a run lays ------------------------------------------------------------------------------------------
@each
@pytest.mark.parametrize(
    "trap",
    [
        "[os.unlink(f'log/{{name}}') for name in os.listdir('log')]; os.rmdir('log'); os.symlink({secret!r}, 'log')",
        "os.symlink({secret!r}, 'log/job.log')",
        "os.mkfifo('log/job.log')",
    ],
    ids=["folder", "file", "fifo"],
)
def test_links_do_not_redirect_the_next_attempt(world, trap):
    secret = world.root / "run" / "kept"
    secret.mkdir(mode=0o755)
    (secret / "job.log").write_text("untouched")
    where = str(secret) if "rmdir" in trap else str(secret / "job.log")
    first = "import time\nos.unlink('log/job.log')\n" + trap.format(secret=where)
    assert world.run(first).succeeded
    status = world.run("print('written')", name="job-1-2")
    assert status.reason.startswith("could not start: log file")
    assert (secret / "job.log").read_text() == "untouched"


@each
def test_ownership_changes_do_not_follow_links(world):
    if "ordinary user" in world.kind or os.geteuid() != 0:
        pytest.skip("only root gives files away")
    world.run(f"os.symlink({str(world.forbidden[0])!r}, 'file'); os.symlink({str(world.root / 'run')!r}, 'folder')")
    world.run("pass", name="job-1-2")
    for path in (world.forbidden[0], world.root / "run"):
        assert path.stat().st_uid == 0
        assert stat.S_IMODE(path.stat().st_mode) in (0o600, 0o700)
