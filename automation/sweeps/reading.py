"""Sweeps as REST and pages show them: with the number of their trials by state, the best ones, and what was used."""

from __future__ import annotations

from collections import Counter

from django.db.models import Count

from automation.models import Sweep, Trial, TrialState
from kernel.masking import HIDDEN

from . import progress, space

TONES = {  # the state of other objects that is shown alike
    TrialState.WAITING: "creating",
    TrialState.COMPLETE: "finished",
    TrialState.FAILED: "error",
}


def counts_of(sweeps: list[Sweep]) -> dict[int, Counter]:
    """Return the number of trials by state of each sweep."""
    counts: dict[int, Counter] = {sweep.pk: Counter(dict.fromkeys(TrialState.values, 0)) for sweep in sweeps}
    rows = Trial.objects.filter(sweep__in=sweeps).values_list("sweep", "state").annotate(Count("pk")).order_by()
    for pk, state, count in rows:
        counts[pk][state] = count
    return counts


def filled(sweeps: list[Sweep]) -> list[Sweep]:
    """Return the sweeps with all that SweepOut shows."""
    counts = counts_of(sweeps)
    numbers = {(sweep.pk, number) for sweep in sweeps for number in sweep.best}
    wanted = Trial.objects.filter(sweep__in=sweeps, number__in={number for _pk, number in numbers})
    best: dict[int, list[Trial]] = {}
    for trial in wanted.select_related("job").order_by("number"):
        if (trial.sweep_id, trial.number) in numbers:
            best.setdefault(trial.sweep_id, []).append(trial)
    gpu_seconds = progress.gpu_seconds_of(sweeps)
    for sweep in sweeps:
        sweep.counts, sweep.best_trials = counts[sweep.pk], marked(sweep, best.get(sweep.pk, []))
        sweep.hours_used = sweep.time_used / 3600
        sweep.gpu_hours_used = gpu_seconds[sweep.pk] / 3600
        sweep.shown_job = job_of(sweep)
    return sweeps


def job_of(sweep: Sweep) -> dict:
    """Return what each trial submits; readers do not see the values of its environment variables."""
    env = sweep.job.get("env")
    return {**sweep.job, "env": dict.fromkeys(env, HIDDEN)} if env and sweep.reading is not None else sweep.job


def _shown(value) -> float | str | None:
    """Return a value for a cell of a page, which shortens numbers that are not whole."""
    return value if value is None or isinstance(value, float) else space.text_of(value)


def trials_of(sweep: Sweep):
    """Return the trials of a sweep with their jobs."""
    return Trial.objects.filter(sweep=sweep).select_related("job")


def marked(sweep: Sweep, trials) -> list[Trial]:
    """Return the trials, each with its values in order, whether it is among the best, and the cells of its row."""
    best, nothing = set(sweep.best), [None] * len(sweep.objectives)
    rows = list(trials)
    for trial in rows:
        trial.best, trial.params = trial.number in best, trial.ordered(sweep)
        trial.results = [*(trial.values or nothing), *nothing][: len(nothing)]
        trial.cells = [_shown(trial.params.get(name)) for name in sweep.space]
        trial.tone = TONES.get(trial.state, trial.state)
    return rows
