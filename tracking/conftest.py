"""The fixtures of jobs: what is tracked is what they report."""

from __future__ import annotations

from jobs.conftest import no_run_left, script, submit, until  # noqa: F401
