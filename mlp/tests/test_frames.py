"""What gives the tests room for their calls: at no depth does a call map memory."""

from __future__ import annotations

import _thread
import resource
from queue import SimpleQueue

import pytest

from mlp.tests import frames
from mlp.tests.patience import LIMIT_S

CALLS = 300


def call(more: int) -> None:
    """Call itself so often: at some depth one of these frames begins a chunk."""
    if more:
        call(more - 1)


def faults_at(depth: int) -> int:
    """Return how many page faults a loop of calls causes so many frames below this one."""
    if depth:
        return faults_at(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        call(5)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def most_faults() -> int:
    """Return the most page faults of such a loop at any depth up to 300, in the first calls of each."""
    for depth in range(300):
        faults_at(depth)  # pages that are written for the first time
    return max(map(faults_at, range(300)))


def plainly(function):
    """Return what the function returns in a thread whose frames the interpreter keeps as it likes."""
    found = SimpleQueue()
    _thread.start_new_thread(lambda: found.put(function()), ())
    return found.get(timeout=LIMIT_S)


def test_a_loop_of_calls_maps_no_memory_at_any_depth():
    assert plainly(most_faults) >= CALLS, "each call at some depth, else this test shows nothing"
    assert frames.with_room(most_faults) < CALLS / 2


def test_what_is_called_gets_its_arguments_and_its_failure_comes_back():
    assert frames.with_room(divmod, 7, 2) == (3, 1)
    assert frames.with_room(dict, one=1) == {"one": 1}
    with pytest.raises(ZeroDivisionError):
        frames.with_room(divmod, 1, 0)
