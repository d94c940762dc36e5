"""What a shell offers while a command is typed; bash is asked as it asks."""

from __future__ import annotations

import subprocess

import pytest

from client.mlp_client import completion
from client.mlp_client.cli import parser
from client.mlp_client.completion import fitting
from client.tests.running import Client


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Two jobs and a sweep exist."""
    there = {"jobs": ["fit", "other"], "sweeps": ["rates"]}
    monkeypatch.setattr(completion, "_names", lambda kind: there.get(kind, []))


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["log"], ["login", "logout", "logs"]),
        (["logs", ""], ["fit", "other"]),
        (["logs", "fit", ""], []),
        (["logs", "-f", "f"], ["fit"]),
        (["cancel", "fit", "o"], ["other"]),
        (["ps", "--state", "r"], ["running"]),
        (["ps", "--sta"], ["--state"]),
        (["ps", "-n", ""], []),
        (["sweep", "e"], ["extend"]),
        (["sweep", "show", ""], ["rates"]),
        (["sweep", "show", "--foll"], ["--follow"]),
        (["completion", ""], ["bash", "zsh"]),
        (["run", "train.py", "--", "--l"], []),
        (["nothing", ""], []),
    ],
)
def test_what_fits_is_offered(words, offered):
    assert fitting(parser(), words, len(words) - 1) == offered


def test_bash_completes_commands(tmp_path):
    client = Client(tmp_path)
    script = client.run("completion", "bash").stdout
    (tmp_path / "script").write_text(f"{script}\nCOMP_WORDS=(mlp pipeline sh)\nCOMP_CWORD=2\n_mlp\n"
                                     'printf "%s\\n" "${COMPREPLY[@]}"\n')  # fmt: skip
    command = ["bash", "--norc", str(tmp_path / "script")]
    done = subprocess.run(command, env=client.environment, capture_output=True, text=True, check=True)
    assert done.stdout == "show\n"


def test_without_a_login_no_names_are_offered_and_nothing_fails(tmp_path):
    assert Client(tmp_path).run("completion", "words", "2", "--", "mlp", "logs", "").stdout == ""
