"""Drives sweeps: settles trials whose jobs have ended, ends hopeless ones early, makes new ones, submits their jobs.

`advance` may be called by anybody at any time, as often as they like; reconcile does it for every open sweep each
round. One process at a time works on a sweep. Each step is stored by itself, and each is repeated until it is stored.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import islice

from django.db.models import QuerySet, Sum

from automation import spec
from automation.models import ENDED_TRIALS, Sweep, SweepState, Trial, TrialState
from jobs import lifecycle as jobs
from jobs import trash
from jobs.models import ENDED, Job, State
from kernel import exclusive, healing
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import Message
from kernel.outcomes import Outcome

from . import lifecycle, results, space
from .engine import Search, SearchFailed

log = logging.getLogger(__name__)

LOCK = 0x73776565  # the first half of the advisory locks of sweeps
LIVE_JOBS = (State.CREATING, State.RUNNING)


def advance(pk: int) -> None:
    """Do for a sweep what there is to do."""
    exclusive.advance(Sweep, LOCK, pk, _work)


def _work(pk: int) -> None:
    sweep = Sweep.objects.select_related("user", "user__tenant", "snapshot").filter(pk=pk).first()
    if sweep is None:
        return
    healing.attempt(_settle, sweep)
    _stop_jobs(sweep)
    if sweep.state == SweepState.DELETING:
        _forget(sweep)
    elif sweep.is_open and not _over(sweep) and sweep.state == SweepState.RUNNING:
        try:
            _add_trials(sweep)
        except SearchFailed as problem:
            _fail(sweep, problem)
        else:
            _submit(sweep)


def _fail(sweep: Sweep, problem: SearchFailed) -> None:
    """End a sweep that cannot go on: without a word it would run for ever. Its user can resume it."""
    lifecycle.end(sweep.pk, SweepState.ERROR, Message("the search failed: %(reason)s", reason=str(problem)))
    _stop_jobs(sweep)


# --- what has happened ------------------------------------------------------------------------------------------------
def _settle(sweep: Sweep) -> None:
    """Record the results of trials whose jobs have ended, and end those early that the pruner gives up."""
    live = list(_trials(sweep).filter(state=TrialState.RUNNING).select_related("job__user"))
    ended = [trial for trial in live if results.has_ended(trial.job)]  # before its steps and values are read
    if sweep.pruner["type"] != "none":
        try:
            _prune(sweep, live, {trial.pk for trial in ended})
        except SearchFailed as problem:
            _fail(sweep, problem)
    settled = False
    for trial in ended:
        if trial.state == TrialState.RUNNING:
            result = results.result_of(sweep, trial)
            gpu_s = results.gpu_seconds(trial.job)
            settled |= lifecycle.settle(trial.pk, result.state, result.reason, result.values, gpu_s=gpu_s)
    if settled:
        try:
            search = Search(sweep, _trials(sweep))
            lifecycle.note_results(sweep.pk, search.best(), search.importance())
        except SearchFailed as problem:
            _fail(sweep, problem)


def _prune(sweep: Sweep, live: list[Trial], ended: set[int]) -> None:
    fresh = {}
    for trial in live:
        steps, seen = results.new_steps(sweep, trial)
        if seen != trial.seen:
            fresh[trial.pk] = steps
            trial.seen = seen
    if not fresh:
        return
    _thin(sweep, [trial.steps + fresh.get(trial.pk, []) for trial in live])
    search = Search(sweep, _trials(sweep))
    for trial in live:
        if trial.pk not in fresh:
            continue
        before = {step for step, _value in trial.steps}
        trial.steps = results.thinned(trial.steps + fresh[trial.pk], sweep.every)
        new = [each for each in trial.steps if each[0] not in before]
        prune = trial.pk not in ended and bool(new) and search.should_prune(trial, new)
        kept = {"steps": trial.steps, "seen": trial.seen, "attrs": trial.attrs}
        if prune:
            step = new[-1][0]
            reason = Message("ended early at step %(step)s", step=step)
            gpu_s = results.gpu_seconds(trial.job)
            lifecycle.settle(trial.pk, TrialState.PRUNED, reason, results.last_value(trial), gpu_s=gpu_s, **kept)
        else:
            lifecycle.note_steps(trial.pk, **kept)


def _thin(sweep: Sweep, series: list[list]) -> None:
    """Let the pruner see fewer steps while there are too many; the same ones of all trials."""
    before = sweep.every
    while any(len(results.thinned(steps, sweep.every)) > results.MAX_STEPS for steps in series):
        sweep.every *= 2
    if sweep.every != before:
        Sweep.objects.filter(pk=sweep.pk).update(every=sweep.every)


def _stop_jobs(sweep: Sweep) -> None:
    """Cancel the jobs of trials that are over; those of pruned trials are pruned, too."""
    jobs_left = Job.objects.filter(trial__sweep=sweep, trial__state__in=ENDED_TRIALS, state__in=LIVE_JOBS)
    for job in jobs_left.select_related("user", "trial"):
        pruned = {"reason": job.trial.reason, "outcome": Outcome.PRUNED} if job.trial.state == TrialState.PRUNED else {}
        try:
            jobs.cancel(user=job.user, name=job.name, by=lifecycle.BY, **pruned)
        except (Missing, WrongState):  # it has ended meanwhile
            continue


def _forget(sweep: Sweep) -> None:
    of_trials = Job.objects.filter(trial__sweep=sweep)
    if of_trials.filter(state__in=LIVE_JOBS).exists():
        return  # their ends call again
    if sweep.trash_runs:
        trash.trash(of_trials.filter(state__in=ENDED), sweep.user, lifecycle.BY)
    lifecycle.forget(sweep.pk)


# --- whether it is over -----------------------------------------------------------------------------------------------
def _over(sweep: Sweep) -> bool:
    """End the sweep when its trials are made or a stop rule applies; return whether it has ended."""
    verdict = _verdict(sweep)
    if verdict is not None:
        lifecycle.end(sweep.pk, *verdict)
        _stop_jobs(sweep)
    return verdict is not None


def _verdict(sweep: Sweep) -> tuple[str, str] | None:
    rules = sweep.stop
    settled = list(_trials(sweep).filter(state__in=ENDED_TRIALS).order_by("ended", "pk"))
    if (reason := _too_many_failures(settled, rules["failures"])) is not None:
        return SweepState.ERROR, reason
    if (reason := _good_enough(sweep, settled)) is not None:
        return SweepState.FINISHED, reason
    if "hours" in rules and sweep.time_used >= rules["hours"] * 3600:
        return SweepState.FINISHED, Message("the time of %(hours)s h is used up", hours=f"{rules['hours']:g}")
    if "gpu_hours" in rules and gpu_seconds(sweep) >= rules["gpu_hours"] * 3600:
        return SweepState.FINISHED, Message("the %(hours)s GPU hours are used up", hours=f"{rules['gpu_hours']:g}")
    if sweep.asked >= sweep.trials_wanted and len(settled) >= sweep.asked:
        return SweepState.FINISHED, ""
    return None


def _too_many_failures(settled: list[Trial], most: int) -> str | None:
    last = [trial for trial in settled if trial.state != TrialState.CANCELLED][-most:]
    if len(last) < most or any(trial.state != TrialState.FAILED for trial in last):
        return None
    if most == 1:
        return Message("trial %(number)s failed: %(reason)s", number=last[-1].number, reason=last[-1].reason)
    return Message("the last %(count)s trials failed, the last of them: %(reason)s", count=most, reason=last[-1].reason)


def _good_enough(sweep: Sweep, settled: list[Trial]) -> str | None:
    if len(sweep.objectives) > 1:
        return None
    down = sweep.directions[0] == "minimize"
    complete = [trial for trial in settled if trial.state == TrialState.COMPLETE]
    target, patience = sweep.stop.get("target"), sweep.stop.get("patience")
    best, since = None, 0
    for trial in settled:
        value = trial.values[0] if trial in complete else None
        better = value is not None and (best is None or (value < best if down else value > best))
        best, since = (value, 0) if better else (best, since + 1)
    if target is not None and best is not None and (best <= target if down else best >= target):
        return Message("the target of %(target)s is reached", target=f"{target:g}")
    if patience is not None and best is not None and since >= patience:
        return Message("%(count)s trials in a row were no better than the best", count=since)
    return None


def gpu_seconds(sweep: Sweep) -> float:
    """Return the GPU seconds of all trials until now."""
    return gpu_seconds_of([sweep])[sweep.pk]


def gpu_seconds_of(sweeps: Sequence[Sweep]) -> dict[int, float]:
    """Return the GPU seconds of all trials of each sweep until now."""
    used = dict.fromkeys((sweep.pk for sweep in sweeps), 0.0)
    trials = Trial.objects.filter(sweep__in=sweeps).order_by()
    used |= {pk: seconds or 0.0 for pk, seconds in trials.values_list("sweep").annotate(sum=Sum("gpu_s"))}
    live = trials.filter(state=TrialState.RUNNING, job__gpu__gt=0)
    for trial in live.select_related("job"):
        used[trial.sweep_id] += results.gpu_seconds(trial.job)
    return used


# --- what comes next --------------------------------------------------------------------------------------------------
def _add_trials(sweep: Sweep) -> None:
    """Ask for new trials, as many as may run; and for what users have left open in theirs."""
    everything = list(_trials(sweep))
    live = sum(trial.is_live for trial in everything)
    wanted = min(sweep.parallel - live, sweep.trials_wanted - sweep.asked)
    partly = [trial for trial in everything if trial.state == TrialState.WAITING and trial.given and not trial.attrs]
    if wanted <= 0 and not partly:
        return
    search = Search(sweep, [trial for trial in everything if trial not in partly])
    for trial in partly:
        asked = search.ask(trial.params)
        search.numbers[trial.number] = len(search.numbers)
        lifecycle.fill(trial.pk, asked.params, asked.attrs)
    if wanted > 0:
        trials = [search.ask() for _ in range(wanted)]
        lifecycle.add_suggested(sweep.pk, sweep.asked, trials, search.study_attrs)


def _submit(sweep: Sweep) -> None:
    """Create the jobs of waiting trials."""
    running = _trials(sweep).filter(state=TrialState.RUNNING).count()
    for trial in islice(_trials(sweep).filter(state=TrialState.WAITING), max(0, sweep.parallel - running)):
        try:
            _submit_one(sweep, trial)
        except lifecycle.Begun:
            continue
        except Refused as problem:
            reason = Message(
                "trial %(number)s could not be submitted: %(reason)s", number=trial.number, reason=problem.msg
            )
            lifecycle.end(sweep.pk, SweepState.ERROR, reason)
            return


def _submit_one(sweep: Sweep, trial: Trial) -> None:
    fields = {"group": sweep.name, **sweep.job}
    texts = {name: space.text_of(value) for name, value in trial.ordered(sweep).items()}
    if sweep.pass_as == "environment":
        fields["env"] = {**fields.get("env", {}), **texts}
    else:
        dashes = "--" if sweep.pass_as == "options" else ""
        fields["args"] = [*fields.get("args", ()), *(f"{dashes}{name}={text}" for name, text in texts.items())]
    spec.with_free_name(
        sweep.name,
        trial.number,
        lambda name: jobs.create_job(
            user=sweep.user, name=name, by=lifecycle.BY, snapshot=sweep.snapshot, **spec.without_code(fields),
            within=lambda job: lifecycle.begin(trial.pk, job),
        ),
    )  # fmt: skip


def _trials(sweep: Sweep):
    return Trial.objects.filter(sweep=sweep).order_by("number")


def open_sweeps() -> list[int]:
    """Return the sweeps that are to be looked at: those that are not over, and those whose jobs are not."""
    left, late = unfinished()
    return sorted({*left.values_list("pk", flat=True), *late.values_list("trial__sweep", flat=True)})


def unfinished() -> tuple[QuerySet, QuerySet]:
    """Return the sweeps that are not over, and the jobs that go on though their trials have ended."""
    left = Sweep.objects.exclude(state__in=[SweepState.FINISHED, SweepState.ERROR])
    return left, Job.objects.filter(state__in=LIVE_JOBS, trial__state__in=ENDED_TRIALS)
