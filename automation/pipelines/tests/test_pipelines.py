"""Pipelines: the graph in order, inputs, conditions, approvals, what is not run again; failures, cancel, delete."""

from __future__ import annotations

import json

import pytest

import runners
from accounts import lifecycle as accounts
from accounts.models import Notice
from automation.models import Pipeline, PipelineRun, Step
from automation.pipelines import drawing, progress
from automation.sweeps.tests.conftest import report
from jobs.models import Job, RunParam, Snapshot
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.tiers import few, later
from resources import tcc
from resources.models import Tenant

from .conftest import JOB

pytestmark = pytest.mark.django_db(transaction=True)

RUN = "users/alice/pipelines/flow/runs"


def in_use() -> float:
    tenant = Tenant.objects.get(name="default")
    assert float(tenant.cpu_inuse) == pytest.approx(float(tcc.allocated(tenant)["cpu"]))
    return float(tenant.cpu_inuse)


class TestOrder:
    def test_a_step_begins_when_all_before_it_are_complete(self, world):
        world.make({"d": {"needs": ["b", "c"]}, "b": {"needs": ["a"]}, "c": {"needs": ["a"]}, "a": {}})
        run = world.run()
        assert world.running() == ["a"]
        world.end("a")
        assert world.running() == ["b", "c"]
        world.end("c")
        assert world.running() == ["b"]
        assert world.play() == ["b", "d"]
        run.refresh_from_db()
        assert (run.state, set(world.states().values())) == ("finished", {"complete"})
        assert in_use() == 0
        assert Job.objects.count() == 4

    def test_outputs_are_inputs_of_the_next(self, world):
        world.make({"a": {}, "b": {"inputs": {"DATA": "a/data", "ALL": "a"}}})
        world.run()

        def write(job):
            (storage.job_dir("alice", job.name) / "data").mkdir()

        first = world.end("a", act=write)
        second = Step.objects.get(name="b").job
        assert second.job_inputs == {"DATA": f"{first.name}/data", "ALL": first.name}

    def test_an_output_that_is_not_there_fails_the_step_with_the_place(self, world):
        world.make({"a": {}, "b": {"inputs": {"DATA": "a/none"}}})
        run = world.run()
        world.end("a")
        run.refresh_from_db()
        assert run.state == "error"
        assert "b failed: inputs.DATA: the job has no output" in run.reason

    def test_parameters_are_filled_in(self, world):
        step = {"args": ["--epochs", "${epochs}", "--all=${full}"], "env": {"E": "${epochs}x"}}
        world.make({"a": step}, params={"epochs": 3, "full": False})
        world.run(params={"epochs": 5})
        job = Job.objects.get()
        assert (job.args, job.env) == (["--epochs", "5", "--all=false"], {"E": "5x"})

    @pytest.mark.long
    @pytest.mark.parametrize("count", [4, later(100)])
    def test_a_chain_of_many_steps(self, world, count):
        steps = {f"s{number}": {"needs": [f"s{number - 1}"] if number else []} for number in range(count)}
        world.make(steps)
        run = world.run()
        assert world.play() == list(steps)
        run.refresh_from_db()
        assert run.state == "finished"

    def test_two_who_look_at_the_same_time_begin_a_step_once(self, world):
        world.make({"a": {}})
        run = world.run()
        for _ in range(3):
            progress.advance(run.pk)
        assert Job.objects.count() == 1


