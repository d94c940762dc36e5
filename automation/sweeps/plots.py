"""What the plots of a sweep's page draw: its trials with their values, results and times."""

from __future__ import annotations

from automation.models import Sweep, Trial

MAX = 1000  # trials in the plots: the newest, and the best


def plots_of(sweep: Sweep) -> dict:
    """Return what mlp/static/mlp/sweeps.js draws.

    `params` are {name, log}, `objectives` as in REST. Each trial is {n, state, values: one for each parameter or None,
    results: one for each objective, or None, from, to: seconds since 1970 or None, job, best}.
    """
    rows = Trial.objects.filter(sweep=sweep)
    shown = {trial.number: trial for trial in rows.filter(number__in=sweep.best).select_related("job")}
    shown |= {trial.number: trial for trial in rows.select_related("job").order_by("-number")[:MAX]}
    return {
        "params": [{"name": name, "log": bool(each.get("log"))} for name, each in sweep.space.items()],
        "objectives": sweep.objectives,
        "trials": [_drawn(sweep, shown[number]) for number in sorted(shown)],
    }


def _drawn(sweep: Sweep, trial: Trial) -> dict:
    return {
        "n": trial.number,
        "state": trial.state,
        "values": [_plain(trial.params.get(name)) for name in sweep.space],
        "results": trial.values,
        "from": trial.started and trial.started.timestamp(),
        "to": trial.ended and trial.ended.timestamp(),
        "job": trial.job.name if trial.job else "",
        "best": trial.number in sweep.best,
    }


def _plain(value):
    """Return a value for an axis, whose texts are sorted: true and false are texts there."""
    return str(value).lower() if isinstance(value, bool) else value


def bars(sweep: Sweep) -> list[dict]:
    """Return for each metric how much each parameter matters, the most important first: [{metric, shares}]."""
    return [
        {"metric": metric, "shares": [(name, round(100 * share, 1)) for name, share in _sorted(shares)]}
        for metric, shares in sweep.importance.items()
    ]


def _sorted(shares: dict) -> list:
    return sorted(shares.items(), key=lambda item: -item[1])
