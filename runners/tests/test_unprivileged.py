"""A platform that was not started by root: all of its runs have its user, so that no owner of a file keeps one run from
another's, or from the platform's. What bubblewrap and Landlock keep by themselves.
"""

from __future__ import annotations

import json
import os
import socket
from contextlib import closing
from pathlib import Path

import pytest

from mlp.tests.tiers import later
from runners.shim import landlock

from .confined import FILES, USER, processes_in
from .helpers import eventually

KINDS = [kind for kind in FILES if kind.endswith("ordinary user")]
SECRET = "forbidden"
NEIGHBOUR = """
import time
open('/dev/shm/neighbour', 'w').write('forbidden')
open('ready', 'w').close()
time.sleep(600)
"""
TRIES = """
import ctypes, resource, socket
libc = ctypes.CDLL(None, use_errno=True)
def connect(path):
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(5); link.connect(path)
def trace(pid):
    if libc.ptrace(0x4206, pid, None, None): raise OSError(ctypes.get_errno(), 'ptrace')
def copied(pid):
    handle = libc.syscall(434, pid, 0)
    if not any(libc.syscall(438, handle, number, 0) >= 0 for number in range(8)): raise OSError('pidfd_getfd')
def watched(path):
    if libc.inotify_add_watch(libc.inotify_init1(0), path.encode(), 0xfff) < 0: raise OSError(ctypes.get_errno(), path)
def hurt(pid):
    calls = {'limited': lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)),
        'slowed': lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        'idled': lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))}
    return {name: attempt(call) for name, call in calls.items()}
def processes(kind, pid):
    found = {f'{kind}: {name}': attempt(read, f'/proc/{pid}/{name}') for name in ('environ', 'maps', 'mem', 'fd/0')}
    found |= {f'{kind}: {name}': attempt(os.listdir, f'/proc/{pid}/{name}/') for name in ('cwd', 'root')}
    found[f'{kind}: link'] = attempt(os.readlink, f'/proc/{pid}/fd/0')
    calls = {'trace': trace, 'copied': copied, 'killed': lambda pid: os.kill(pid, 9)}
    found |= {f'{kind}: {name}': answer for name, answer in hurt(pid).items()}
    return found | {f'{kind}: {name}': attempt(call, pid) for name, call in calls.items()}
found = {}
for path in FILES:
    calls = {'read': read, 'written': lambda path: open(path, 'r+'),
        'linked': lambda path: os.link(path, os.urandom(8).hex()), 'removed': os.unlink}
    found |= {f'{name} {path}': attempt(call, path) for name, call in calls.items()}
found |= {f'listed {path}': attempt(os.listdir, path) for path in FOLDERS}
found |= {f'watched {path}': attempt(watched, path) for path in FOLDERS}
for path in FOLDERS: attempt(os.mkdir, path + '/new')
found['connected'] = attempt(connect, SOCKET)
found['shared memory'] = attempt(read, '/dev/shm/neighbour')
for kind, pid in PROCESSES.items(): found |= processes(kind, pid)
found['all slowed'] = attempt(os.setpriority, os.PRIO_USER, 0, 19) if TOGETHER else [False, '']
assert all(worked for worked, _ in hurt(0).values()), 'it may change itself'
print(json.dumps([name for name, (worked, _) in found.items() if worked]))
"""


@pytest.fixture
def neighbour(world):
    """Start the run of another owner, which keeps a secret in shared memory; yield its process."""
    folder = world.root / "jobs/bob/fit"
    world.runner.start(world.spec(NEIGHBOUR, name="job-2-1", owner=8, cwd=folder, log=folder / "log", mounts=()))
    eventually((folder / "ready").exists)
    yield max(processes_in(folder))
    world.runner.stop("job-2-1", 0)
    if os.path.exists("/dev/shm/neighbour"):
        os.unlink("/dev/shm/neighbour")


def reached(world, processes: dict[str, int]) -> set[str]:
    """Return what a run reaches of the platform's files, a socket and the processes."""
    files, folders = laid(world)
    address = str(world.root / "run/server.sock")
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(address)
        os.chown(address, USER, USER)
        server.listen()
        given = json.dumps([files, folders, address, processes, "landlock" in world.kind])
        given = f"FILES, FOLDERS, SOCKET, PROCESSES, TOGETHER = json.loads({given!r})\n"
        answers = set(world.answer(given + TRIES))
    if world.kind in KINDS:
        assert all(Path(path).read_text() == SECRET for path in files)
        assert not [path for path in (world.root, *map(Path, folders)) if (path / "new").exists()]
    return answers


def laid(world) -> tuple[list[str], list[str]]:
    """Add the database's files; return the platform's and others' files and folders."""
    database = world.root / "database/base"
    database.mkdir(parents=True)
    (database / "1").write_text(SECRET)
    for path in (database.parent, database, database / "1"):
        os.chown(path, USER, USER)
        path.chmod(0o700 if path.is_dir() else 0o600)
    files = [*world.forbidden, database / "1"]
    folders = [world.root / "run", database, *(path.parent for path in world.forbidden[1:])]
    return [str(path) for path in files], [str(path) for path in folders]


@pytest.mark.skipif(not KINDS, reason="only root can be another user, who needs to read this working tree")
@pytest.mark.parametrize("world", [kind if "landlock" in kind else later(kind) for kind in KINDS], indirect=True)
@pytest.mark.parametrize("shm", [True, later(False)])
def test_it_reaches_nothing_of_the_platform_and_of_another_run(world, neighbour, shm):
    """Under Landlock alone it connects to sockets, whose servers ask who it is, and shares the machine's `/dev/shm`
    unless MLP_LANDLOCK_SHM says otherwise: docs/jobs.md says so. Nothing else.
    """
    world.runner.options["shm"] = shm
    allowed = {"connected", *(["shared memory"] if shm else [])} if "landlock" in world.kind else set()
    old = {"run: killed", "platform: killed"} if "landlock" in world.kind and landlock.version() < 6 else set()
    tries = reached(world, {"run": neighbour, "platform": world.others_process()})
    assert tries - old == allowed


@pytest.mark.long
@pytest.mark.skipif(not KINDS, reason="only root can be another user, who needs to read this working tree")
@pytest.mark.parametrize("world", ["none, ordinary user"], indirect=True)
def test_without_isolation_it_reaches_all_of_it(world, neighbour):
    """So the tries can tell."""
    tries = reached(world, {"run": neighbour})
    assert {"connected", "shared memory", "run: environ", "run: cwd", "run: link", "run: killed"} <= tries
    assert {"run: limited", "run: slowed", "run: idled"} <= tries
    assert {name.split()[0] for name in tries if "/" in name} >= {
        "read",
        "written",
        "removed",
        "linked",
        "listed",
        "watched",
    }
