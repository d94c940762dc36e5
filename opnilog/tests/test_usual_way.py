"""Where a run leaves the way that earlier runs of the same program went."""

from __future__ import annotations

import pytest

from opnilog.usual_way import Departure, TooVaried, Way

USUAL = ["start", "load # rows", *["epoch # loss=#", "checkpoint #"] * 3, "save", "done"]


def run(text: str) -> list[str]:
    return text.split("|")


def test_a_run_like_the_earlier_ones_leaves_nothing():
    way = Way([USUAL] * 3)
    assert way.departure(USUAL, ended=True) is None
    longer = ["start", "load # rows", *["epoch # loss=#", "checkpoint #"] * 9, "save", "done"]
    assert way.departure(longer, ended=True) is None


def test_a_new_line_is_where_a_run_leaves_its_way():
    way = Way([USUAL] * 3)
    failed = [*USUAL[:4], "epoch # loss=nan", "Traceback"]
    assert way.departure(failed, ended=True) == Departure(at=4, before=3, usual=(0, 4))


def test_a_known_line_in_the_wrong_place_is_where_a_run_leaves_its_way():
    way = Way([USUAL] * 3)
    skipped = ["start", "epoch # loss=#", *USUAL[3:]]
    assert way.departure(skipped, ended=True) == Departure(at=1, before=0, usual=(0, 1))


def test_a_run_that_ends_early_left_its_way_there():
    way = Way([USUAL] * 3)
    assert way.departure(USUAL[:2], ended=True) == Departure(at=2, before=1, usual=(0, 2))
    assert way.departure(USUAL[:2], ended=False) is None, "it goes on"


def test_a_first_line_can_be_unusual():
    assert Way([USUAL] * 3).departure(["ImportError"], ended=True) == Departure(at=0, before=-1, usual=(0, 0))


def test_lines_whose_order_varies_among_earlier_runs_have_no_order():
    """As those of several threads: only what none of the runs has counts."""
    runs = [run("go|a|b|c|end"), run("go|b|c|a|end"), run("go|c|a|b|end"), run("go|a|c|b|end")]
    way = Way(runs)
    assert way.departure(run("go|b|a|c|end"), ended=True) is None
    assert way.departure(run("go|b|x|c|end"), ended=True) == Departure(at=2, before=1, usual=None)


def test_where_earlier_runs_have_lines_of_their_own_only_an_early_end_counts():
    own = ("the sun", "it has a moon", "one two three", "quite another thing it is")
    way = Way([run(f"go|read file|{text}|work|end") for text in own])
    assert way.departure(run("go|read file|something else altogether|work|end"), ended=True) is None
    assert way.departure(run("go|read file|work"), ended=True).at == 3


def test_variable_words_are_no_new_lines():
    runs = [run(f"go|reading {name} now|end") for name in ("alpha", "beta", "gamma", "delta", "omega", "kappa", "zeta")]
    assert Way(runs).departure(run("go|reading sigma now|end"), ended=True) is None


def test_what_is_not_known_of_a_long_log_is_no_step():
    cut = [*USUAL[:3], None, *USUAL[-2:]]
    way = Way([cut] * 3)
    assert way.departure(cut, ended=True) is None
    assert way.departure([*cut[:4], "save", "crash"], ended=True).at == 5


def test_too_many_different_lines_have_no_usual_way():
    with pytest.raises(TooVaried):
        Way([[f"{'w ' * (number % 7)}{number:x}{run}y" for number in range(3000)] for run in range(3)])


def test_two_runs_are_too_few():
    with pytest.raises(ValueError, match="too few"):
        Way([USUAL] * 2)


def test_one_earlier_run_may_be_unlike_the_others():
    """As after the program was changed."""
    way = Way([USUAL, USUAL, USUAL, run("another|program|altogether")])
    assert way.used == [0, 1, 2]
    assert way.departure([*USUAL[:2], "Traceback"], ended=True) == Departure(at=2, before=1, usual=(0, 2))
    assert Way([USUAL, USUAL, run("a|b"), run("another|program")]).knows_nothing
