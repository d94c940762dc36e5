"""What a spawner leaves of the machine's mounts, and that a run which names one of those has it all the same.

Each test has a mount namespace of its own, in a process of its own: nothing is mounted on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners import confine
from runners.local import LocalRunner

from .helpers import end_of, spec

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has mount namespaces")
BEGIN = f"""
import os, sys
sys.path.insert(0, {str(confine.SHIM)!r})
import mounts
place = sys.argv[1]
def mount(name):
    os.makedirs(f"{{place}}/{{name}}", exist_ok=True)
    mounts.call("mount", b"none", os.fsencode(f"{{place}}/{{name}}"), b"tmpfs", 0, None)
    open(f"{{place}}/{{name}}/file", "w").close()
def there(*names):
    return [name for name in names if os.path.exists(f"{{place}}/{{name}}/file")]
def spec(*paths, **more):
    command = ["/usr/bin/bwrap", "--dir", place]  # what is made inside is no mount of the machine
    for path in paths:
        command += ["--ro-bind", f"{{place}}/{{path}}", place]
    return {{"isolation": "bwrap", "root": f"{{place}}/root", "bwrap": command, **more}}
mounts.call("unshare", mounts.CLONE_NEWNS)
mounts.call("mount", None, b"/", None, mounts.MS_REC | mounts.MS_SLAVE, None)
ALL = ("root/data", "used/below", "a name", "other", "other/below")
for name in ("other", *ALL):  # one on the other, too
    mount(name)
seen = mounts.Mounts()
"""


def said(tmp_path: Path, code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code, str(tmp_path)], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    return done.stdout.strip()


def test_what_no_run_names_is_left_and_the_rest_stays(tmp_path):
    code = "seen.leave(spec('used')); print(there(*ALL), os.path.ismount('/proc'))"
    assert said(tmp_path, code) == "['root/data', 'used/below'] True"


def test_it_is_decided_once_and_by_an_isolated_run(tmp_path):
    code = "seen.leave(spec(isolation='none')); print(len(there(*ALL)))\nseen.leave(spec()); seen.leave(spec('other'))"
    assert said(tmp_path, code + "; print(there(*ALL))") == "5\n['root/data']"


@pytest.mark.parametrize(
    ("named", "whole"),
    [
        ("spec('used/below/deeper')", False),
        ("spec('root/data/x')", False),
        ("spec('other')", True),
        ("spec('other/below/x')", True),
        ("spec('a name/x')", True),
        ("spec('')", True),
        ("spec('link/x')", True),
        ("spec(mounts=[{'source': f'{place}/other'}])", True),
        ("spec(mounts=[{'source': f'{place}/used', 'target': f'{place}/other'}])", False),
        ("spec(environment={'PATH': f'{place}/other'})", False),
        ("spec(isolation='landlock')", True),
        ("spec(isolation='none')", True),
    ],
)
def test_a_run_that_may_have_to_do_with_one_sees_all(tmp_path, named, whole):
    code = f"os.symlink(f'{{place}}/other', f'{{place}}/link'); seen.leave(spec('used')); seen.suit_spec({named})"
    assert said(tmp_path, code + "; print(len(there(*ALL)))") == ("5" if whole else "2")


@pytest.mark.parametrize(
    ("later", "whole"),
    [
        ("mount('later')", False),
        ("mount('used/later')", True),
        ("mount('root/later')", True),
        ("mounts.call('umount2', os.fsencode(f'{place}/root/data'), 2)", True),
        ("mounts.call('umount2', os.fsencode(f'{place}/other/below'), 2)", False),
        ("pass", False),
    ],
)
def test_what_is_mounted_or_removed_later_is_known_before_the_next_run(tmp_path, later, whole):
    """The machine's own namespace here is that of another process, which is told when to change it."""
    code = f"""
told, tell = os.pipe()
done, finished = os.pipe()
if not (child := os.fork()):
    os.read(told, 1)
    {later}
    os.write(finished, b".")
    os._exit(0)
seen.leave(spec("used"))
seen.look()
assert not seen.stale
os.write(tell, b".")
os.read(done, 1)
seen.look()
print(seen.stale)
seen.suit(f"{{place}}/root")
print(not seen.apart)
seen.leave(spec("used"))
"""
    assert said(tmp_path, code) == f"{whole}\n{whole}"


def test_a_folder_on_a_later_mount_is_found_and_mounts_are_left_again(tmp_path):
    code = """
told, tell = os.pipe()
done, finished = os.pipe()
if not (child := os.fork()):
    for step in ("later", "used/more"):
        os.read(told, 1)
        mount(step)
        os.write(finished, b".")
    os._exit(0)
seen.leave(spec("used"))
os.write(tell, b"."); os.read(done, 1)
seen.look()
if not (shim := os.fork()):
    seen.suit(f"{place}/later/runs")
    print(there("later", "other"), flush=True)
    os._exit(0)
os.waitpid(shim, 0)
print(there("later", "other"))
os.write(tell, b"."); os.read(done, 1)
mounts.AGAIN_S = -1.0
seen.look()
seen.leave(spec("used"))
print(seen.stale, there("later", "used/more", *ALL))
"""
    assert said(tmp_path, code) == "['later', 'other']\n[]\nFalse ['used/more', 'root/data', 'used/below']"


def test_runs_begin_after_the_spawner_has_left_mounts(tmp_path):
    runner = LocalRunner(tmp_path / "run" / "runs")
    for number in (1, 2):
        runner.start(spec(tmp_path, "print('hello')", name=f"job-{number}-1", owner=number))
        assert end_of(runner, f"job-{number}-1").succeeded
