"""Drives the runs of pipelines: settles steps whose jobs have ended, and begins those whose time has come.

`advance` may be called by anybody at any time, as often as they like; reconcile does it for every open run each round.
"""

from __future__ import annotations

from django.db.models import QuerySet

from automation import spec
from automation.models import DONE_STEPS, LIVE_STEPS, PipelineRun, RunState, Step, StepState
from automation.sweeps import results
from jobs import lifecycle as jobs
from jobs.models import Job, State
from kernel import exclusive
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message
from tracking.runs import filters

from . import caching, graph, lifecycle

LOCK = 0x70697065  # the first half of the advisory locks of runs
LIVE_JOBS = (State.CREATING, State.RUNNING)


def advance(pk: int) -> None:
    """Do for a run what there is to do."""
    exclusive.advance(PipelineRun, LOCK, pk, _work)


def _work(pk: int) -> None:
    run = PipelineRun.objects.select_related("user__tenant", "pipeline").filter(pk=pk).first()
    if run is None:
        return
    if run.state != RunState.RUNNING:
        _stop_jobs(run)
        if run.state == RunState.DELETING and not _own_jobs(run).exists():
            lifecycle.forget(pk)
        return
    steps = {step.name: step for step in _steps(run)}  # in an order in which each is behind those that it needs
    for step in list(steps.values()):
        if _look(run, step, steps):
            steps[step.name] = _rows(run).get(pk=step.pk)
    if not any(step.state in LIVE_STEPS for step in steps.values()):
        failed = next((step for step in steps.values() if step.state in (StepState.FAILED, StepState.CANCELLED)), None)
        reason = Message("%(step)s failed: %(reason)s", step=failed.name, reason=failed.reason) if failed else ""
        lifecycle.end(pk, reason)


def _steps(run: PipelineRun) -> list[Step]:
    return list(_rows(run).order_by("place"))


def _rows(run: PipelineRun):
    return Step.objects.filter(run=run).select_related("job", "snapshot", "run__user", "run__pipeline")


def _own_jobs(run: PipelineRun):
    """Return the jobs of the run's steps that have not ended; a cached step's job is an earlier run's, and has."""
    return Job.objects.filter(steps__run=run, state__in=LIVE_JOBS)


def _stop_jobs(run: PipelineRun) -> None:
    for job in _own_jobs(run).select_related("user"):
        try:
            jobs.cancel(user=job.user, name=job.name, by=lifecycle.BY)
        except (Missing, WrongState):  # it has ended meanwhile
            continue


def _look(run: PipelineRun, step: Step, steps: dict[str, Step]) -> bool:
    """Take a step as far as it goes now; return whether that has changed anything."""
    if step.state == StepState.RUNNING:
        return _settle(step)
    if step.state != StepState.WAITING:
        return False
    needed = [steps[name] for name in step.needs]
    if any(other.state in LIVE_STEPS for other in needed):
        return False
    for other in needed:
        if other.state not in DONE_STEPS:
            lifecycle.settle(step.pk, StepState.SKIPPED, _because(other))
            return True
    return _begin(run, step, steps)


def _because(other: Step) -> Message:
    if other.state == StepState.SKIPPED:
        return Message("%(step)s was skipped", step=other.name)
    return Message("%(step)s has failed", step=other.name)


def _settle(step: Step) -> bool:
    job = step.job
    if not results.has_ended(job):  # a condition reads its metrics, which may still be on their way
        return False
    if job is None or job.state == State.DELETING:
        lifecycle.settle(step.pk, StepState.FAILED, Message("its job was deleted"))
    elif job.state == State.FINISHED:
        lifecycle.settle(step.pk, StepState.COMPLETE)
    else:
        state = StepState.CANCELLED if job.was_stopped else StepState.FAILED
        lifecycle.settle(step.pk, state, job.reason)
    return True


def _begin(run: PipelineRun, step: Step, steps: dict[str, Step]) -> bool:
    """Skip a step by its condition, ask its owner, take its result from an earlier run, or submit its job."""
    try:
        unmet = _unmet(run, step, steps)
    except filters.FilterError as problem:
        lifecycle.settle(step.pk, StepState.FAILED, Message("its condition: %(problem)s", problem=problem.problem))
        return True
    if unmet:
        lifecycle.settle(step.pk, StepState.SKIPPED, unmet)
    elif "approve" in step.spec:
        lifecycle.ask(step.pk)
    else:
        _submit(run, step, steps)
    return True


def _unmet(run: PipelineRun, step: Step, steps: dict[str, Step]) -> str:
    """Return the condition that is not met, "" when all are. Raises FilterError."""
    for other, text in step.spec.get("when", {}).items():
        jobs = Job.objects.filter(pk=steps[other].job_id)
        if not jobs.filter(filters.condition(filters.parse(text), filters.Scope(run.user, runs=jobs))).exists():
            return Message("%(step)s: not %(condition)s", step=other, condition=text)
    return ""


def _submit(run: PipelineRun, step: Step, steps: dict[str, Step]) -> None:
    sources = {name: steps[name] for name in step.needs}
    gone = next((name for name, other in sources.items() if "job" in other.spec and other.job is None), None)
    if gone is not None:
        lifecycle.settle(step.pk, StepState.FAILED, Message("the job of %(step)s was deleted", step=gone))
        return
    key = caching.key_of(step, sources)
    earlier = caching.earlier(step, key) if step.spec.get("cache", True) else None
    if earlier is not None:
        number, name = earlier.run.number, earlier.job.name
        reason = Message("unchanged since run %(number)s: the output of %(job)s", number=number, job=name)
        lifecycle.settle(step.pk, StepState.CACHED, reason, job=earlier.job, key=key)
        return
    inputs = {}
    for name, source in step.spec.get("inputs", {}).items():
        other, slash, path = source.partition("/")
        inputs[name] = f"{sources[other].job.name}{slash}{path}"
    fields = {"group": run.pipeline.name, **step.spec["job"], "inputs": inputs}
    stem = f"{run.pipeline.name}{step.name}"
    stem = "".join(letter for letter in stem if letter.isalpha())
    number = (run.number - 1) * graph.MAX_STEPS + step.place  # names without digits would be the same for s1 and s2
    try:
        spec.with_free_name(
            stem, number, lambda name: jobs.create_job(
                user=run.user, name=name, by=lifecycle.BY, snapshot=step.snapshot, **fields,
                within=lambda job: lifecycle.begin_step(step.pk, job, key),
            ),
        )  # fmt: skip
    except lifecycle.Begun:
        return
    except Refused as problem:
        lifecycle.settle(step.pk, StepState.FAILED, problem.msg)


def open_runs() -> list[int]:
    """Return the runs that are to be looked at: those that are not over, and those whose jobs are not."""
    left, late = unfinished()
    return sorted({*left.values_list("pk", flat=True), *late.values_list("run", flat=True)})


def unfinished() -> tuple[QuerySet, QuerySet]:
    """Return the runs that are not over, and the cancelled steps whose jobs go on."""
    left = PipelineRun.objects.filter(state__in=[RunState.RUNNING, RunState.DELETING])
    return left, Step.objects.filter(state=StepState.CANCELLED, job__state__in=LIVE_JOBS)
