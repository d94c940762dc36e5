"""Uploads in a real browser through the real servers: in parts, and resumed after a reload."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.test import Client

from datasets.models import Dataset
from mlp.tests import chromium

SCRIPT = Path(__file__).with_name("browser_upload.py")
MIB = 1 << 20


@pytest.fixture
def roomy(service):
    """The servers with room for large files in the homes."""
    service.stop_web()
    service.home_limit = 100 * MIB
    service.start_web()
    yield service
    service.stop_web()
    del service.home_limit


def driven(alice, service, *given: str) -> dict:
    """Run the browser as alice, and return what it prints."""
    client = Client()
    client.force_login(alice)
    command = [sys.executable, str(SCRIPT), chromium.program(), service.url, client.cookies["sessionid"].value, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def in_parts(ranges: dict, total: int) -> None:
    """Assert that the first part was sent before the reload, and only the others after it."""
    assert ranges["before"] == [f"bytes 0-{16 * MIB - 1}/{total}"]
    assert list(dict.fromkeys(ranges["after"])) == [  # one that broke off may be tried again
        f"bytes {16 * MIB}-{32 * MIB - 1}/{total}",
        f"bytes {32 * MIB}-{total - 1}/{total}",
    ]


@pytest.mark.long
@pytest.mark.skipif(chromium.program() is None and "CI" not in os.environ, reason=chromium.MISSING)
def test_a_folder_upload_is_resumed_after_a_reload(alice_data, service, alice, tmp_path):
    from_here = tmp_path / "digits"
    (from_here / "sub").mkdir(parents=True)
    (from_here / "large.bin").write_bytes(os.urandom(40 * MIB))
    (from_here / "sub" / "ü (1)!.txt").write_text("small")
    (from_here / "table.csv").write_text("a,b\n1,2\n")
    (from_here / "sub" / ".DS_Store").write_text("left by a desktop")
    ranges = driven(alice, service, str(from_here), os.environ.get("MLP_PICTURES", ""))
    total = 40 * MIB
    in_parts(ranges, total)
    row = Dataset.objects.get(name=ranges["name"])
    assert (row.name, row.state, row.stored) == ("digits", "ready", total + 5 + 8)
    assert not service.path("alice", "digits", "sub/.DS_Store").exists()
    (from_here / "sub" / ".DS_Store").unlink()
    for path in from_here.rglob("*.*"):
        assert service.path("alice", "digits", str(path.relative_to(from_here))).read_bytes() == path.read_bytes()


@pytest.mark.long
@pytest.mark.skipif(chromium.program() is None and "CI" not in os.environ, reason=chromium.MISSING)
def test_the_upload_of_a_models_file_is_resumed_after_a_reload(alice_data, roomy, alice, tmp_path):
    file = tmp_path / "large.bin"
    file.write_bytes(os.urandom(40 * MIB))
    ranges = driven(alice, roomy, str(file), "model")
    in_parts(ranges, 40 * MIB)
    assert ranges["source"] == "home/models/large/large.bin"
    assert roomy.path("alice", ".home", "models/large/large.bin").read_bytes() == file.read_bytes()


@pytest.mark.long
@pytest.mark.skipif(chromium.program() is None and "CI" not in os.environ, reason=chromium.MISSING)
def test_a_folder_of_scripts_is_uploaded_and_what_exists_is_kept_until_told(alice_data, service, alice, tmp_path):
    folder = tmp_path / "resnet"
    for path in ("train.py", "lib/ü (1).py", "lib/__pycache__/net.pyc", ".git/HEAD"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"new {path}")
    there = service.path("alice", ".home", "work/resnet/train.py")
    there.parent.mkdir(parents=True)
    there.write_text("old")
    seen = driven(alice, service, str(folder), "scripts")
    assert "2 · " in seen["chosen"]
    assert seen["chosen"].endswith(" 2")  # of what tools make, nothing is sent
    assert seen["state"] == "Uploaded files: 1 / 2"
    assert seen["error"].strip() == "work/resnet/train.py: a file of that name already exists"
    assert [url.rpartition("/")[2] for url in seen["again"]] == ["train.py"]
    kept = {str(path.relative_to(there.parent)): path.read_text() for path in there.parent.rglob("*.*")}
    assert kept == {path: f"new {path}" for path in ("train.py", "lib/ü (1).py")}
