"""The sweeps, pipelines and schedules that submit jobs with a dataset (datasets.uses)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from django.db.models import TextField
from django.db.models.functions import Cast

from accounts.models import User as Account
from datasets import sources, versions
from datasets.models import Dataset
from datasets.uses import Target, Use
from jobs.models import EnvironmentVersion
from jobs.packages.named import references
from jobs.packages.named.used import NamedUse
from kernel.locking import WrongState

from .models import OPEN, Pipeline, PipelineRun, RunState, Schedule, ScheduleState, Step, StepState, Sweep

LOOKED_AT = 500  # of a kind, the newest: what a row submits is in its JSON


def of_datasets(targets: Sequence[Target]) -> dict[Target, WrongState]:
    """Return what would use each of the datasets of one owner, or names that version of one: an open sweep, a waiting
    step, an active schedule.
    """
    owner, refusals = targets[0][0].user, {}
    named: dict[str, list[Target]] = defaultdict(list)
    for target in targets:
        named[target[0].name].append(target)
    for users in (_sweeps, _steps, _schedules):
        for refusal, jobs in users(owner.pk):
            for reference in (sources.parse(owner, each) for job in jobs for each in job.get("datasets", ())):
                for target in named[reference.name] if reference.owner == owner.username else ():
                    if target not in refusals and _names(reference, target):
                        refusals[target] = refusal
    return refusals


def _names(reference: sources.Reference, target: Target) -> bool:
    dataset, version = target
    return version is None or bool(reference.version and versions.find(dataset, reference.version) == version)


User = Iterator[tuple[WrongState, list[dict]]]  # why a dataset must stay that one of these jobs reads


def _sweeps(owner: int) -> User:
    for sweep in Sweep.objects.filter(user=owner, state__in=OPEN).order_by("pk"):
        yield WrongState("the sweep %(name)s uses this dataset; cancel the sweep first", name=sweep.name), [sweep.job]


def _steps(owner: int) -> User:
    runs = PipelineRun.objects.filter(user=owner, state=RunState.RUNNING)
    steps = Step.objects.filter(run__in=runs, state=StepState.WAITING).select_related("run__pipeline")
    for step in steps.order_by("pk"):
        refusal = WrongState(
            "the step %(step)s of the pipeline run %(name)s uses this dataset; cancel the run first",
            step=step.name, name=step.run.name,
        )  # fmt: skip
        yield refusal, [step.spec.get("job", {})]


def _schedules(owner: int) -> User:
    rows = Schedule.objects.filter(user=owner, state=ScheduleState.ACTIVE).order_by("pk")
    steps = dict(Pipeline.objects.filter(user=owner, deleted=False).values_list("name", "steps"))
    for schedule in rows:
        refusal = WrongState("the schedule %(name)s uses this dataset; pause the schedule first", name=schedule.name)
        yield refusal, _jobs_of(schedule, steps)


def newest(dataset: Dataset, most: int) -> list[Use]:
    """Return the newest sweeps, pipelines and schedules of the dataset's owner that name it."""
    sweeps = [row for row in _since(dataset, Sweep.objects) if _reads(dataset, [row.job])]
    flows = _since(dataset, Pipeline.objects.filter(deleted=False))
    flows = [row for row in flows if _reads(dataset, [step.get("job", {}) for _name, step in row.steps])]
    named = {row.name for row in flows}
    schedules = [row for row in _since(dataset, Schedule.objects) if _submits(row, dataset, named)]
    owner, kinds = dataset.user.username, (("sweep", sweeps), ("pipeline", flows), ("schedule", schedules))
    return [_use(kind, owner, row) for kind, rows in kinds for row in rows[:most]]


def _since(dataset: Dataset, rows) -> list:
    return list(rows.filter(user=dataset.user_id, created__gte=dataset.created).order_by("-pk")[:LOOKED_AT])


def _submits(schedule: Schedule, dataset: Dataset, pipelines: set[str]) -> bool:
    """Return whether the schedule submits what reads the dataset; `pipelines` are the names of those that do."""
    if schedule.kind == "pipeline":
        return schedule.spec.get("name") in pipelines
    return _reads(dataset, _jobs_of(schedule, {}))


def _use(kind: str, user: str, row) -> Use:
    state, word = (row.state, row.get_state_display()) if kind != "pipeline" else ("", "")
    return Use(kind, user, row.name, state, word, row.created)


def _jobs_of(schedule: Schedule, steps: Mapping[str, list]) -> list[dict]:
    """Return the jobs that the schedule submits, or that its sweep or pipeline does; `steps` of the pipelines."""
    if schedule.kind == "pipeline":
        return [step.get("job", {}) for _name, step in steps.get(schedule.spec.get("name"), ())]
    return [schedule.spec if schedule.kind == "job" else schedule.spec["job"]]


def _reads(dataset: Dataset, jobs: Iterable[dict]) -> bool:
    references = (sources.parse(dataset.user, each) for job in jobs for each in job.get("datasets", ()))
    return any((reference.owner, reference.name) == (dataset.user.username, dataset.name) for reference in references)


def of_environment(version: EnvironmentVersion) -> list[NamedUse]:
    """Return the open sweeps, the steps that wait, the pipelines and the schedules that name a version of an
    environment. A name without a number is the newest version that is ready.
    """
    tenant, names = version.environment.tenant, {version.reference}
    newest = references.versions_of(tenant, version.name).filter(state="ready").first()
    if newest is not None and newest.pk == version.pk:
        names.add(version.name)
    people = tenant.memberships.values("user")

    def names_it(user: Account, jobs: Iterable[dict]) -> bool:
        wanted = (job for job in jobs if job.get("environment") in names)
        return any(job.get("tenant", user.tenant.name) == tenant.name for job in wanted)

    sweeps = Sweep.objects.filter(user__in=people, state__in=OPEN, job__has_key="environment")
    waiting = Step.objects.filter(run__user__in=people, run__state=RunState.RUNNING, state=StepState.WAITING)
    waiting = waiting.filter(spec__job__has_key="environment").select_related("run__user__tenant", "run__pipeline")
    flows = Pipeline.objects.filter(user__in=people, deleted=False).select_related("user__tenant")
    flows = flows.annotate(text=Cast("steps", TextField())).filter(text__contains='"environment"')
    schedules = Schedule.objects.filter(user__in=people).exclude(kind="pipeline").select_related("user__tenant")
    uses = [("sweep", row, row.name, [row.job]) for row in sweeps.select_related("user__tenant")]
    uses += [("pipeline", row, row.name, [step.get("job", {}) for _name, step in row.steps]) for row in flows]
    uses += [("schedule", row, row.name, _jobs_of(row, {})) for row in schedules]
    uses += [("pipeline", row.run, row.run.pipeline.name, [row.spec["job"]]) for row in waiting]
    named = [(kind, row.user.username, name) for kind, row, name, jobs in uses if names_it(row.user, jobs)]
    return [NamedUse(*use, True) for use in dict.fromkeys(named)]
