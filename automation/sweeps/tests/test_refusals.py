"""Sweeps that cannot be: each refusal names the place of what is wrong, and nothing is stored."""

from __future__ import annotations

import pytest

from automation.models import Sweep, Trial
from jobs.models import Snapshot
from mlp.tests.tiers import few

from .conftest import body

pytestmark = pytest.mark.django_db(transaction=True)


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "problem"),
        few(
            [
                ({"name": "Search"}, "name:"),
                ({"job": {"cpu": 1}}, "job: entry:"),
                ({"job": {"entry": "none.py"}}, "job.entry:"),
                ({"job": {"entry": "train.py", "name": "x"}}, "job: name: unknown field"),
                ({"job": {"entry": "train.py", "cpu": 10}}, "job.cpu:"),
                ({"job": {"entry": "train.py", "datasets": ["none"]}}, "job.datasets:"),
                ({"space": {}}, "space:"),
                ({"space": {"lr": {"type": "float", "low": 2, "high": 1}}}, "space.lr: low is 2.0"),
                (
                    {"space": {"lr": {"type": "float", "low": 0, "high": 1, "log": True}}},
                    "space.lr.low: must be above 0",
                ),
                ({"space": {"lr": {"type": "int", "low": 0.5, "high": 1}}}, "space.lr.low: must be a whole number"),
                ({"space": {"lr": {"type": "float", "low": 0}}}, "space.lr.high: must be a number"),
                ({"space": {"lr": {"type": "normal"}}}, "space.lr.type:"),
                ({"space": {"lr": {"choices": []}}}, "space.lr.choices:"),
                ({"space": {"lr": {"choices": [1, 1]}}}, "space.lr.choices: 1 is there twice"),
                ({"space": {"lr": {"choices": [None]}}}, "space.lr.choices:"),
                ({"space": {"l r": {"choices": [1]}}}, "space.l r:"),
                ({"space": {"a": {"choices": [1], "when": {"b": 2}}}}, "space.a.when: there is no other parameter b"),
                (
                    {"space": {"a": {"choices": [1], "when": {"b": 2}}, "b": {"choices": [1]}}},
                    "space.a.when: b is never 2",
                ),
                (
                    {"space": {"a": {"choices": [1], "when": {"b": 1}}, "b": {"choices": [1], "when": {"a": 1}}}},
                    "space: the conditions are a circle:",
                ),
                ({"objective": None}, "objective:"),
                ({"objective": {"metric": "epoch", "direction": "minimize"}}, "objective: metric:"),
                ({"objective": {"metric": "error", "direction": "down"}}, "objective: direction:"),
                ({"sampler": "annealing"}, "sampler.type: must be one of tpe, random, grid"),
                ({"sampler": {"type": "tpe", "seed": -1}}, "sampler.seed: must be 0 to"),
                ({"sampler": "grid"}, "space.lr: the sampler grid requires a step or choices"),
                ({"pruner": {"type": "median", "x": 1}}, "pruner.x: unknown field"),
                ({"pruner": "threshold"}, "pruner: a threshold requires"),
                ({"trials": 0}, "trials:"),
                ({"parallel": 1000}, "parallel:"),
                ({"stop": {"patience": 0}}, "stop: patience:"),
                ({"pass_as": "environment", "space": {"a-b": {"choices": [1]}}}, "space.a-b:"),
            ],
            12,
        ),
    )
    def test_what_is_wrong_is_named(self, world, as_alice, fields, problem):
        assert as_alice.refused("post", "users/alice/sweeps", body(**fields)).startswith(problem)
        assert not Sweep.objects.exists()
        assert not Snapshot.objects.exists()

    def test_one_objective_is_not_several(self, world, as_alice):
        several = [{"metric": name, "direction": "minimize"} for name in ("error", "loss")]
        for fields, problem in (
            ({"pruner": "median"}, "pruner:"),
            ({"sampler": "cmaes"}, "sampler:"),
            ({"stop": {"target": 1}}, "stop.target:"),
        ):
            refusal = as_alice.refused("post", "users/alice/sweeps", body(objective=None, objectives=several, **fields))
            assert refusal.startswith(problem)

    def test_names_are_unique(self, world, as_alice):
        world.make()
        assert as_alice.refused("post", "users/alice/sweeps", body()).startswith("name: you already have a sweep")

    def test_a_taken_job_name_is_avoided(self, world, as_alice):
        as_alice.call("post", "users/alice/jobs", {"name": "searchaaa", "entry": "train.py", "cpu": 0.1, "ram": 100})
        world.make(trials=1)
        assert Trial.objects.get().job.name == "searchaaax"

    def test_yaml_is_read(self, world, as_alice):
        text = """
            name: search
            job: {entry: train.py, cpu: 0.1, ram: 100}
            space:
              lr: {type: float, low: 1e-5, high: 0.1, log: true}
              optimizer: {choices: [sgd, adam]}
            objective: {metric: val loss, direction: minimize}
            trials: 1
        """
        path, token = "/api/v1/users/alice/sweeps", {"HTTP_AUTHORIZATION": f"Bearer {as_alice.token}"}
        response = as_alice.post(path, text, content_type="application/yaml", **token)
        assert response.status_code == 201, response.content
        assert response.json()["space"]["lr"]["low"] == 1e-5
        broken = as_alice.post(path, "name: [", content_type="application/yaml", **token)
        assert broken.json()["msg"].startswith("body: line 1, column 8")

    def test_others_see_nothing(self, world, as_bob):
        world.make()
        as_bob.refused("get", "users/alice/sweeps/search")
        as_bob.refused("get", "users/alice/sweeps")
        as_bob.refused("put", "users/alice/sweeps/search:cancel")
        as_bob.refused("post", "users/alice/sweeps/search/trials", {"params": {}})
        assert Sweep.objects.get().state == "running"
