"""Amounts as people read them."""

from __future__ import annotations

import pytest

from kernel.units import memory


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