class TestConditions:
    @pytest.mark.parametrize(("accuracy", "state"), [(0.95, "complete"), (0.5, "skipped")])
    def test_a_step_depends_on_a_metric(self, world, accuracy, state):
        world.make({"a": {}, "b": {"when": {"a": "score > 0.9"}}, "c": {"needs": ["b"]}})
        run = world.run()
        world.end("a", act=lambda job: report(job, "score", accuracy))
        world.play()
        assert (world.states()["b"], world.states()["c"]) == (state, state)
        run.refresh_from_db()
        assert run.state == "finished"

    def test_a_metric_of_the_step_is_an_argument_of_another(self, world):
        world.make({"a": {}, "b": {"when": {"a": "score > 0.9"}}, "c": {}})
        world.run()
        world.end("c", act=lambda job: RunParam.objects.create(job=job, user=job.user, name="score", text="f"))
        world.end("a", act=lambda job: report(job, "score", 0.95))
        assert world.running() == ["b"]

    def test_the_condition_waits_for_the_last_reports(self, world, monkeypatch):
        world.make({"a": {}, "b": {"when": {"a": "score > 0.9"}}})
        run = world.run()
        monkeypatch.setattr("tracking.metrics.recording.all_recorded", lambda job: False)
        job = world.end("a")
        assert world.running() == ["a"]
        Job.objects.filter(pk=job.pk).update(state="running", metrics_until=None)
        job.refresh_from_db()
        report(job, "score", 0.95)
        Job.objects.filter(pk=job.pk).update(state="finished")
        monkeypatch.setattr("tracking.metrics.recording.all_recorded", lambda job: True)
        progress.advance(run.pk)
        assert world.running() == ["b"]

    def test_a_metric_that_never_came_fails_it_and_is_named(self, world):
        world.make({"a": {}, "b": {"when": {"a": "score > 0.9"}}})
        run = world.run()
        world.end("a")
        run.refresh_from_db()
        assert run.state == "error"
        assert "score" in run.reason


class TestApproval:
    def begin(self, world) -> PipelineRun:
        world.make({"a": {}, "good": {"needs": ["a"], "approve": "Is it good?"}, "b": {"needs": ["good"]}})
        run = world.run()
        world.end("a")
        assert world.states() == {"a": "complete", "good": "approval", "b": "waiting"}
        assert Notice.objects.get(event="approval").reason == "Is it good?"
        return run

    def test_it_goes_on_once_it_is_approved(self, world, as_alice):
        self.begin(world)
        approved = as_alice.call("put", f"{RUN}/1/steps/good:approve").json()
        assert next(step for step in approved["steps"] if step["name"] == "good")["by"] == "alice"
        world.poll()
        assert world.running() == ["b"]
        assert "does not wait" in as_alice.refused("put", f"{RUN}/1/steps/good:approve")

    @pytest.mark.long
    def test_it_fails_when_it_is_rejected(self, world, as_alice):
        run = self.begin(world)
        as_alice.call("put", f"{RUN}/1/steps/good:reject")
        world.poll()
        run.refresh_from_db()
        assert (run.state, world.states()["b"]) == ("error", "skipped")
        assert run.reason == "good failed: rejected by alice"


class TestUnchanged:
    def test_what_has_not_changed_is_not_run_again_and_says_so(self, world, as_alice):
        world.make({"a": {"args": ["1"]}, "b": {"inputs": {"DATA": "a"}, "args": ["${x}"]}}, params={"x": "1"})
        world.run()
        world.play()
        world.run()
        assert world.states(2) == {"a": "cached", "b": "cached"}
        step = as_alice.call("get", f"{RUN}/2").json()["steps"][0]
        assert step["reason"].startswith("unchanged since run 1: the output of flowa")
        world.run(params={"x": "2"})
        assert (world.states(3)["a"], world.running()) == ("cached", ["b"])
        assert Job.objects.count() == 3

    @pytest.mark.long
    def test_a_change_of_the_code_is_one(self, world, home):
        world.make({"a": {}})
        world.run()
        world.play()
        (home / "train.py").write_text("print('changed')")
        world.run()
        assert world.running() == ["a"]

    def test_another_image_behind_its_name_is_one(self, world, monkeypatch):
        kind = type(runners.get())
        monkeypatch.setattr(kind, "images", {"cuda": "registry.test/cuda:1"})
        world.make({"a": {"image": "cuda"}})
        world.run()
        world.play()
        world.run()
        assert world.states(2) == {"a": "cached"}
        monkeypatch.setattr(kind, "images", {"cuda": "registry.test/cuda:2"})
        world.run()
        assert (world.running(), Job.objects.latest("pk").image) == (["a"], "cuda")

    @pytest.mark.parametrize("how", few(["fresh", "cache", "trash", "failed"], 2))
    def test_it_is_run_again(self, world, how):
        world.make({"a": {"cache": how != "cache"}})
        world.run()
        world.end("a", "error" if how == "failed" else "finished")
        if how == "trash":
            Job.objects.update(trashed="2026-01-01T00:00:00Z")
        world.run(**({"fresh": True} if how == "fresh" else {}))
        assert world.running() == ["a"]


