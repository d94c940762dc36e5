"""Settings that are addresses, as a process that starts with them reads them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings

READ = "import mlp.packages_settings as read; print(read.PIP_INDEX_URL)"
WRONG = ["index.test", "ftp://index.test", "https:///simple", "https://user:hunter2@h:0", "https://user:hunter2#x@h/"]


def read(value: str, name: str = "MLP_PIP_INDEX_URL") -> subprocess.CompletedProcess:
    environment = {**os.environ, name: value}
    command = [sys.executable, "-c", READ]
    return subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "value", ["", "https://index.test/simple", "http://user:hunter2@[::1]:8080/", "file:///srv/wheels"]
)
def test_where_packages_come_from_may_be_an_index_or_a_folder(value):
    assert read(value).stdout.strip() == value


@pytest.mark.parametrize(
    ("name", "value"),
    [("MLP_PIP_INDEX_URL", value) for value in (*WRONG, "file://")]
    + [("MLP_PIP_EXTRA_INDEX_URL", f"https://one.test,{value}") for value in WRONG[-2:]],
)
def test_what_is_no_address_is_refused_without_its_password(name, value):
    done = read(value, name)
    assert done.returncode != 0
    assert f"{name} must be like https://host:port" in done.stderr
    assert "hunter2" not in done.stderr
