"""Latencies as counts in intervals, so that any number of them can be kept and added: {"37": 12, …}.

Interval n is from GROWTH**n to GROWTH**(n + 1) ms, so a percentile is at most 5 % off.
"""

from __future__ import annotations

import math

GROWTH = 1.1
FIRST, LAST = -73, 145  # 0.001 ms, and a quarter of an hour


def add(counts: dict[str, int], ms: float) -> None:
    """Count a latency."""
    number = math.floor(math.log(ms, GROWTH)) if ms > 0 else FIRST
    key = str(min(max(number, FIRST), LAST))
    counts[key] = counts.get(key, 0) + 1


def percentile(counts: dict[str, int], share: float) -> float | None:
    """Return the latency in ms within which a share of them was, 0 to 1; None without any."""
    left = math.ceil(share * sum(counts.values()))
    if not left:
        return None
    for number in sorted(map(int, counts)):
        left -= counts[str(number)]
        if left <= 0:
            return GROWTH ** (number + 0.5)
    return None
