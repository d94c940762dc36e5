"""YAML bodies: plain values, and refusals that name the place."""

from __future__ import annotations

import pytest

from kernel import yaml_input
from kernel.errors import Refused


def test_it_is_what_json_would_be():
    text = "name: fit\nlr: 1e-4\nsteps: [1, 2.5]\nwhen: 2026-01-02\nswitch: on\nflag: true\nnothing: null\n"
    assert yaml_input.read(text) == {
        "name": "fit", "lr": 1e-4, "steps": [1, 2.5], "when": "2026-01-02", "switch": "on", "flag": True,
        "nothing": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: [1,\n", "line 3, column 1"),
        ("a: 1\na: 2\n", "line 2, column 1: a is given twice"),
        ("a: &x [1]\nb: *x\n", "line 2, column 4: aliases are not allowed"),
        ("1: a\n", "line 1, column 1: a name must be a text"),
        ("- a\n", "must be a YAML mapping"),
        ("", "must be a YAML mapping"),
        ("a: !!binary aGk=\n", "no bytes"),
        ("a: !!python/object/apply:os.getcwd []\n", "line 1, column 4"),
        ("a: " + "[" * 5000, "yaml"),
        ("a: " + "9" * 5000, "is not valid YAML"),
        ("a: \x00", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(text, problem):
    with pytest.raises(Refused) as refusal:
        yaml_input.read(text)
    assert problem in refusal.value.msg
    assert refusal.value.field == "yaml"
