"""Amounts as people read them."""

from __future__ import annotations

import re

import pytest

from kernel.admin_display import measured
from kernel.units import memory, short, size


@pytest.mark.parametrize(
    ("mebi", "text"),
    [
        (128, "128 MiB"),
        (1023, "1023 MiB"),
        (1024, "1 GiB"),
        (1500, "1.5 GiB"),  # rounded, not cut off
        (2040, "2 GiB"),
        (24064, "23.5 GiB"),
        (200000, "195 GiB"),
    ],
)
def test_memory_is_rounded_to_a_tenth_of_a_gibibyte(mebi, text):
    assert memory(mebi) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.123456789, "0.1235"),
        (98.76543, "98.77"),
        (1234.5678, "1235"),
        (99999.6, "100000"),
        (123456, "123,456"),
        (-3.0, "-3"),
        (0, "0"),
        (0.00012345, "1.23e-04"),
        (1234567.8, "1.23e+06"),
        (float("nan"), "NaN"),
        (float("-inf"), "−∞"),
    ],
)
def test_a_number_has_four_digits_and_the_whole_on_hover(number, text):
    assert short(number) == text
    assert re.fullmatch(r'<span title="[^"]+">(.+)</span>', measured(number))[1] == text


def test_sizes_are_powers_of_1024_by_their_names():
    assert [size(number) for number in (512, 1024, 1536, 1023.97 * 1024, 5 << 30)] == [
        "512 B", "1 KiB", "1.5 KiB", "1 MiB", "5 GiB",
    ]  # fmt: skip