class TestEnds:
    def test_a_failure_skips_what_needs_it_and_nothing_else(self, world):
        world.make({"a": {}, "b": {"needs": ["a"]}, "c": {}, "d": {"needs": ["c"]}})
        run = world.run()
        world.end("a", "error")
        world.play()
        run.refresh_from_db()
        assert world.states() == {"a": "failed", "c": "complete", "b": "skipped", "d": "complete"}
        assert (run.state, run.reason) == ("error", "a failed: reported by the job")

    def test_cancel_ends_its_jobs(self, world, as_alice):
        world.make({"a": {}, "b": {}, "c": {"needs": ["a"]}})
        world.run()
        cancelled = as_alice.call("put", f"{RUN}/1:cancel").json()
        assert (cancelled["state"], cancelled["reason"]) == ("error", "cancelled")
        world.poll()
        assert {job.shown_state for job in Job.objects.all()} == {"cancelled"}
        assert in_use() == 0
        as_alice.refused("put", f"{RUN}/1:cancel")

    def test_a_deleted_run_and_pipeline_are_gone_and_the_jobs_stay(self, world, as_alice):
        world.make({"a": {}})
        world.run()
        assert as_alice.call("delete", f"{RUN}/1").json()["state"] == "deleting"
        world.poll()
        assert not PipelineRun.objects.exists()
        gone = as_alice.call("delete", "users/alice/pipelines/flow")
        assert gone.status_code == 200, gone.content
        assert not Pipeline.objects.exists()
        assert Job.objects.get().shown_state == "cancelled"
        assert Snapshot.objects.exists()
        assert in_use() == 0

    @pytest.mark.parametrize("ended", few([True, False], 1))
    def test_a_pipeline_is_deleted_with_its_runs_by_one_call(self, world, as_alice, ended):
        world.make({"a": {}})
        world.run()
        if ended:
            world.play()
        gone = as_alice.call("delete", "users/alice/pipelines/flow")
        assert gone.status_code == 200, gone.content
        as_alice.refused("get", "users/alice/pipelines/flow")
        world.poll()
        assert not Pipeline.objects.exists()
        assert Job.objects.get().shown_state == ("finished" if ended else "cancelled")
        world.make({"a": {}})

    def test_the_runs_of_a_deregistered_user_end(self, world):
        world.make({"a": {}})
        run = world.run()
        accounts.deregister(username="alice", by="test")
        world.poll()
        run.refresh_from_db()
        assert run.state == "error"
        assert in_use() == 0

    @pytest.mark.long
    def test_its_owner_is_told_of_the_run_and_not_of_each_job(self, world):
        world.make({"a": {}, "b": {}})
        world.run()
        world.play()
        assert [(notice.kind, notice.event) for notice in Notice.objects.all()] == [("pipelinerun", "finished")]


def test_a_pipeline_is_replaced(world, as_alice):
    world.make({"a": {}})
    changed = as_alice.call("put", "users/alice/pipelines/flow", {"steps": {"z": JOB}})
    assert list(changed.json()["steps"]) == ["z"]


def test_a_pipeline_is_drawn_from_jobs_that_use_each_others_outputs(world, as_alice, alice):
    for name, inputs in (("first", {}), ("second", {"A": "first"}), ("third", {"A": "first/x", "B": "second"})):
        put(Job, alice, name, "finished")
        Job.objects.filter(name=name).update(job_inputs=inputs)
    steps = drawing.steps_of(Job.objects.get(name="third"))
    assert {name: step.get("inputs") for name, step in steps.items()} == {
        "first": None,
        "second": {"A": "first"},
        "third": {"A": "first/x", "B": "second"},
    }
    assert list(steps) == ["first", "second", "third"]
    response = as_alice.call("post", "users/alice/pipelines", {"name": "drawn", "steps": steps})
    assert response.status_code == 201, response.content


def test_yaml_is_read(as_alice, home):
    text = """
        name: flow
        params: {epochs: 3}
        steps:
          prepare: {entry: train.py, cpu: 0.1}
          train:
            entry: train.py
            args: [--epochs, "${epochs}"]
            inputs: {DATA: prepare}
          good: {needs: [train], when: {train: accuracy > 0.9}, approve: "Is it good?"}
    """
    token = {"HTTP_AUTHORIZATION": f"Bearer {as_alice.token}"}
    response = as_alice.post("/api/v1/users/alice/pipelines", text, content_type="application/yaml", **token)
    assert response.status_code == 201, response.content
    assert response.json()["steps"]["good"]["needs"] == ["train"]


