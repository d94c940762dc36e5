"""The client's one file: reproducible, for Python 3.8 and newer, limited to the standard library, in both languages."""

from __future__ import annotations

import ast
import io
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from client.build import SOURCE, TRANSFER, build
from client.mlp_client import __version__
from client.mlp_client.chinese import TEXTS
from client.tests.running import Client
from mlp.tests.tiers import later

FILES = sorted(SOURCE.rglob("*.py"))
PLACES = re.compile(r"\{\w+\}")


def test_the_build_is_reproducible_and_has_all_files():
    first = build()
    build.cache_clear()
    assert build() == first
    names = set(zipfile.ZipFile(io.BytesIO(first)).namelist())
    assert {f"mlp_client/{path.relative_to(SOURCE)}" for path in FILES} < names
    assert {f"mlp_client/transfer/{path.name}" for path in TRANSFER.glob("*.py")} < names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_needs_the_standard_library_alone(path):
    for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 8))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_every_message_has_a_chinese_one():
    said = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "tr":
                if isinstance(node.args[0], ast.Constant):
                    said.add(node.args[0].value)
                else:
                    assert path.name == "shown.py", "messages are literals"
    assert said == set(TEXTS)
    for english, chinese in TEXTS.items():
        assert set(PLACES.findall(english)) == set(PLACES.findall(chinese)), english


@pytest.mark.parametrize("version", ["3.8", later("3.9"), later("3.10"), later("3.12"), "3.13"])
def test_it_runs_on_other_pythons(tmp_path, version):
    client = Client(tmp_path)
    kept = Path("~/.pyenv/versions").expanduser().glob(version + ".*/bin/python")
    client.python = next(map(str, kept), None) or shutil.which("python" + version)
    if not client.python:
        pytest.skip(f"no Python {version} here")
    assert client.run("--version").stdout == f"mlp-client {__version__}\n"
    assert "exit codes" in client.run("login", "--help").stdout


def test_python_finds_it_in_the_file(tmp_path):
    client = Client(tmp_path)
    words = [sys.executable, "-c", "import mlp_client; print(mlp_client.__version__)"]
    done = subprocess.run(words, env={"PYTHONPATH": str(client.program)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_messages_follow_the_language_and_the_encoding(tmp_path):
    client = Client(tmp_path, LANG="zh_CN.UTF-8")
    assert "未登录" in client.refused("whoami", code=3)
    client.environment |= {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    assert "\\u" in client.refused("whoami", code=3)
    client.environment["LC_ALL"] = "C"
    assert client.refused("whoami", code=3).startswith("not logged in")
