"""The verbs of canaries: before an application moves to another model, a share of the requests goes to the new run.

The plan belongs to the application and holds for every move, also for one that an alias causes: steps of a share and a
time, and rules that end the move. The rollout is in the phase `canary` meanwhile. After the last step, or on request,
all requests go to the new run; a rule that is broken ends it, and the application serves what it served before.

    {"steps": [{"percent": 10, "minutes": 30}, {"percent": 50, "minutes": 0}], "max_errors_percent": 2,
     "max_p95_ms": 300, "sticky": "X-User-Id", "metric": {"name": "clicks", "min": 0.1}}

A step of 0 minutes lasts until somebody sets another share. Where the tenant approves rollouts, more requests go to the
new run only after that (apps.approvals): until then they are `proposed`. Each verb holds the application's lock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from django.utils import timezone

from kernel import after_commit, trash
from kernel.errors import Refused
from kernel.locking import WrongState, lock_row, locked
from kernel.messages import Message
from runners import owned

from . import approvals, reported_metrics, rollouts, runs, second_runs
from .models import Application, Rollout, State
from .reported_metrics import Reported
from .second_runs import locked_run
from .shadows import rows as shadow_rows

Phase = Rollout.Phase
OPTIONS = ("max_errors_percent", "max_p95_ms", "sticky")
METRIC = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,49}", re.ASCII)
MAX_STEPS = 10
MAX_MINUTES = 7 * 24 * 60
MAX_MS = 3_600_000
SHARE = ("percent", "proposed", "step_since")  # the columns of a share
FEWEST = 20  # requests, before a rule is applied
HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}", re.ASCII)


def set_plan(*, user, name: str, by: str, **plan) -> Application:
    """Set how the application's moves begin; without steps they have no canary. One that is under way keeps its share,
    and the plan's rules and times count for it from now on.

    Raises Missing, Refused.
    """
    with locked(Application, user=user, name=name) as app:
        trash.require_kept(app)
        app.canary = checked(plan)
        app.save(update_fields=["canary"])
        after_commit.changed(app.user.username, "application", app.name)
    return app


def checked(plan: dict) -> dict:
    """Return a plan with only what is set. Raises Refused."""
    steps, last = plan.get("steps") or [], 0
    if len(steps) > MAX_STEPS:
        raise Refused("at most %(limit)s are allowed", field="steps", limit=MAX_STEPS)
    for number, step in enumerate(steps):
        if not last < step["percent"] < 100:
            raise Refused("must be more than the step before, and less than 100", field=f"steps.{number}.percent")
        if not 0 <= step.get("minutes", 0) <= MAX_MINUTES:
            field = f"steps.{number}.minutes"
            raise Refused("must be from %(first)s to %(last)s", field=field, first=0, last=MAX_MINUTES)
        last = step["percent"]
    for field, most in (("max_errors_percent", 100), ("max_p95_ms", MAX_MS)):
        if plan.get(field) is not None and not 0 <= plan[field] <= most:
            raise Refused("must be from %(first)s to %(last)s", field=field, first=0, last=most)
    if plan.get("sticky") and not HEADER.fullmatch(plan["sticky"]):
        raise Refused("must be the name of a header, such as X-User-Id", field="sticky")
    given = {key: plan[key] for key in OPTIONS if plan.get(key) not in (None, "")}
    if plan.get("metric"):
        given["metric"] = _metric(plan["metric"])
    kept = [{"percent": step["percent"], "minutes": step.get("minutes", 0)} for step in steps]
    return {"steps": kept, **given} if kept else {}


def _metric(given: dict) -> dict:
    """Return a rule for what callers report, with only what is set. Raises Refused."""
    if not METRIC.fullmatch(given.get("name") or ""):
        raise Refused("must be 1 to 50 letters, digits and . _ -, beginning with a letter", field="metric.name")
    bounds = {field: given[field] for field in ("min", "max") if given.get(field) is not None}
    if not bounds:
        raise Refused("give the least mean in min, the largest in max, or both", field="metric")
    if bounds.get("min", -reported_metrics.MOST) > bounds.get("max", reported_metrics.MOST):
        raise Refused("must be at least the smallest number, %(least)s", field="metric.max", least=bounds["min"])
    return {"name": given["name"], **bounds}


def is_planned(app: Application, rollout: Rollout) -> bool:
    """Return whether the move begins with a canary: to another model, of an application that is up."""
    return bool(app.canary.get("steps")) and rollout.model_id != app.model_id and app.state == State.READY


def begin(pk: int, run_name: str, address: str, alias: str) -> None:
    """Let a share of the requests go to the new run, which answers at `address`; all where no canary is planned, none
    before an approval that is needed, and none to a shadow.
    """
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or rollout.phase != Phase.STARTING or rollout.run_name != run_name:
            return
        if rollout.shadow_id is not None and rollout.proposed is None:
            runs.come_up(app, run_name)
            rollout.watch(address)
            rollout.save()
            shadow_rows.come_up(app, rollout)
            return
        if is_planned(app, rollout) or rollouts.is_approved(app, rollout.model):
            runs.come_up(app, run_name)
            if rollout.percent is None:
                rollout.step = 0
                _offer(app, rollout, _shares(app)[0], rollout.by or alias)
            rollout.share(address)
            rollout.save()
            return
    rollouts.switch(pk, run_name, address, alias)


def _shares(app: Application) -> list[int]:
    """Return the shares of the plan's steps, and of what follows them."""
    return [*(step["percent"] for step in app.canary.get("steps") or []), 100]


