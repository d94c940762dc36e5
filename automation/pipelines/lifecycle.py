"""Every change of a pipeline, its runs and their steps goes through here. Called by api, pages, admin, and progress.

Locks: the user's row, then the run's, then its steps'. The jobs of steps are cancelled without any of these locks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from django.db import IntegrityError, transaction
from django.db.models import Prefetch
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts import notices
from accounts.models import User
from automation import spec
from automation.models import LIVE_STEPS, Pipeline, PipelineRun, RunState, Step, StepState
from jobs import checks
from jobs.code import sweeping
from jobs.models import Job
from kernel import after_commit
from kernel.database import first_row, violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message
from kernel.models import record_created
from kernel.outcomes import Outcome

from . import graph

BY = "pipeline"  # in the history of what a pipeline does by itself
CANCELLED = Message("cancelled")
MAX_OPEN = 20  # runs of one user that have not ended
MAX_PIPELINES = 200


class Begun(Exception):
    """The step has its job, or may not have one any more: raised inside the transaction that would create another."""


def require_room(user) -> None:
    """Raise Refused for a user who has as many pipelines as are allowed."""
    if Pipeline.objects.filter(user=user).count() >= MAX_PIPELINES:
        raise Refused("you have %(most)s pipelines, which is the limit", most=MAX_PIPELINES)


def save_pipeline(
    *, user, name: str, params: dict, steps: dict, title: str | None = None, notes: str = "", new: bool = True
) -> Pipeline:
    """Store a pipeline, or what replaces the one of that name. Runs that have begun are not affected.

    Raises Refused: a graph that cannot be (automation.pipelines.graph), a job that cannot be submitted, a name taken.
    """
    params = graph.need_params(params)
    ordered = graph.need_steps(steps, params)
    for step_name, step in ordered.items():
        if "job" in step:
            spec.at(f"steps.{step_name}", lambda step=step: spec.need_possible(user, step["job"]))
    fields = {"params": params, "steps": list(ordered.items()), "notes": notes, "updated": timezone.now()}
    fields |= {} if title is None else {"title": title}
    try:
        with transaction.atomic():
            accounts.hold_active(user)
            if new:
                require_room(user)
                row = Pipeline.objects.create(user=user, name=name, **fields)
            else:
                row = lock_row(Pipeline, user=user, name=name, deleted=False)
                if row is None:
                    raise Missing("pipeline")
                for field, value in fields.items():
                    setattr(row, field, value)
                row.save()
            after_commit.changed(user.username, "pipeline", name)
    except IntegrityError as problem:
        if violated(problem) == "pipeline_name_once_per_user":
            raise Refused("you already have a pipeline named %(name)s", field="name", name=name)
        raise
    return row


def delete_pipeline(*, user, name: str, by: str) -> None:
    """Delete a pipeline with its runs: what still runs is cancelled first. Its jobs stay in the table of runs."""
    pipeline = find(user, name)
    with transaction.atomic():
        lock_row(User, pk=user.pk)
        row = lock_row(Pipeline, pk=pipeline.pk)
        if row is None:
            raise Missing("pipeline")
        row.deleted = True
        row.save(update_fields=["deleted"])
        for run in row.runs.exclude(state=RunState.DELETING).order_by("pk"):
            delete_run(run, by=by)
        _forget_pipeline(row)
        after_commit.changed(user.username, "pipeline", name)


def _forget_pipeline(row: Pipeline) -> None:
    """Delete the row of a deleted pipeline whose runs are gone."""
    if row.deleted and not row.runs.exists():
        row.delete()


def find(user, name: str) -> Pipeline:
    """Return the user's pipeline. Raises Missing."""
    row = Pipeline.objects.filter(user=user, name=name, deleted=False).select_related("user").first()
    if row is None:
        raise Missing("pipeline")
    return row


