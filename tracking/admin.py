"""What administrators see of tracking."""

from __future__ import annotations

from .evaluations import admin as evaluation_admin  # noqa: F401 (registers evaluation datasets and scorers)
from .runs import admin  # noqa: F401 (registers projects and saved views)
from .traces import admin as trace_admin  # noqa: F401 (registers traces)