def _offer(app: Application, rollout: Rollout, percent: int, by: str) -> None:
    """Let a share of the requests go to the new run of a locked rollout, which the caller saves; more than now only
    after an approval, where the tenant wants that.
    """
    if app.tenant.approves_rollouts and percent > (rollout.percent or 0):
        rollout.percent, rollout.proposed = rollout.percent or 0, percent
        approvals.ask(app, rollout, by)
        return
    rollout.percent, rollout.proposed, rollout.step_since = percent, None, timezone.now()
    reason = Message("%(percent)s %% of the requests go to the model %(name)s", percent=percent,
                     name=rollout.model.name)  # fmt: skip
    approvals.record(app, by, reason)


def offer_all(app: Application, rollout: Rollout, by: str) -> None:
    """Let all requests go to the run of a locked rollout, which the caller saves, once that is approved."""
    rollout.step = MAX_STEPS
    _offer(app, rollout, 100, by)


def in_step(rollout: Rollout, requests: int, failures: int) -> tuple[int, int]:
    """Return how many of the requests and failures that the run has counted are of the present step, which begins to
    count with the first look at it.
    """
    if rollout.base_of == rollout.step_since and requests >= rollout.base_requests:
        return requests - rollout.base_requests, max(failures - rollout.base_failures, 0)
    with locked_run(Rollout, rollout.pk, run_name=rollout.run_name) as (_app, row):
        if row is not None and row.step_since == rollout.step_since:
            row.base_of, row.base_requests, row.base_failures = row.step_since, requests, failures
            row.save(update_fields=["base_of", "base_requests", "base_failures"])
    return 0, 0


def is_judged(rollout: Rollout, requests: int) -> bool:
    """Return whether the present step has had as many requests and reports as the rules of the plan need."""
    plan = rollout.app.canary
    ruled = plan.get("max_errors_percent") is not None or plan.get("max_p95_ms") is not None
    reported = reported_of(rollout)
    return not (ruled and requests < FEWEST) and (reported is None or reported[reported_metrics.NEW].count >= FEWEST)


def advance(rollout: Rollout, alias: str, judged: bool = True) -> None:
    """Begin the next step of the plan once the time of this one is over, and it was `judged` by the rules; after the
    last all requests go to the new run.
    """
    if rollout.percent == 100:  # approved, and interrupted before the switch
        rollouts.switch(rollout.pk, rollout.run_name, rollout.address, alias)
        return
    steps = rollout.app.canary.get("steps") or []
    minutes = steps[rollout.step].get("minutes", 0) if rollout.step < len(steps) else 0
    if rollout.proposed is not None:
        if not rollout.app.tenant.approves_rollouts:  # any more
            approve(rollout.pk, rollout.run_name, rollout.proposed, rollout.by or alias)
        return
    if not judged or not minutes or owned.seconds_since(rollout.step_since) < 60 * minutes:
        return
    with locked_run(Rollout, rollout.pk) as (app, row):
        if row is None or row.phase != Phase.CANARY or row.step != rollout.step or row.proposed is not None:
            return
        shares = _shares(app)
        if row.step + 1 < len(shares) - 1 or app.tenant.approves_rollouts:
            row.step += 1
            _offer(app, row, shares[min(row.step, len(shares) - 1)], row.by or alias)
            row.save(update_fields=["step", *SHARE])
            return
    rollouts.switch(rollout.pk, rollout.run_name, rollout.address, alias)


