"""The values that a sweep tries: as their user wrote them, each as its own, none outside of its range."""

from __future__ import annotations

import json

import pytest

from automation.models import Sweep, Trial
from automation.sweeps import engine
from jobs.models import Job
from mlp.tests.tiers import few

from .conftest import body

pytestmark = pytest.mark.django_db(transaction=True)


def tried(world, **fields) -> list[list[str]]:
    """Play a sweep to its end; return what each script was given."""
    world.make(**fields)
    world.play(lambda params: 1.0)
    assert world.get()["state"] == "finished"
    return sorted(Job.objects.values_list("args", flat=True))


@pytest.mark.parametrize(
    ("low", "high", "step", "values"),
    few(
        [
            (0, 0.3, 0.1, ["0.0", "0.1", "0.2", "0.3"]),
            (0.1, 0.7, 0.2, ["0.1", "0.3", "0.5", "0.7"]),
            (-0.3, 0.3, 0.3, ["-0.3", "0.0", "0.3"]),
            (1e-05, 3e-05, 1e-05, ["1e-05", "2e-05", "3e-05"]),
            (0, 0.35, 0.1, ["0.0", "0.1", "0.2", "0.3"]),
        ],
        1,
    ),
)
def test_the_steps_of_a_grid_are_decimal(world, low, high, step, values):
    space = {"x": {"type": "float", "low": low, "high": high, "step": step}}
    assert tried(world, sampler="grid", space=space, trials=None) == sorted([f"--x={value}"] for value in values)


@pytest.mark.parametrize("sampler", few(["tpe", "qmc"], 1))
def test_steps_that_are_suggested_are_decimal(world, sampler):
    space = {"x": {"type": "float", "low": 0, "high": 0.9, "step": 0.1}, "n": {"choices": [1]}}
    given = tried(world, sampler={"type": sampler, "seed": 1}, space=space, trials=12, parallel=4)
    assert {args[0] for args in given} <= {f"--x=0.{digit}" for digit in range(10)}


def test_a_value_that_an_earlier_release_stored_beside_its_step_ends_no_sweep(world):
    space = {"x": {"type": "float", "low": 0, "high": 0.3, "step": 0.1}}
    world.make(sampler="grid", space=space, trials=None, parallel=1)
    Trial.objects.filter(number=0).update(params={"x": 0.30000000000000004})
    world.play(lambda params: 1.0)
    assert (world.get()["state"], world.get()["counts"]["complete"]) == ("finished", 4)


@pytest.mark.long
def test_choices_are_told_apart_by_their_type(world):
    space = {"depth": {"choices": [1, 1.0, "sqrt", True]}, "warm": {"choices": [0, False]}}
    given = tried(world, sampler="grid", space=space, trials=None, parallel=8)
    depths, warm = ("1", "1.0", "sqrt", "true"), ("0", "false")
    assert given == sorted([f"--depth={depth}", f"--warm={each}"] for depth in depths for each in warm)


@pytest.mark.long
def test_a_choice_given_by_hand_is_the_one_that_is_run(world, as_alice):
    world.make(space={"d": {"choices": [1, True, 1.0]}}, trials=1, parallel=3)
    for value in (True, 1.0):
        assert as_alice.call("post", "users/alice/sweeps/search/trials", {"params": {"d": value}}).status_code == 201
    world.play(lambda params: 1.0)
    assert list(Job.objects.order_by("pk").values_list("args", flat=True))[1:] == [["--d=true"], ["--d=1.0"]]


def test_a_condition_tells_choices_apart(world):
    space = {"d": {"choices": [0, False]}, "e": {"choices": ["x"], "when": {"d": False}}}
    assert tried(world, space=space, trials=10, parallel=5, sampler={"type": "random", "seed": 2}).count(
        ["--d=false", "--e=x"]
    ) == sum(args[0] == "--d=false" for args in Job.objects.values_list("args", flat=True))
    assert {tuple(args) for args in Job.objects.values_list("args", flat=True)} == {("--d=0",), ("--d=false", "--e=x")}


@pytest.mark.parametrize("value", [".nan", "-.inf", "1" + 400 * "0"])
@pytest.mark.parametrize("place", ["choices", "low", "step"])
def test_a_value_that_is_not_finite_is_refused(world, as_alice, place, value):
    ranged = {"type": "float", "low": 0, "high": 1, place: "HERE"}
    space = {"x": {"choices": ["HERE"]} if place == "choices" else ranged}
    text = json.dumps(body(space=space)).replace('"HERE"', value)
    token = {"HTTP_AUTHORIZATION": f"Bearer {as_alice.token}"}
    response = as_alice.post("/api/v1/users/alice/sweeps", text, content_type="application/yaml", **token)
    assert (response.status_code, response.json()["msg"][:7]) == (403, "space.x")
    assert not Sweep.objects.exists()


def test_a_search_that_cannot_go_on_ends_with_the_reason(world, monkeypatch):
    world.make(trials=4, parallel=1)

    def broken(self, *_given):
        raise ValueError("no such distribution")

    monkeypatch.setattr(engine.Search, "_frozen", broken)
    world.play(lambda params: 1.0)
    answer = world.get()
    assert (answer["state"], answer["reason"]) == ("error", "the search failed: ValueError: no such distribution")
    assert answer["counts"]["complete"] == 1
