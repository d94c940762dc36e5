"""A path that a job has exchanged with a link since it was checked: nothing behind the link is mounted or changed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mlp.tests.tiers import later
from runners import confine
from runners.base import Mount
from runners.kubernetes import ClusterConfig, staging
from runners.shim import beneath

from . import exchanging
from .confined import FILES, USER
from .helpers import end_of, spec

BWRAP = [kind for kind in FILES if kind == "bwrap"]
# Control groups make no difference here.
WAYS = [later(kind) if "groups" in kind else kind for kind in FILES]
each_way = pytest.mark.parametrize("world", WAYS, indirect=True)
WRAPPER = """#!{python} -IS
import os, sys
sys.path.insert(0, {tests!r})
import exchanging, pathlib
words = [os.path.realpath(word) if {resolved} and word.startswith("/proc/self/") else word for word in sys.argv[1:]]
exchanging.exchange(pathlib.Path({output!r}))
os.execv({bwrap!r}, [{bwrap!r}, *words])
"""


@pytest.fixture
def source(world) -> Path:
    """A file in the output of another job of the same user."""
    output = world.root / "jobs/alice/prepare"
    file = exchanging.lay(output)
    if "ordinary user" in world.kind:
        for path in (output, *output.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)
    return file


def reads(world, source: Path, name: str = "job-1-1") -> str:
    """Run a script that reads the file; return its log."""
    place = world.runner.place(source, "/inputs/DATA")
    mounts = (Mount(source, "/inputs/DATA"),)
    world.run(f"print(read({place!r}))", name=name, mounts=mounts)
    return world.log


def untouched(world) -> bool:
    return (world.root / "secret-key").stat().st_mode & 0o777 == 0o600


@each_way
def test_what_was_exchanged_since_the_check_is_neither_read_nor_changed(world, source):
    assert reads(world, source) == "harmless\n", world.runner.poll("job-1-1")
    exchanging.exchange(source.parents[1])
    assert reads(world, source, "job-2-1") == "harmless\n"  # of the first run
    status = world.runner.poll("job-2-1")
    assert (status.exit_code, status.signal) == (None, None), status
    assert "Too many levels of symbolic links" in status.reason
    assert untouched(world)


@pytest.mark.parametrize("world", BWRAP, indirect=True)
@pytest.mark.parametrize("resolved", [False, True])
def test_what_is_exchanged_while_bubblewrap_mounts_is_not_read(world, source, resolved):
    wrapper = world.root / "bwrap"
    facts = {"python": sys.executable, "tests": str(Path(__file__).parent), "output": str(source.parents[1])}
    wrapper.write_text(WRAPPER.format(bwrap=confine.decide().bwrap, resolved=resolved, **facts))
    wrapper.chmod(0o755)
    world.runner._confinement = replace(world.runner.confinement, bwrap=str(wrapper))
    log = reads(world, source)
    if resolved:  # bubblewrap knows a path by now, and mounts what is there
        assert "/inputs/DATA was replaced while it was mounted" in end_of(world.runner).reason
        assert log == ""
    else:
        assert log == "harmless\n", end_of(world.runner)
    assert untouched(world)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_exchanged_while_files_are_given_to_a_pods_user_stays_as_it_is(tmp_path, monkeypatch):
    """As the old run of an application can while its new one starts in the same folder."""
    (tmp_path / "secret-key").write_text("forbidden")
    output = tmp_path / "apps/alice/served"
    exchanging.lay(output)
    config = ClusterConfig(storage_root=tmp_path)
    calls = []

    def at_the_second(function, *values, **options):
        function(*values, **options)
        calls.append(function)
        if len(calls) == 2:  # the folder x is given away, what is in it is next
            exchanging.exchange(output)

    for name in ("chown", "fchown"):
        monkeypatch.setattr(os, name, partial(at_the_second, getattr(os, name)))
    staging.chown_to_user(spec(tmp_path, "", owner=7, cwd=output), config)
    uid, gid = config.user_of(7)
    assert len(calls) >= 3
    assert (tmp_path / "secret-key").stat().st_uid == 0
    given = (output / "y" / "secret-key").stat()  # where the folder x is now
    assert (given.st_uid, given.st_gid) == (uid, gid)


@pytest.mark.parametrize("in_steps", [False, True])
def test_below_a_folder_no_link_is_followed(tmp_path, monkeypatch, in_steps):
    """Also where the kernel cannot open a whole path so."""
    if in_steps:
        monkeypatch.setattr(beneath, "OPENAT2", 1 << 20)
    (tmp_path / "secret-key").write_text("forbidden")
    output = tmp_path / "jobs/alice/prepare"
    source = exchanging.lay(output)
    os.close(beneath.reference(str(source), str(tmp_path)))
    for path in ("y", "y/secret-key", "x/../../prepare/x", "y/jobs"):
        with pytest.raises(OSError):
            beneath.reference(f"{output}/{path}", str(tmp_path))
    (tmp_path / "elsewhere").symlink_to(tmp_path / "jobs")  # as an administrator may do
    os.close(beneath.reference(f"{tmp_path}/elsewhere/alice/prepare/x", str(tmp_path)))


class Exchanging:
    """A change of files, during which the job puts a link in the place of one that has just been looked at."""

    def __init__(self, place: Path, behind: Path):
        self.place, self.behind = place, behind
        self.changed: list[int] = []

    def wants(self, info: os.stat_result) -> bool:
        if info.st_ino == self.place.lstat().st_ino and not self.place.is_symlink():
            self.place.unlink()
            self.place.symlink_to(self.behind)
        return True

    def __call__(self, fd: int, info: os.stat_result) -> None:
        self.changed.append(info.st_ino)


def test_what_becomes_a_link_before_it_is_changed_is_not_followed(tmp_path):
    secret, place = tmp_path / "secret-key", tmp_path / "jobs" / "mine"
    place.parent.mkdir()
    secret.write_text("forbidden")
    place.write_text("mine")
    opened, change = os.open(place.parent, os.O_PATH), Exchanging(place, secret)
    with pytest.raises(OSError, match="symbolic links"):
        beneath.change(opened, change)
    os.close(opened)
    assert place.is_symlink()
    assert change.changed == [place.parent.stat().st_ino]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_is_elsewhere_too_is_not_given_away(tmp_path):
    """Such as one of the platform's, of which a job has made a link where the kernel lets it."""
    secret, folder = tmp_path / "secret-key", tmp_path / "jobs"
    folder.mkdir()
    secret.write_text("forbidden")
    os.link(secret, folder / "hard")
    (folder / "own").touch()
    opened = os.open(folder, os.O_PATH)
    beneath.change(opened, beneath.Give(USER, USER))
    os.close(opened)
    assert [path.stat().st_uid for path in (folder, folder / "own", secret)] == [USER, USER, 0]