# --- runs -------------------------------------------------------------------------------------------------------------
def begin_run(
    pipeline: Pipeline, *, by: str, params: dict | None = None, fresh: bool = False,
    within: Callable[[PipelineRun], object] | None = None,
) -> PipelineRun:  # fmt: skip
    """Begin a run of the steps as they are now, with the code as it is now. `fresh`: nothing is taken from the cache.
    `within` is called with the new run in the transaction that creates it, and refuses it by raising.

    Raises Refused: an unknown parameter, a script that is missing, too many runs.
    """
    user = pipeline.user
    values = graph.with_params(pipeline.params, params or {})
    steps = [(name, graph.filled(step, values)) for name, step in pipeline.steps]
    with ExitStack() as stack:
        code = {}
        for name, step in steps:
            if "job" in step:
                keeping = spec.kept_code(user, step["job"])
                code[name] = spec.at(f"steps.{name}", lambda keeping=keeping: stack.enter_context(keeping))
        with transaction.atomic():
            accounts.hold_active(user)
            require_open(user)
            row = lock_row(Pipeline, pk=pipeline.pk, deleted=False)
            if row is None:
                raise Missing("pipeline")
            row.last += 1
            row.save(update_fields=["last"])
            run = PipelineRun.objects.create(user=user, pipeline=pipeline, number=row.last, params=values)
            for place, (name, step) in enumerate(steps):
                if fresh:
                    step = {**step, "cache": False}
                snapshot = code[name]() if name in code else None
                kept = step
                if "job" in step:
                    job = spec.at(f"steps.{name}", lambda step=step: spec.settled(user, step["job"]))
                    kept = {**step, "job": spec.without_code(job)}
                Step.objects.create(run=run, place=place, name=name, spec=kept, snapshot=snapshot)
            record_created(run, by=by)
            if within is not None:
                within(run)
            go_on(run)
    return run


def require_open(user) -> None:
    """Raise Refused for a user of whose pipelines as many runs have not ended as are allowed."""
    if PipelineRun.objects.filter(user=user, state=RunState.RUNNING).count() >= MAX_OPEN:
        raise Refused("%(most)s runs of your pipelines have not ended; wait, or cancel one", most=MAX_OPEN)


def require_runnable(pipeline: Pipeline) -> None:
    """Raise Refused for what a run could not begin with: a script that is gone, too many runs."""
    require_scripts(pipeline)
    require_open(pipeline.user)


def require_scripts(pipeline: Pipeline) -> None:
    """Raise Refused for a step whose script is gone. One that a parameter names is known when the run begins."""
    for name, step in pipeline.steps:
        job = step.get("job", {})
        if "entry" in job and "$" not in job["entry"]:
            given = (job["entry"], job.get("code_from"), job.get("script"))
            spec.at(f"steps.{name}", lambda given=given: checks.code_of(pipeline.user, *given, None))


def go_on(run: PipelineRun) -> None:
    """Have the run looked at soon."""
    after_commit.enqueue("automation.pipeline", run.pk)
    after_commit.changed(run.user.username, "pipeline", run.pipeline.name)


def cancel_run(run: PipelineRun, *, by: str) -> PipelineRun:
    """End a run and cancel the jobs of its steps. Raises WrongState."""
    with locked(PipelineRun, pk=run.pk) as row:
        row.fail(by=by, reason=CANCELLED, outcome=Outcome.CANCELLED)
        row.ended = timezone.now()
        row.save()
        _drop_live(row, CANCELLED)
        go_on(row)
    return row


def delete_run(run: PipelineRun, *, by: str) -> PipelineRun:
    """Move a run to deleting: its jobs are cancelled, then it is forgotten. Raises WrongState."""
    with locked(PipelineRun, pk=run.pk) as row:
        row.erase(by=by)
        row.save()
        _drop_live(row, CANCELLED)
        go_on(row)
    return row


def cancel_all_of(user, by: str) -> None:
    """End all runs of a de-registered user; called inside that transaction."""
    rows = PipelineRun.objects.filter(user=user, state=RunState.RUNNING).order_by("pk")
    for run in list(rows.select_for_update(no_key=True)):
        run.fail(by=by, reason=accounts.DEACTIVATED, outcome=Outcome.CANCELLED)
        run.ended = timezone.now()
        run.save()
        _drop_live(run, accounts.DEACTIVATED)
        go_on(run)


def _drop_live(run: PipelineRun, reason: str) -> None:
    for step in list(Step.objects.filter(run=run, state__in=LIVE_STEPS).select_for_update(no_key=True)):
        step.settle(StepState.CANCELLED, by=BY, reason=reason)
        step.save()


def end(pk: int, failed: str) -> None:
    """End a run all of whose steps have ended: finished, or error with the reason of the first failure."""
    with locked(PipelineRun, pk=pk) as run:
        if run.state != RunState.RUNNING:
            return
        run.fail(by=BY, reason=failed) if failed else run.finish(by=BY)
        run.ended = timezone.now()
        run.save()
        after_commit.changed(run.user.username, "pipeline", run.pipeline.name)


