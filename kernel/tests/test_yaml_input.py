"""YAML bodies: plain values, and refusals that name the place."""

from __future__ import annotations

import pytest

from kernel import yaml_input
from kernel.errors import Refused
from mlp.tests.tiers import few


def test_it_is_what_json_would_be():
    text = "name: fit\nlr: 1e-4\nsteps: [1, 2.5]\nwhen: 2026-01-02\nswitch: on\nflag: true\nnothing: null\n"
    assert yaml_input.read(text) == {
        "name": "fit", "lr": 1e-4, "steps": [1, 2.5], "when": "2026-01-02", "switch": "on", "flag": True,
        "nothing": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("9:30", "9:30"), ("12:34:56", "12:34:56"), ("190:20:30", "190:20:30"), ("1:02:03.5", "1:02:03.5"),
        ("1_000", "1_000"), ("0b11", "0b11"), ("010", 10), ("08", 8), ("0o10", 8), ("0x1F", 31), ("+3", 3),
        ("TRUE", True), ("yes", "yes"), ("~", None), ("NULL", None), ("1.", 1.0), (".5", 0.5), ("1e3", 1000.0),
        ("-.INF", float("-inf")), ("=", "="), ("<<", "<<"), ("2026-01-02", "2026-01-02"), ("1.5.2", "1.5.2"),
        ("!!float 3", 3.0), ("!!str 3", "3"),
    ],
)  # fmt: skip
def test_numbers_are_those_of_yaml_1_2_and_times_are_texts(written, read):
    value = yaml_input.read(f"a: {written}")["a"]
    assert (value, type(value)) == (read, type(read))


@pytest.mark.parametrize(
    ("text", "problem"),
    few(
        [
            ("a: 1\nb: [1,\n", "line 3, column 1"),
            ("a: 1\na: 2\n", "line 2, column 1: a is given twice"),
            ("b: *x\n", "line 1, column 4: aliases are not allowed"),
            ("1: a\n", "line 1, column 1: a name must be a text"),
            ("- a\n", "must be a YAML mapping"),
            ("", "must be a YAML mapping"),
            ("a: !!binary aGk=\n", "no bytes"),
            ("a: !!python/object/apply:os.getcwd []\n", "line 1, column 4"),
            ("a: */5 * * * *\n", "a text that begins with * must be in quotation marks"),
            ("a: @daily\n", "a text that begins with @ must be in quotation marks"),
            ("a: %d\n", "a text that begins with % must be in quotation marks"),
            ("a: &x\n", "a text that begins with & must be in quotation marks"),
            ("a: |x\n", "a text that begins with |"),
            ("a: b: c\n", "a text with a colon and a blank must be in quotation marks"),
            ("a:b\n", "write a blank after the colon"),
            ("a: [1,\n  2\n", "the closing ] of the list is missing"),
            ("a: 'x\n", "the quotation mark is not closed"),
            ("a:\n\t- x\n", "indent with blanks, not with tabs"),
            ("a:\n  b: 1\n c: 2\n", "line 3, column 2: the indentation does not fit the lines above"),
            ("a: !!int 9:30\n", "9:30 is not valid for !!int"),
            ("a: x\x07\n", "the character U+0007 is not allowed"),
            ("a: " + "[" * 5000, "yaml"),
            ("a: " + "9" * 5000, "is not valid YAML"),
            ("a: \x00", "is not valid YAML"),
        ],
        12,
    ),
)
def test_what_is_wrong_is_named(text, problem):
    with pytest.raises(Refused) as refusal:
        yaml_input.read(text)
    assert problem in refusal.value.msg
    assert refusal.value.field == "yaml"


FLOW = "column %s: within { } or [ ] a text with %s must be in quotation marks"


@pytest.mark.parametrize(
    ("text", "problem"),
    few(
        [
            ("a: {command: is it ready?}", FLOW % (25, "?")),
            ("a: [is it?, b]", FLOW % (10, "?")),
            ("a:\n  b: {c: what? no}", "line 2, " + FLOW % (14, "?")),
            ("a: {x?: 1}", FLOW % (6, "?")),
            ("a: {command: run ${lr}}", FLOW % (19, "{")),
            ("a: [x[0], y]", FLOW % (6, "[")),
            ("a: {b: ?}", "a text that begins with ? must be in quotation marks"),
            ("a: {b: - c}", "a text that begins with - must be in quotation marks"),
            ("a: [?]", "a text that begins with ? must be in quotation marks"),
            ("a: [1 {b: 2}]", "a comma or the closing ]"),
        ],
        6,
    ),
)
def test_what_an_object_or_list_in_a_line_cannot_have_is_named(text, problem):
    with pytest.raises(Refused) as refusal:
        yaml_input.read(text)
    assert problem in refusal.value.msg


def test_what_is_written_is_read_as_it_was():
    same = ["x"]
    data = {
        "texts": ["1e3", "0o10", "12:30", "010", "08", "=", "<<", "yes", "TRUE", "~", "", "*x", "a: b", "2026-01-02"],
        "numbers": [1, 1.0, 1e-05, 1e20, -0.0], "others": [True, None], "twice": [same, same],
    }  # fmt: skip
    assert repr(yaml_input.read(yaml_input.write(data))) == repr(data)