def set_percent(*, user, name: str, by: str, percent: int | None) -> Application:
    """Set the share of the requests that go to the new run; 100 ends the move. The plan's steps no longer count.

    Raises Missing; Refused for a share that cannot be; WrongState without a canary.
    """
    if percent is None or not 0 <= percent <= 100:
        raise Refused("must be from %(first)s to %(last)s", field="percent", first=0, last=100)
    with locked(Application, user=user, name=name) as app:
        rollout = lock_row(Rollout, app=app)
        if rollout is None or rollout.phase != Phase.CANARY:
            raise WrongState("the application has no canary now")
        if percent < 100 or app.tenant.approves_rollouts:
            rollout.step = MAX_STEPS
            _offer(app, rollout, percent, by)
            rollout.save(update_fields=["step", *SHARE])
            return app
        found = (rollout.pk, rollout.run_name, rollout.address)
    rollouts.switch(*found, alias=by)
    return app


def approve(pk: int, run_name: str, percent: int, by: str) -> Application:
    """Let the proposed share of the requests go to the new run. Raises Missing; WrongState where that run or share is
    not proposed any more.
    """
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is None or (rollout.phase, rollout.run_name, rollout.proposed) != (Phase.CANARY, run_name, percent):
            raise WrongState("what was to be approved has changed; look at it again")
        rollout.percent, rollout.proposed, rollout.step_since = percent, None, timezone.now()
        rollout.save(update_fields=SHARE)
        approvals.record(app, by, Message("approved: %(percent)s %% of the requests go to the model %(name)s",
                                          percent=percent, name=rollout.model.name))  # fmt: skip
        address = rollout.address
    if percent == 100:
        rollouts.switch(pk, run_name, address, alias=by)
    return app


def broken_rule(plan: dict, requests: int, failures: int, p95_ms: float | None) -> Message | None:
    """Return which rule of the plan the new run breaks; None while there are too few requests to say."""
    if requests < FEWEST:
        return None
    most = plan.get("max_errors_percent")
    if most is not None and 100 * failures > most * requests:
        return Message("%(share)s %% of its requests failed, at most %(most)s %% may", most=most,
                       share=round(100 * failures / requests, 1))  # fmt: skip
    longest = plan.get("max_p95_ms")
    if longest is not None and p95_ms is not None and p95_ms > longest:
        return Message("its p95 latency was %(ms)s ms, at most %(most)s ms may be", ms=round(p95_ms), most=longest)
    return None


def broken_metric(plan: dict, reported: Reported) -> Message | None:
    """Return which bound of the plan the mean of what was reported of the new model breaks; None while there are too
    few reports to say.
    """
    metric = plan.get("metric", {})
    if reported.count < FEWEST:
        return None
    values = {"name": metric["name"], "mean": f"{reported.mean:.4g}", "count": reported.count}
    if "min" in metric and reported.mean < metric["min"]:
        return Message("the mean of %(name)s was %(mean)s in %(count)s reports, at least %(bound)s is needed",
                       bound=metric["min"], **values)  # fmt: skip
    if "max" in metric and reported.mean > metric["max"]:
        return Message("the mean of %(name)s was %(mean)s in %(count)s reports, at most %(bound)s may be",
                       bound=metric["max"], **values)  # fmt: skip
    return None


def reported_of(rollout: Rollout) -> Mapping[str, Reported] | None:
    """Return what callers have reported in the present step of a canary; None without a canary or a metric."""
    if rollout.phase != Phase.CANARY or not rollout.app.canary.get("metric"):
        return None
    return reported_metrics.read(rollout)


def restart(pk: int, run_name: str) -> None:
    """Order another run of a canary or a shadow whose run was stopped with the platform; its share stays."""
    with locked_run(Rollout, pk) as (app, rollout):
        if rollout is not None and rollout.phase in (Phase.CANARY, Phase.SHADOW) and rollout.run_name == run_name:
            runs.end(app, run_name, runs.Outcome.RESTARTED)
            second_runs.order(app, rollout, rollout.model)
            rollout.save()