def forget(pk: int) -> None:
    """Delete the rows of a run in deleting whose jobs have ended."""
    with transaction.atomic():
        row = PipelineRun.objects.filter(pk=pk, state=RunState.DELETING).select_related("user", "pipeline").first()
        if row is None:
            return
        lock_row(User, pk=row.user_id)
        run = lock_row(PipelineRun, pk=pk, state=RunState.DELETING)
        if run is not None:
            snapshots = set(run.steps.exclude(snapshot=None).values_list("snapshot", flat=True))
            after_commit.changed(row.user.username, "pipeline", row.pipeline.name)
            run.delete()
            for snapshot in snapshots:
                sweeping.release(snapshot)
            _forget_pipeline(lock_row(Pipeline, pk=row.pipeline_id))


# --- steps ------------------------------------------------------------------------------------------------------------
def begin_step(pk: int, job: Job, key: str) -> None:
    """Give a waiting step its job; called inside the transaction that creates it. Raises Begun."""
    step = _held(pk)
    if step is None or step.state != StepState.WAITING or step.run.state != RunState.RUNNING:
        raise Begun
    step.start(by=BY)
    step.job, step.key = job, key
    step.save()
    job.title = f"{step.run.pipeline.shown_name} {step.run.number}: {job.title or step.name}"
    job.save(update_fields=["title"])
    after_commit.changed(job.user.username, "pipeline", step.run.pipeline.name)


def _held(pk: int) -> Step | None:
    step = Step.objects.filter(pk=pk).first()
    if step is None or lock_row(PipelineRun, pk=step.run_id) is None:
        return None
    lock_row(Step, pk=pk)
    return Step.objects.select_related("run__pipeline", "run__user").get(pk=pk)


def settle(pk: int, result: str, reason: str = "", **fields) -> None:
    """Record the result of a live step."""
    with transaction.atomic():
        step = _held(pk)
        if step is None or step.state not in LIVE_STEPS:
            return
        for name, value in fields.items():
            setattr(step, name, value)
        step.settle(result, by=BY, reason=reason)
        step.save()
        after_commit.changed(step.run.user.username, "pipeline", step.run.pipeline.name)


def ask(pk: int) -> None:
    """Move a step to approval, and notify the owner."""
    with transaction.atomic():
        step = _held(pk)
        if step is None or step.state != StepState.WAITING or step.run.state != RunState.RUNNING:
            return
        step.ask(by=BY)
        step.save()
        run = step.run
        notices.notify(
            user=run.user,
            kind="pipeline",
            name=run.pipeline.name,
            event="approval",
            reason=step.spec["approve"],
            title=run.pipeline.title,
        )
        after_commit.changed(run.user.username, "pipeline", run.pipeline.name)


def decide(run: PipelineRun, name: str, *, approve: bool, by: str) -> Step:
    """Approve or reject a step that waits for it. Raises Missing, WrongState."""
    with transaction.atomic():
        row = Step.objects.filter(run=run, name=name).first()
        step = row and _held(row.pk)
        if step is None:
            raise Missing("step")
        if step.state != StepState.APPROVAL:
            raise WrongState("the step does not wait for approval")
        step.by = by
        reason = "" if approve else Message("rejected by %(user)s", user=by)
        step.settle(StepState.COMPLETE if approve else StepState.FAILED, by=by, reason=reason)
        step.save()
        go_on(step.run)
    return step


def job_moved(job: Job) -> None:
    """Have the run of a job that has begun or ended looked at; called inside the transaction of that change."""
    if first_row(Step, {"job": job.pk}) is None:  # as for most jobs
        return
    for step in Step.objects.filter(job=job.pk, state=StepState.RUNNING).select_related("run__pipeline", "run__user"):
        go_on(step.run)


def is_of_step(change) -> bool:
    """Return whether the change is of a step's job. The owner is notified of the run's end only."""
    return change.kind == "job" and Step.objects.filter(job=change.object_id).exists()


def with_steps(rows):
    """Return the runs with their steps and jobs."""
    steps = Step.objects.select_related("job__user").order_by("place")
    return rows.select_related("pipeline", "user").prefetch_related(Prefetch("steps", queryset=steps))
