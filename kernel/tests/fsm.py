"""Checks all (state, verb) pairs of a life cycle against the diagram in its model's docstring."""

from __future__ import annotations

import pytest
from django_fsm import can_proceed


def pairs(states: list[str], verbs: list[str], table: dict[tuple[str, str], str]) -> list:
    """Return pytest parameters (state, verb, target or None) for all pairs."""
    return [
        pytest.param(state, verb, table.get((state, verb)), id=f"{state}-{verb}") for state in states for verb in verbs
    ]


def check(instance, state: str, verb: str, target: str | None) -> None:
    """Assert that the verb moves an instance in `state` to `target`, or is not allowed when `target` is None."""
    type(instance)._meta.get_field("state").protected = False
    try:
        instance.state = state
    finally:
        type(instance)._meta.get_field("state").protected = True
    assert can_proceed(getattr(instance, verb)) is (target is not None)
    if target is not None:
        getattr(instance, verb)(by="test")
        assert instance.state == target
