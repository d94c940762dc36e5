"""Sweeps: from the POST to the best trial; pause, resume, extend, own trials, cancel, delete."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from automation.models import Sweep, Trial
from automation.sweeps import progress
from jobs import launching
from jobs import lifecycle as jobs
from jobs.models import Job, Snapshot
from mlp.tests.tiers import few, later
from resources import tcc
from resources.models import Tenant

from .conftest import begin, finish, report, report_lines

pytestmark = pytest.mark.django_db(transaction=True)


def in_use() -> float:
    tenant = Tenant.objects.get(name="default")
    assert float(tenant.cpu_inuse) == pytest.approx(float(tcc.allocated(tenant)["cpu"]))
    return float(tenant.cpu_inuse)


class TestToTheEnd:
    def test_each_trial_is_a_job_and_the_best_is_found(self, world):
        world.make(trials=4, parallel=2)
        assert [trial.number for trial in world.running()] == [0, 1]
        assert in_use() == pytest.approx(0.2)
        world.play()
        answer = world.get()
        assert (answer["state"], answer["counts"]["complete"]) == ("finished", 4)
        trials = world.get("search/trials")
        assert [trial["number"] for trial in trials] == [3, 2, 1, 0]
        best = min(trials, key=lambda trial: trial["values"][0])
        assert [each["number"] for each in answer["best"]] == [best["number"]]
        assert best["best"]
        assert in_use() == 0
        assert len({tuple(trial["params"].values()) for trial in trials}) == 4

    def test_the_script_gets_its_values_as_options(self, world):
        sweep = world.make(job={"entry": "train.py", "cpu": 0.1, "ram": 100, "args": ["--quick"]}, trials=1)
        job = Job.objects.get()
        params = Trial.objects.get().params
        assert job.args == ["--quick", f"--lr={params['lr']!r}", f"--depth={params['depth']}"]
        assert (job.name, job.title, job.group) == ("searchaaa", "search #0", "search")
        assert job.snapshot == sweep.snapshot
        values = {row.name: row.number for row in job.params.all()}
        assert values["lr"] == params["lr"]
        assert values["depth"] == params["depth"]

    def test_or_as_pairs(self, world):
        world.make(pass_as="pairs", trials=1)
        params = Trial.objects.get().params
        assert Job.objects.get().args == [f"lr={params['lr']!r}", f"depth={params['depth']}"]

    def test_or_as_environment_variables(self, world):
        world.make(pass_as="environment", trials=1, space={"LR": {"choices": [0.5, "x", True]}})
        job, params = Job.objects.get(), Trial.objects.get().params
        assert job.env["LR"] in ("0.5", "x", "true")
        assert {row.name for row in job.params.all()} == set(params)

    @pytest.mark.long
    def test_all_trials_run_the_code_of_the_beginning(self, world, home):
        world.make(parallel=1, trials=2)
        (home / "train.py").write_text("print('changed since')")
        world.play()
        assert Job.objects.values("snapshot").distinct().count() == 1

    def test_a_grid_tries_each_point_once(self, world):
        space = {"a": {"type": "int", "low": 1, "high": 2}, "b": {"choices": ["x", True]}}
        world.make(sampler="grid", space=space, trials=None, parallel=3)
        world.play(lambda params: params["a"])
        points = {tuple(trial["params"].values()) for trial in world.get("search/trials")}
        assert points == {(a, b) for a in (1, 2) for b in ("x", True)}
        assert world.get()["trials"] == 4

    @pytest.mark.long
    def test_a_condition_decides_whether_a_parameter_exists(self, world):
        space = {
            "momentum": {"type": "float", "low": 0, "high": 0.9, "when": {"optimizer": "sgd"}},
            "optimizer": {"choices": ["sgd", "adam"]},
        }
        world.make(space=space, trials=6, parallel=6)
        world.play(lambda params: params.get("momentum", 1.0))
        trials = world.get("search/trials")
        assert {trial["params"]["optimizer"] for trial in trials} == {"sgd", "adam"}
        for trial in trials:
            assert ("momentum" in trial["params"]) == (trial["params"]["optimizer"] == "sgd")

    @pytest.mark.parametrize("sampler", few(["tpe", later("random"), "cmaes", later("qmc"), later("nsga2")], 1))
    def test_every_sampler_searches(self, world, sampler):
        chosen = {"type": sampler, "seed": 3, **({"startup_trials": 3} if sampler == "tpe" else {})}
        world.make(sampler=chosen, trials=5, parallel=2)
        world.play()
        answer = world.get()
        assert answer["counts"]["complete"] == 5
        assert sum(answer["importance"]["error"].values()) == pytest.approx(1.0)

    @pytest.mark.long
    def test_several_objectives_have_a_pareto_front(self, world):
        objectives = [
            {"metric": "error", "direction": "minimize"},
            {"metric": "speed", "direction": "maximize"},
        ]
        world.make(objective=None, objectives=objectives, sampler=None, trials=3, parallel=3)
        for trial, (error, speed) in zip(world.running(), [(1, 1), (2, 5), (3, 2)], strict=True):
            begin(trial.job)
            report(trial.job, "error", error)
            report(trial.job, "speed", speed)
            finish(trial.job)
        world.poll()
        assert [each["number"] for each in world.get()["best"]] == [0, 1]

    @pytest.mark.parametrize(("statistic", "value"), [("last", 2), later("best", 1), later("min", 1), ("max", 3)])
    def test_the_statistic_says_which_value_counts(self, world, statistic, value):
        objective = {"metric": "error", "direction": "minimize", "statistic": statistic}
        world.make(trials=1, objective=objective)
        (trial,) = world.running()
        begin(trial.job)
        report(trial.job, "error", 3, 1, 2)
        finish(trial.job)
        world.poll()
        assert world.get("search/trials")[0]["values"] == [value]


class TestEnds:
    def test_a_target_ends_it(self, world):
        world.make(trials=50, parallel=1, stop={"target": 0.5})
        world.play(lambda params: 0.4)
        answer = world.get()
        assert (answer["state"], answer["counts"]["complete"]) == ("finished", 1)
        assert answer["reason"] == "the target of 0.5 is reached"

    @pytest.mark.long
    def test_so_does_patience(self, world):
        world.make(trials=50, parallel=1, stop={"patience": 3})
        world.play(lambda params: 1.0)
        answer = world.get()
        assert (answer["counts"]["complete"], answer["reason"]) == (4, "3 trials in a row were no better than the best")

    def test_time_that_is_used_up_ends_it_and_cancels_its_trials(self, world):
        sweep = world.make(trials=50, stop={"hours": 1})
        Sweep.objects.filter(pk=sweep.pk).update(used_s=3600)
        progress.advance(sweep.pk)
        world.poll()
        answer = world.get()
        assert (answer["state"], answer["reason"]) == ("finished", "the time of 1 h is used up")
        assert answer["counts"]["cancelled"] == 2
        assert {job.shown_state for job in Job.objects.all()} == {"cancelled"}
        assert in_use() == 0

    def test_gpu_hours_are_added_up(self, world):
        Tenant.objects.update(gpu=4)
        job = {"entry": "train.py", "gpu": 2, "cpu": 0.1, "ram": 100}
        sweep = world.make(job=job, parallel=1, stop={"gpu_hours": 0.5})
        (trial,) = world.running()
        begin(trial.job)
        Job.objects.update(started=timezone.now() - timedelta(minutes=20))  # 40 GPU minutes
        progress.advance(sweep.pk)
        world.poll()
        answer = world.get()
        assert (answer["state"], answer["reason"]) == ("finished", "the 0.5 GPU hours are used up")
        assert answer["gpu_hours"] == pytest.approx(2 / 3, rel=0.05)

    def test_a_metric_that_never_comes_is_named(self, world):
        world.make(stop={"failures": 2}, trials=9)
        world.play(lambda params: None)
        answer = world.get()
        assert (answer["state"], answer["counts"]["failed"]) == ("error", 2)
        assert answer["reason"] == (
            "the last 2 trials failed, the last of them: the script has ended without reporting error"
        )

    @pytest.mark.parametrize("value", few([math.nan, math.inf], 1))
    def test_a_result_that_is_no_number_is_a_failure(self, world, value):
        world.make(trials=1)
        world.play(lambda params: value)
        trial = world.get("search/trials")[0]
        assert (trial["state"], trial["values"]) == ("failed", None)
        assert trial["reason"] == f"error is {value}"

    def test_a_failing_script_is_a_failed_trial_with_its_reason(self, world):
        world.make(trials=2, parallel=1)
        (trial,) = world.running()
        begin(trial.job)
        finish(trial.job, "error")
        world.poll()
        world.play()
        answer = world.get()
        assert (answer["state"], answer["counts"]["failed"], answer["counts"]["complete"]) == ("finished", 1, 1)
        assert world.get("search/trials")[1]["reason"] == "reported by the job"

    def test_a_job_that_its_user_deletes_is_a_failed_trial(self, world):
        sweep = world.make(trials=1)
        Job.objects.all().delete()
        progress.advance(sweep.pk)
        assert world.get("search/trials")[0]["reason"] == "its job was deleted"

    def test_what_cannot_be_submitted_ends_it_with_the_reason(self, world, as_alice):
        world.make(parallel=1, trials=3)
        (trial,) = world.running()
        begin(trial.job)
        report(trial.job, "error", 1)
        finish(trial.job)
        Tenant.objects.update(cpu=0.05)
        world.poll()
        answer = world.get()
        assert answer["state"] == "error"
        assert answer["reason"].startswith("trial 1 could not be submitted: cpu:")
        Tenant.objects.update(cpu=4)
        assert as_alice.call("put", "users/alice/sweeps/search:resume").json()["state"] == "running"


class TestEarlyEnds:
    def test_a_hopeless_trial_is_ended_early(self, world):
        pruner = {"type": "median", "startup_trials": 1, "warmup_steps": 0}
        sweep = world.make(trials=2, parallel=1, pruner=pruner)
        (trial,) = world.running()
        begin(trial.job)
        report(trial.job, "error", 3, 2, 1)
        finish(trial.job)
        world.poll()
        (trial,) = world.running()
        begin(trial.job)
        report(trial.job, "error", 2.5)
        progress.advance(sweep.pk)
        assert world.running(), "it is better than the median"
        report(trial.job, "error", 9, first=1)
        progress.advance(sweep.pk)
        world.poll()
        answer = world.get()
        assert (answer["counts"]["pruned"], answer["state"]) == (1, "finished")
        pruned = world.get("search/trials")[0]
        assert (pruned["values"], pruned["reason"]) == ([9.0], "ended early at step 1")
        job = world.client.call("get", f"users/alice/jobs/{trial.job.name}").json()
        assert (job["state"], job["outcome"], job["reason"]) == ("error", "pruned", "ended early at step 1")

    def test_many_steps_are_thinned_out_alike(self, world):
        sweep = world.make(trials=1, pruner="median")
        (trial,) = world.running()
        begin(trial.job)
        report(trial.job, "error", *range(1200))
        progress.advance(sweep.pk)
        trial.refresh_from_db()
        sweep.refresh_from_db()
        assert (sweep.every, len(trial.steps), trial.steps[1]) == (4, 300, [4, 4.0])

    def test_lines_without_the_objective_are_no_steps(self, world):
        sweep = world.make(trials=1, pruner="median", objective={"metric": "accuracy", "direction": "maximize"})
        (trial,) = world.running()
        begin(trial.job)
        report_lines(trial.job, {"accuracy": 0.5, "loss": 2.0}, {"loss": 1.0}, {"accuracy": 0.75, "loss": 1.0}, {})
        progress.advance(sweep.pk)
        trial.refresh_from_db()
        assert trial.steps == [[0, 0.5], [2, 0.75]]
        finish(trial.job)
        world.poll()
        assert world.get("search/trials")[0]["values"] == [0.75]


class TestByHand:
    def test_a_pause_lets_running_trials_end(self, world, as_alice):
        world.make(parallel=2, trials=3)
        assert as_alice.call("put", "users/alice/sweeps/search:pause").json()["state"] == "paused"
        world.play()
        assert (world.get()["state"], world.get()["counts"]["complete"]) == ("paused", 2)
        as_alice.call("put", "users/alice/sweeps/search:resume")
        world.poll()
        world.play()
        assert world.get()["counts"]["complete"] == 3

    @pytest.mark.long
    def test_one_that_has_finished_is_extended(self, world, as_alice):
        world.make(trials=2)
        world.play()
        assert "extend" in as_alice.refused("put", "users/alice/sweeps/search:resume")
        extended = as_alice.call("put", "users/alice/sweeps/search:extend", {"trials": 3, "parallel": 1})
        assert (extended.json()["state"], extended.json()["trials"]) == ("running", 5)
        world.poll()
        world.play()
        assert world.get()["counts"]["complete"] == 5

    @pytest.mark.long
    def test_a_trial_of_ones_own_is_tried(self, world, as_alice):
        world.make(trials=1)
        world.play()
        added = as_alice.call("post", "users/alice/sweeps/search/trials", {"params": {"lr": 0.1}})
        assert (added.status_code, added.json()["given"]) == (201, ["lr"])
        world.poll()
        world.play()
        trial = world.get("search/trials")[0]
        assert (trial["params"]["lr"], trial["state"], trial["best"]) == (0.1, "complete", True)
        assert 1 <= trial["params"]["depth"] <= 5

    @pytest.mark.parametrize(
        ("values", "problem"),
        few(
            [
                ({"lr": 5}, "params.lr: is not in the search space"),
                ({"width": 5}, "params: there is no parameter width"),
                ({"depth": 1.5}, "params.depth: is not in the search space"),
                ([], "params: must be an object"),
            ],
            1,
        ),
    )
    def test_a_trial_outside_of_the_space_is_refused(self, world, as_alice, values, problem):
        world.make()
        assert as_alice.refused("post", "users/alice/sweeps/search/trials", {"params": values}).startswith(problem)

    def test_a_cancelled_sweep_cancels_its_trials(self, world, as_alice):
        world.make(parallel=3)
        cancelled = as_alice.call("put", "users/alice/sweeps/search:cancel").json()
        assert (cancelled["state"], cancelled["reason"], cancelled["counts"]["cancelled"]) == ("error", "cancelled", 3)
        world.poll()
        assert {job.shown_state for job in Job.objects.all()} == {"cancelled"}
        assert in_use() == 0

    @pytest.mark.parametrize("trash", [0, 1])
    def test_a_deleted_sweep_cancels_its_trials_and_is_gone(self, world, as_alice, trash):
        sweep = world.make(parallel=2)
        assert as_alice.call("delete", f"users/alice/sweeps/search?trash={trash}").json()["state"] == "deleting"
        world.poll()
        assert not Sweep.objects.filter(pk=sweep.pk).exists()
        assert in_use() == 0
        jobs_left = Job.objects.all()
        assert {job.shown_state for job in jobs_left} == {"cancelled"}
        assert all((job.trashed is not None) == bool(trash) for job in jobs_left)
        assert Snapshot.objects.exists(), "the runs have their code"
        for job in jobs_left:
            jobs.delete_job(user=job.user, name=job.name, by="test")
            launching.erase(job.pk)
        assert not Snapshot.objects.exists()

    def test_the_sweeps_of_a_deregistered_user_end(self, world, alice):
        world.make()
        accounts.deregister(username="alice", by="test")
        world.poll()
        sweep = Sweep.objects.get()
        assert (sweep.state, sweep.shown_state) == ("error", "cancelled")
        assert Trial.objects.filter(state="cancelled").count() == 2
