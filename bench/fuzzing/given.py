"""Random values by hypothesis, a bounded number of them, the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
    max_leaves=20,
)


def each(strategy: st.SearchStrategy, count: int, seed: int, work: Callable[[object], None]) -> None:
    """Call `work` with `count` values of the strategy."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @hypothesis.given(strategy)
    def probe(value):
        work(value)

    probe()
