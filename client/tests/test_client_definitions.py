"""What of a definition's text is changed: where its scripts are, and its name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from client.mlp_client import sending
from client.mlp_client.definitions import Definition
from client.mlp_client.transfer.errors import Failure
from client.tests.test_client_ignoring import write


@pytest.fixture
def sent(tmp_path, monkeypatch):
    """Return a function: the text that is sent for a definition beside `train.py` and `src/fit it.py`."""
    write(tmp_path, {"train.py": "", "src/fit it.py": "", "other.txt": ""})

    def send(_rest, checkout, _quiet, _say):
        return SimpleNamespace(places=[f"there/{entry}" for entry in checkout.entries])

    monkeypatch.setattr(sending, "send", send)

    def text(given: str, name: str = "") -> str:
        (tmp_path / "it.yaml").write_text(given)
        definition = Definition(str(tmp_path / "it.yaml"), name)
        definition.send(None, SimpleNamespace(root=str(tmp_path), quiet=True), lambda line: None)
        return definition.text

    return text


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("job: {entry: train.py, cpu: 1}", 'job: {entry: "there/train.py", cpu: 1}'),
        ("job: {cpu: 1,entry:   train.py}", 'job: {cpu: 1,entry:   "there/train.py"}'),
        ("job:\n  entry: train.py  # it\n  cpu: 1", 'job:\n  entry: "there/train.py"  # it\n  cpu: 1'),
        ("- entry: 'src/fit it.py'\n", '- entry: "there/src/fit it.py"\n'),
        ("entry: src/fit it.py\nargs: []", 'entry: "there/src/fit it.py"\nargs: []'),
        ('{"entry": "train.py", "x": 1}', '{"entry": "there/train.py", "x": 1}'),
        ('"entry": "tr\\u0061in.py"', '"entry": "there/train.py"'),
        ("entry: stored.py\nreentry: train.py", "entry: stored.py\nreentry: train.py"),
        ("args: [--entry, train.py]\nnotes: entry of train.py", "args: [--entry, train.py]\nnotes: entry of train.py"),
        ("entry: train.py#2", "entry: train.py#2"),
    ],
)
def test_only_entries_that_are_files_here_are_named_anew(sent, given, expected):
    assert sent(given) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("name: old  # mine\njob: {name: x}", "name: new  # mine\njob: {name: x}"),
        ('name: "old"\n', "name: new\n"),
        ("job: {entry: a}\n", "name: new\njob: {entry: a}\n"),
        ('{"job": {"name": "x"}}', '{"job": {"name": "x"}, "name": "new"}'),
    ],
)
def test_a_name_takes_the_place_of_the_files(sent, given, expected):
    assert sent(given, "new") == expected


def test_a_name_in_yaml_with_braces_is_refused(sent):
    with pytest.raises(Failure, match="without braces"):
        sent("{job: {entry: a}}", "new")
