"""Untrusted input: only ValueError is raised, and accepted values can be stored."""

from __future__ import annotations

import json

import pytest

from kernel import sanitize
from mlp.tests.tiers import few

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
def test_any_bytes_raise_value_error_at_most(read, data):
    with pytest.raises(ValueError):
        read(data)


@pytest.mark.parametrize("read", few([sanitize.read_json, sanitize.read_strict, sanitize.read_storable], 1))
@pytest.mark.parametrize("text", ["[%s0]" % ("0," * 600_000), "[%s[]]" % ("[]," * 300_000)])
def test_a_text_of_too_many_values_is_not_read(read, text):
    for data in (text, text.encode()):
        with pytest.raises(sanitize.TooManyValues, match="more than 500000 values"):
            read(data)
    assert len(read("[%s0]" % ("0," * 400_000))) == 400_001


@pytest.mark.parametrize("number", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "[-1e400]"])
def test_non_finite_numbers_are_refused(number):
    sanitize.read_json(number)
    with pytest.raises(ValueError, match="not a finite number"):
        sanitize.read_strict(number)


@pytest.mark.parametrize("value", ["\0", ["a\0"], {"\0": 1}, {"a": {"b": ["\ud800"]}}, json.loads("[" * 60 + "]" * 60)])
def test_unstorable_values_are_refused(value):
    assert sanitize.read_strict(json.dumps(value)) == value
    with pytest.raises(ValueError, match=r"stored|deeply"):
        sanitize.read_storable(json.dumps(value))


def test_valid_values_are_unchanged():
    value = {"a": [1, 2.5, "\u00e9\U0001f600", None, True], "b": {"c": []}}
    assert sanitize.read_storable(json.dumps(value).encode()) == value
    assert sanitize.text("tab\tnew\nline \U0001f600") == "tab\tnew\nline \U0001f600"
