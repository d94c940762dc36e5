"""Untrusted input: only ValueError is raised, and accepted values can be stored."""

from __future__ import annotations

import json

import pytest

from kernel import sanitize

BROKEN = {
    "lists": b"[" * 200_000,
    "objects": b'{"a":' * 100_000,
    "number": b"1" * 5000,
    "half": b"{",
    "none": b"",
    "no text": b"\xff",
}


@pytest.mark.parametrize("read", [sanitize.read_json, sanitize.read_strict, sanitize.read_storable])
@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_nothing_but_a_value_error_comes_of_bytes(read, data):
    with pytest.raises(ValueError):
        read(data)


@pytest.mark.parametrize("number", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "[-1e400]"])
def test_only_finite_numbers_are_strict(number):
    sanitize.read_json(number)
    with pytest.raises(ValueError, match="not a finite number"):
        sanitize.read_strict(number)


@pytest.mark.parametrize("value", ["\0", ["a\0"], {"\0": 1}, {"a": {"b": ["\ud800"]}}, json.loads("[" * 60 + "]" * 60)])
def test_what_the_database_would_refuse_is_refused_before(value):
    assert sanitize.read_strict(json.dumps(value)) == value
    with pytest.raises(ValueError, match=r"stored|deeply"):
        sanitize.read_storable(json.dumps(value))


def test_what_is_good_comes_through_as_it_is():
    value = {"a": [1, 2.5, "\u00e9\U0001f600", None, True], "b": {"c": []}}
    assert sanitize.read_storable(json.dumps(value).encode()) == value
    assert sanitize.text("tab\tnew\nline \U0001f600") == "tab\tnew\nline \U0001f600"