def test_a_dollar_and_a_brace_can_be_written(world, as_alice, alice):
    world.make({"a": {"args": ["$${HOME}/${x}", "$${x}", "$HOME"], "env": {"A": "${x}$${"}}}, params={"x": "data"})
    world.run()
    job = Job.objects.get()
    assert (job.args, job.env["A"]) == (["${HOME}/data", "${x}", "$HOME"], "data${")
    assert drawing.steps_of(job)[job.name]["args"] == ["$${HOME}/data", "$${x}", "$HOME"]


@pytest.mark.parametrize("value", ["1e999", "-1e999", "1" + 400 * "0", '"a\\u0000"', "[1]", "null"])
def test_a_parameter_that_no_script_could_be_given_is_refused(as_alice, home, value):
    body = json.dumps({"name": "flow", "params": {"x": "HERE"}, "steps": {"a": JOB}}).replace('"HERE"', value)
    assert "params" in as_alice.refused("post", "users/alice/pipelines", body)
    assert not Pipeline.objects.exists()


@pytest.mark.parametrize(
    ("fields", "problem"),
    few(
        [
            ({"steps": {}}, "steps: must be an object of 1 to"),
            ({"steps": {"A": JOB}}, "steps: a step's name must match"),
            ({"steps": {"a": {**JOB, "needs": ["b"]}}}, "steps.a.needs: there is no step b"),
            ({"steps": {"a": {**JOB, "inputs": {"D": "b"}}}}, "steps.a.inputs.D: there is no step b"),
            ({"steps": {"a": {**JOB, "when": {"b": "x > 1"}}}}, "steps.a.when: there is no step b"),
            (
                {"steps": {"a": {**JOB, "needs": ["b"]}, "b": {**JOB, "needs": ["a"]}}},
                "steps: the steps are a circle: ",
            ),
            ({"steps": {"a": JOB, "b": {**JOB, "when": {"a": "x >"}}}}, "steps.b.when.a: column"),
            ({"steps": {"a": {**JOB, "args": ["${x}"]}}}, "steps.a: there is no parameter x"),
            ({"steps": {"a": {**JOB, "args": ["${}"]}}}, "steps.a: there is no parameter ; write $${ for ${ itself"),
            ({"steps": {"a": {**JOB, "env": {"START": 5}}}}, "steps.a: env: START: must be a string"),
            ({"steps": {"a": {**JOB, "entry": "none.py"}}}, "steps.a.entry:"),
            ({"steps": {"a": {**JOB, "cpu": 10}}}, "steps.a.cpu:"),
            ({"steps": {"a": {**JOB, "colour": 1}}}, "steps.a"),
            ({"steps": {"a": {**JOB, "approve": "?"}}}, "steps.a"),
            ({"steps": {"a": {"cpu": 1}}}, "steps.a"),
            ({"steps": {"a": {"approve": "?"}, "b": {**JOB, "inputs": {"D": "a"}}}}, "steps.b: a is an approval"),
            ({"params": {"1": 2}}, "params"),
            ({"name": "Flow"}, "name:"),
        ],
        8,
    ),
)
def test_what_is_wrong_is_named(as_alice, home, fields, problem):
    refusal = as_alice.refused("post", "users/alice/pipelines", {"name": "flow", "steps": {"a": JOB}, **fields})
    assert refusal.startswith(problem), refusal
    assert not Pipeline.objects.exists()


def test_names_are_unique_and_others_see_nothing(world, as_alice, as_bob):
    world.make({"a": {}})
    world.run()
    body = {"name": "flow", "steps": {"a": JOB}}
    assert as_alice.refused("post", "users/alice/pipelines", body).startswith("name: you already have a pipeline")
    assert as_alice.refused("post", RUN, {"params": {"x": 1}}).startswith("params: there is no parameter x")
    for path in ("pipelines", "pipelines/flow", "pipelines/flow/runs", "pipelines/flow/runs/1"):
        as_bob.refused("get", f"users/alice/{path}")
    as_bob.refused("put", f"{RUN}/1:cancel")