LANDLOCK = """
import sys
sys.path[:0] = sys.argv[1:3]
import exchanging, landlock, pathlib, prepare
root, there, source = sys.argv[3:]
made = pathlib.Path(source).parent.parent
facts = {"root": root, "isolation": "landlock", "uid": None, "tmp": there, "cwd": there, "own": [], "open": [source]}
values = facts | {"read": ["/usr", source], "write": [there]}
prepare.prepare(values)
exchanging.exchange(made)
landlock.restrict(values["read"], values["write"], values["held"])
print((made / "y" / "secret-key").read_text())
print(open(source).read())
"""


@pytest.mark.skipif(not any("landlock" in kind for kind in FILES), reason="this kernel has no Landlock")
def test_landlock_allows_what_was_opened_and_not_what_is_there_by_now(tmp_path):
    there = tmp_path / "jobs/alice/fit"
    there.mkdir(parents=True)
    (tmp_path / "secret-key").write_text("forbidden")
    source = exchanging.lay(tmp_path / "jobs/alice/prepare")
    places = [str(confine.SHIM), str(Path(__file__).parent), str(tmp_path), str(there), str(source)]
    done = subprocess.run([sys.executable, "-I", "-S", "-c", LANDLOCK, *places], capture_output=True, text=True)
    assert (done.stdout, "PermissionError" in done.stderr) == ("harmless\n", True), done.stderr


def test_what_appears_after_the_files_were_opened_is_not_allowed(tmp_path, monkeypatch):
    """A run that Landlock restricts may lack a folder, and start; what a job puts there later is not opened."""
    monkeypatch.syspath_prepend(str(confine.SHIM))
    there, missing = tmp_path / "jobs/alice/fit", tmp_path / "jobs/alice/prepare/x"
    there.mkdir(parents=True)
    paths = {"own": [], "open": [str(missing)], "read": ["/usr", str(missing)], "write": [str(there)]}
    facts = {"root": str(tmp_path), "isolation": "landlock", "uid": None, "cwd": str(there)}
    values = facts | {"tmp": str(tmp_path / "tmp")} | paths
    importlib.import_module("prepare").prepare(values)
    assert (values["read"], values["write"]) == (["/usr"], [str(there)])
    for opened in values["held"].values():
        os.close(opened)


def test_the_size_of_a_workspace_has_nothing_behind_a_link(tmp_path, monkeypatch):
    (tmp_path / "secret-key").write_text("forbidden")
    output = tmp_path / "jobs/alice/prepare"
    exchanging.lay(output)
    monkeypatch.syspath_prepend(str(confine.SHIM))  # its modules import each other by name
    inodes = []
    for info in importlib.import_module("disk").entries(str(output)):
        inodes.append(info.st_ino)
        if len(inodes) == 2:  # both are listed, none is entered
            exchanging.exchange(output)
    assert len(inodes) == 2
    assert (tmp_path / "secret-key").stat().st_ino not in inodes


@pytest.mark.long
@each_way
def test_no_run_reads_behind_a_link_that_comes_and_goes(world, source):
    with exchanging.exchanged_all_the_time(source.parents[1]):
        for number in range(15):
            assert "forbidden" not in reads(world, source, f"job-{number}-1")
            assert untouched(world)
