"""What `make test` tries of many cases that are alike; `make test-long` tries the others."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import pytest

later = partial(pytest.param, marks=pytest.mark.long)  # a case for the long tier: one like it is tried always
EACH = [12, later(1)]  # steps in a list of pages: each twelfth is tried always
TENTH = [pytest.param(slice(None, None, 10), id="a tenth"), later(slice(None), id="all")]  # of a list


def few(cases: Iterable, kept: int, names: int = 2) -> list:
    """Return all cases, of which about `kept`, spread evenly, are tried always and the others in the long tier.

    `names` is 1 where a case is a tuple for a single name.
    """
    listed = list(cases)
    step = -(-len(listed) // kept)
    return [case if place % step == 0 else _long(case, names) for place, case in enumerate(listed)]


def _long(case, names: int):
    if isinstance(case, type(pytest.param())):
        return case._replace(marks=(*case.marks, pytest.mark.long))
    return later(*case) if isinstance(case, tuple) and names > 1 else later(case)
