"""Every process of a platform and of its runs is killed while a job's packages are installed and a client follows the
job: once the platform is back the client goes on by itself, and the job has its packages, whole.
"""

from __future__ import annotations

import contextlib
import io
import os
import tarfile
import time
from pathlib import Path

import pytest

from client.tests.platform_user import joined
from client.tests.test_client_ignoring import write
from mlp.tests.patience import LIMIT_S
from supervision.tests.running import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.long]

# A back end that waits before it has built the package, until the test lets it go on.
BACKEND = """
import os, time, zipfile

def build_wheel(folder, settings=None, metadata=None):
    print("building", flush=True)
    while not any(map(os.path.exists, {gates!r})):
        time.sleep(0.05)
    name, info = "colours-1.0-py3-none-any.whl", "colours-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        archive.writestr("colours.py", "WHOLE = True")
        archive.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: colours\\nVersion: 1.0\\n")
        archive.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        archive.writestr(info + "/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def index(tmp_path) -> Path:
    """Return a folder, seen by installations, with a package that waits for the file `open` in it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    gates = ["/opt/wheels/open", str(folder / "open")]  # an installation sees the folder in one of two places
    files = {"backend.py": BACKEND.format(gates=gates), "pyproject.toml": PROJECT, "PKG-INFO": "Name: colours\n"}
    with tarfile.open(folder / "colours-1.0.tar.gz", "w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"colours-1.0/{name}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return folder


@pytest.fixture
def platform(index, tmp_path):
    platform = Platform(tmp_path / "root", MLP_PIP_INDEX_URL=index.as_uri())
    platform.start()
    yield platform
    platform.stop()
    platform.kill(*platform.everything())


def building(platform: Platform) -> list[int]:
    """Return the processes of the installation that has begun, once its back end runs."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        installs = [pid for pid in pids() if b"\0install\0" in said(pid) and b"/wanted.txt" in said(pid)]
        own = set(platform.everything())
        found = [pid for pid in installs if own & set(ancestors(pid))]  # and none of another test's
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("no installation")


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def ancestors(pid: int) -> list[int]:
    """Return the parent of a process, its parent and so on."""
    found = []
    with contextlib.suppress(OSError):  # it has ended
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rsplit(b")", 1)[1].split()[1])
            found.append(pid)
    return found


def said(pid: int) -> bytes:
    """Return the command line of a process; nothing of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_the_client_goes_on_and_nothing_half_built_is_used(platform, index, tmp_path):
    client, _name, _headers = joined(platform, tmp_path)
    write(client.here, {"train.py": "import colours\nprint('whole', colours.WHOLE)", "requirements.txt": "colours\n"})
    process = client.start("--patience", LIMIT_S, "run", "train.py", "--cpu", "0.1")
    installs = building(platform)
    platform.kill(platform.process.pid, *platform.everything(), *installs)
    platform.process.wait(LIMIT_S)
    os.close(os.open(index / "open", os.O_CREAT))
    platform.start()
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, b"whole True\n"), err
