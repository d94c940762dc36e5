"""What `make test` tries of many cases that are alike; `make test-long` tries the others."""

from __future__ import annotations

from functools import partial

import pytest

later = partial(pytest.param, marks=pytest.mark.long)  # a case for the long tier: one like it is tried always
EACH = [3, later(1)]  # steps in a list of pages: each third is tried always
