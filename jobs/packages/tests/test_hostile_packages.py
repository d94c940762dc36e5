"""Packages, indexes and requirements that want to do harm: what a set-up executes, a module with the platform's name,
an index that lies, and more lines than anybody needs.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

import runners
from jobs.packages import store
from kernel import storage
from mlp.tests.tiers import few

from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

# The back end of a source distribution is executed when it is installed, as a setup.py is, and needs no setuptools.
BACKEND = """
import json, os, subprocess, sys, zipfile

def tried(action):
    try:
        return bool(action())
    except OSError:
        return False

def written(path):
    with open(path, "a") as file:
        return file.write("# hostile")

def left():
    quiet = {{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}}
    words = [sys.executable, "-c", "import time; time.sleep(600)", {mark!r}]
    return subprocess.Popen(words, start_new_session=True, **quiet)

def build_wheel(folder, settings=None, metadata=None):
    tries = {{
        "control": tried(lambda: os.listdir(".")),
        "another user's file": tried(lambda: open({secret!r}).read()),
        "the other users' environments": tried(lambda: {number!r} in os.listdir({store!r})),
        "another user's environment": tried(lambda: written({other!r})),
        "the installer": any(tried(lambda: written(path)) for path in {installer!r}),
        "the platform's root": tried(lambda: {marker!r} in os.listdir({root!r})),
        "secrets in the environment": any(mark in name for name in os.environ
                                          for mark in ("SECRET", "TOKEN", "PASSWORD", "DATABASE_URL")),
    }}
    left()
    name, info = "colours-1.0-py3-none-any.whl", "colours-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        archive.writestr("colours.py", "TRIES = " + repr(json.dumps(tries)))
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: colours\\nVersion: 1.0\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
MARK = f"left-by-a-hostile-set-up-{os.getpid()}"  # of no other run of the tests on this machine
SHADOW = "raise SystemExit('the package of the platform is shadowed')"
REPORTS = "import mlp_report, numpy\nprint(callable(mlp_report.report))"


@pytest.fixture(autouse=True)
def index(settings, tmp_path) -> Path:
    """Return a folder with packages, which is the administrator's index, and forget all environments."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


def source(folder: Path, **files: str) -> None:
    """Write a source distribution of `colours`."""
    with tarfile.open(folder / "colours-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"colours-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))


def log() -> str:
    return (storage.job_dir("alice", "fit") / "log" / "job.log").read_text()


def marked() -> list[str]:
    """Return the processes that a set-up has left."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            if f"\0{MARK}\0".encode() in words:
                found.append(entry.name)
    return found


def test_what_a_set_up_executes_reaches_nothing_and_leaves_nothing(submit, until, index, bob):
    if runners.get().confinement.isolation == "none":
        pytest.skip("runs are not isolated here")
    secret = storage.home_dir("bob") / "secret.txt"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.write_text("for bob alone")
    other = store.Environment(bob.pk, "0" * 64)
    other.tree.mkdir(parents=True)
    assert str(bob.pk) in os.listdir(store.top())
    (storage.root() / MARK).touch()
    installer = str(Path(store.__file__).with_name("program") / "install.py")
    text = BACKEND.format(
        mark=MARK, secret=str(secret), store=str(store.top()), other=str(other.tree / "x.py"), root=str(storage.root()),
        installer=["/opt/mlp-install/install.py", installer], number=str(bob.pk), marker=MARK,
    )  # fmt: skip
    source(index, **{"backend.py": text, "pyproject.toml": PROJECT, "PKG-INFO": "Name: colours\nVersion: 1.0\n"})
    until(submit("import colours; print(colours.TRIES)", requirements="colours"), "finished")
    tries = json.loads(log())
    assert {name for name, worked in tries.items() if worked} == {"control"}
    assert marked() == []
    assert not (other.tree / "x.py").exists()


def test_an_installer_that_is_killed_is_the_reason(submit, until, index):
    """As the kernel does where memory is used up."""
    text = "import os, signal\n\ndef build_wheel(*_):\n    os.kill(os.getppid(), signal.SIGKILL)\n"
    source(index, **{"backend.py": text, "pyproject.toml": PROJECT, "PKG-INFO": "Name: colours\nVersion: 1.0\n"})
    job = until(submit("import colours", requirements="colours"), "error")
    assert "SIGKILL" in str(job.reason)


def test_a_package_does_not_shadow_the_platforms_own(submit, until, index):
    wheel(index, "mlp_report", "9.9", SHADOW)
    until(submit(REPORTS, requirements="mlp_report==9.9"), "finished")
    assert log() == "True\n"


def lying(folder: Path, kind: str) -> str:
    """Put what an index says wrongly into the folder; return the requirements of the job that believes it."""
    path = wheel(folder, "colours", "1.0")
    if kind == "cut off":
        path.write_bytes(path.read_bytes()[:-40])
    elif kind == "another package":
        wheel(folder, "hues", "1.0").replace(path)
    return f"colours==1.0 --hash=sha256:{'0' * 64}" if kind == "another content" else "colours==1.0"


LIES = {
    "another content": "colours==1.0: the file does not match its checksum",
    "cut off": "colours==1.0: its file is damaged",
    "another package": "does not start with the normalized package name: colours",
}


@pytest.mark.parametrize("kind", few(list(LIES), 1))
def test_an_index_that_lies_installs_nothing(submit, until, index, kind):
    job = until(submit("import colours", requirements=lying(index, kind)), "error")
    assert "its packages could not be installed" in str(job.reason)
    assert LIES[kind] in str(job.reason)
    assert not store.Environment(job.user_id, job.packages).is_ready


LONG = "".join(f"p{number}\n" for number in range(10_000))


def test_a_file_of_ten_thousand_lines_is_refused(as_alice, home, script):
    script("print(1)")
    body = {"name": "fit", "entry": "train.py"}
    assert "at most 1000 lines" in as_alice.refused("post", "users/alice/jobs", body | {"requirements": LONG})
    (home / "requirements.txt").write_text(LONG)
    refused = as_alice.refused("post", "users/alice/jobs", body | {"find_requirements": True})
    assert "requirements.txt" in refused
    assert "at most 1000 lines" in refused
