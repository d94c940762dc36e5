"""Every change of a sweep and its trials goes through here. Called by api, pages, admin, and progress.

Locks: the user's row, then the sweep's, then its trials'. The jobs of trials are cancelled without any of these locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import User
from accounts.sharing.access import Visitor
from automation import spec
from automation.models import LIVE_TRIALS, Sweep, SweepState, Trial, TrialState
from jobs.code import sweeping
from jobs.models import ENDED, Job, RunParam, Snapshot, Source
from jobs.summaries import arguments, params
from kernel import after_commit
from kernel.database import first_row, violated
from kernel.errors import Refused
from kernel.locking import Missing, WrongState, lock_row, locked
from kernel.messages import Message
from kernel.models import StateChange, record_change, record_created
from kernel.outcomes import Outcome

from . import results, space
from .serializers import MAX_TRIALS

BY = "sweep"  # in the history of what a sweep does by itself
CANCELLED = Message("cancelled")
MAX_OPEN = 20  # sweeps of one user that run or pause


class Begun(Exception):
    """The trial has its job, or may not have one any more: raised inside the transaction that would create another."""


def require_room(user) -> None:
    """Raise Refused for a user who has as many open sweeps as are allowed."""
    if Sweep.objects.filter(user=user, state__in=[SweepState.RUNNING, SweepState.PAUSED]).count() >= MAX_OPEN:
        raise Refused("you have %(most)s sweeps that run or pause; end one first", most=MAX_OPEN)


def create_sweep(
    *,
    user,
    by: str,
    name: str,
    job: dict,
    visitor: Visitor | None = None,
    snapshot: Snapshot | None = None,
    within: Callable[[Sweep], object] | None = None,
    **fields,
) -> Sweep:
    """Store a sweep, with the code of its script as it is now, and begin. `fields` are those of SweepIn, complete.

    The code is the user's `snapshot` where one is given. `within` is called with the new sweep in the transaction that
    creates it, and refuses it by raising.

    Raises Refused: as for a job that cannot be submitted, below the field `job`; a name taken; too many sweeps.
    """
    spec.at("job", lambda: spec.need_possible(user, job, visitor=visitor))
    keeping = nullcontext(lambda: snapshot) if snapshot else spec.kept_code(user, job, visitor=visitor)
    try:
        with keeping as code, transaction.atomic():
            accounts.hold_active(user)
            require_room(user)
            sweep = Sweep.objects.create(
                user=user, name=name, title=fields.get("title", ""), job=spec.without_code(spec.settled(user, job)),
                snapshot=code(),
                parameters=list(fields["space"].items()),
                notes=fields.get("notes", ""), pass_as=fields["pass_as"], objectives=fields["objectives"],
                sampler=fields["sampler"], pruner=fields["pruner"], stop=fields["stop"],
                trials_wanted=fields["trials"], parallel=fields["parallel"],
            )  # fmt: skip
            record_created(sweep, by=by)
            if within is not None:
                within(sweep)
            go_on(sweep)
    except IntegrityError as problem:
        if violated(problem) == "sweep_name_once_per_user":
            raise Refused("you already have a sweep named %(name)s", field="name", name=name)
        raise
    return sweep


def go_on(sweep: Sweep) -> None:
    """Have the sweep looked at soon."""
    after_commit.enqueue("automation.sweep", sweep.pk)


def pause(*, user, name: str, by: str) -> Sweep:
    """Pause a sweep: its running trials go on, no new ones are made."""
    with locked(Sweep, user=user, name=name) as sweep:
        sweep.used_s = sweep.time_used
        sweep.pause(by=by)
        sweep.save()
    return sweep


def resume(*, user, name: str, by: str) -> Sweep:
    """Let a sweep that is paused or has failed go on."""
    with locked(Sweep, user=user, name=name) as sweep:
        if sweep.state == SweepState.FINISHED:
            raise WrongState("the sweep has finished; extend it by more trials")
        _resume(sweep, by)
    return sweep


def _resume(sweep: Sweep, by: str) -> None:
    sweep.resume(by=by)
    sweep.resumed, sweep.ended, sweep.reason = timezone.now(), None, ""
    sweep.save()
    go_on(sweep)


def extend(
    *, user, name: str, by: str, trials: int = 0, parallel: int | None = None, stop: dict | None = None
) -> Sweep:
    """Change how long a sweep goes on: more trials, other stop rules; one that has ended begins again with more trials.

    Raises Refused where a grid has no more points, or there would be too many trials.
    """
    with locked(Sweep, user=user, name=name) as sweep:
        if sweep.state == SweepState.DELETING:
            raise WrongState("the sweep is already being deleted")
        wanted = sweep.trials_wanted + trials
        if wanted > MAX_TRIALS:
            raise Refused("must be at most %(most)s with those that it has", field="trials", most=MAX_TRIALS)
        if trials:
            require_points(sweep, wanted)
        if stop is not None and len(sweep.objectives) > 1 and {"target", "patience"} & set(stop):
            raise Refused("is possible with one objective only", field="stop")
        sweep.trials_wanted = wanted
        sweep.parallel = parallel or sweep.parallel
        sweep.stop = sweep.stop if stop is None else dict(stop)
        if trials and not sweep.is_open:
            _resume(sweep, by)
        else:
            sweep.save()
            record_change(sweep, transition="extend", source=sweep.state, target=sweep.state, by=by)
            go_on(sweep)
    return sweep


def require_points(sweep: Sweep, wanted: int) -> None:
    """Raise Refused where a sweep can have no more trials, or a grid has fewer points than those that are wanted."""
    if wanted > MAX_TRIALS:
        raise Refused("must be at most %(most)s with those that it has", field="trials", most=MAX_TRIALS)
    if sweep.sampler["type"] == "grid":
        given = sum(bool(each) for each in sweep.trials.values_list("given", flat=True))
        if wanted - given > space.grid_size(sweep.space):
            raise Refused("the grid has no more points", field="trials")


def add_trial(*, user, name: str, values: dict, by: str) -> Trial:
    """Add a trial with values that a user has chosen; missing ones are suggested when it begins. One that has ended
    begins again for it. Raises Refused.
    """
    with locked(Sweep, user=user, name=name) as sweep:
        if sweep.state == SweepState.DELETING:
            raise WrongState("the sweep is already being deleted")
        chosen = space.need_values(sweep.space, values)
        if sweep.sampler["type"] == "grid" and len(chosen) < len(sweep.space):
            raise Refused("a trial of a grid requires all parameters", field="params")
        if sweep.asked >= MAX_TRIALS:
            raise Refused("must be at most %(most)s with those that it has", field="trials", most=MAX_TRIALS)
        trial = Trial.objects.create(sweep=sweep, number=sweep.asked, params=chosen, given=list(chosen))
        sweep.asked += 1
        sweep.trials_wanted = min(MAX_TRIALS, sweep.trials_wanted + 1)
        if not sweep.is_open:
            _resume(sweep, by)
        else:
            sweep.save()
            go_on(sweep)
        after_commit.changed(user.username, "sweep", name)
    return trial


def cancel(*, user, name: str, by: str) -> Sweep:
    """End a sweep and cancel its trials: state error with the reason "cancelled"."""
    with locked(Sweep, user=user, name=name) as sweep:
        _end(sweep, SweepState.ERROR, CANCELLED, by, Outcome.CANCELLED)
    return sweep


def end(pk: int, state: str, reason: str) -> None:
    """End a sweep that runs or pauses, as finished or error, and cancel the trials that it still has."""
    with locked(Sweep, pk=pk) as sweep:
        if sweep.is_open:
            _end(sweep, state, reason, BY)


def cancel_all_of(user, by: str) -> None:
    """End all sweeps of a de-registered user; called inside that transaction."""
    rows = Sweep.objects.filter(user=user, state__in=[SweepState.RUNNING, SweepState.PAUSED]).order_by("pk")
    for sweep in list(rows.select_for_update(no_key=True)):
        _end(sweep, SweepState.ERROR, accounts.DEACTIVATED, by, Outcome.CANCELLED)


def _end(sweep: Sweep, state: str, reason: str, by: str, outcome: str = Outcome.FAILED) -> None:
    sweep.used_s = sweep.time_used
    if state == SweepState.FINISHED:
        sweep.finish(by=by, reason=reason)
    else:
        sweep.fail(by=by, reason=reason, outcome=outcome)
    sweep.reason, sweep.ended = reason, timezone.now()
    sweep.save()
    _drop_live(sweep, CANCELLED if by != BY else Message("the sweep has ended"))
    go_on(sweep)


def _drop_live(sweep: Sweep, reason: str) -> None:
    """Mark the live trials of a locked sweep as cancelled; their jobs are cancelled in the background."""
    rows = Trial.objects.filter(sweep=sweep, state__in=LIVE_TRIALS).select_related("job").order_by("pk")
    for trial in list(rows.select_for_update(no_key=True, of=("self",))):
        trial.gpu_s = results.gpu_seconds(trial.job)
        trial.settle(TrialState.CANCELLED, by=BY, reason=reason)
        trial.save()


def delete_sweep(*, user, name: str, by: str, trash_runs: bool = False) -> Sweep:
    """Move a sweep to deleting: its trials are cancelled, then it is forgotten. Its runs stay in the table of runs, or
    are moved to the trash.
    """
    with locked(Sweep, user=user, name=name) as sweep:
        sweep.trash_runs = trash_runs
        sweep.erase(by=by)
        sweep.save()
        _drop_live(sweep, CANCELLED)
        go_on(sweep)
    return sweep


def forget(pk: int) -> None:
    """Delete the rows of a sweep in deleting whose jobs have ended."""
    with transaction.atomic():
        row = Sweep.objects.filter(pk=pk, state=SweepState.DELETING).select_related("user").first()
        if row is None:
            return
        lock_row(User, pk=row.user_id)
        sweep = lock_row(Sweep, pk=pk, state=SweepState.DELETING)
        if sweep is not None:
            snapshot = sweep.snapshot_id
            sweep.delete()
            sweeping.release(snapshot)


# --- trials -----------------------------------------------------------------------------------------------------------
def add_suggested(pk: int, asked: int, suggestions: Iterable, attrs: dict) -> bool:
    """Store new trials with what the sampler keeps. Return False, with nothing stored, when the sweep does not run any
    more or others have been added since: suggestions depend on those before them.
    """
    with locked(Sweep, pk=pk) as sweep:
        if sweep.state != SweepState.RUNNING or sweep.asked != asked:
            return False
        rows = [
            Trial(sweep=sweep, number=asked + number, params=each.params, attrs=each.attrs)
            for number, each in enumerate(suggestions)
        ]
        Trial.objects.bulk_create(rows)
        sweep.asked += len(rows)
        sweep.attrs = attrs
        sweep.save(update_fields=["asked", "attrs"])
    return True


def fill(pk: int, values: dict, attrs: dict) -> None:
    """Store the values that were suggested for what a user has left open."""
    with transaction.atomic():
        trial = lock_row(Trial, pk=pk, state=TrialState.WAITING)
        if trial is not None:
            trial.params, trial.attrs = values, attrs
            trial.save(update_fields=["params", "attrs"])


def begin(pk: int, job: Job) -> None:
    """Give a waiting trial its job; called inside the transaction that creates it. Raises Begun."""
    trial = Trial.objects.select_related("sweep").filter(pk=pk).first()
    sweep = trial and lock_row(Sweep, pk=trial.sweep_id)
    trial = trial and lock_row(Trial, pk=pk)
    if trial is None or sweep.state != SweepState.RUNNING or trial.state != TrialState.WAITING:
        raise Begun
    trial.start(by=BY)
    trial.job, trial.started = job, timezone.now()
    trial.save()
    job.title = f"{job.title or sweep.shown_name} #{trial.number}"
    job.save(update_fields=["title"])
    known = arguments.parsed(job.args)
    texts = {name: space.text_of(value) for name, value in trial.ordered(sweep).items() if name not in known}
    RunParam.objects.bulk_create(params.rows_of(job.pk, job.user_id, texts, Source.PARAMETER))
    after_commit.changed(job.user.username, "sweep", sweep.name)


def settle(pk: int, result: str, reason: str = "", values: list | None = None, **fields) -> bool:
    """Record the result of a live trial. Return False when it has one."""
    with transaction.atomic():
        trial = lock_row(Trial, pk=pk, state__in=LIVE_TRIALS)
        if trial is None:
            return False
        trial.values = values
        for name, value in fields.items():
            setattr(trial, name, value)
        trial.settle(result, by=BY, reason=reason)
        trial.save()
        sweep = Sweep.objects.select_related("user").get(pk=trial.sweep_id)
        after_commit.changed(sweep.user.username, "sweep", sweep.name)
    return True


def note_steps(pk: int, **fields) -> None:
    """Store what was read of a live trial's metric."""
    Trial.objects.filter(pk=pk, state__in=LIVE_TRIALS).update(**fields)


def note_results(pk: int, best: list[int], importance: dict) -> None:
    """Store which trials are best, and which parameters matter."""
    try:
        with locked(Sweep, pk=pk) as sweep:
            if (sweep.best, sweep.importance) != (best, importance):
                sweep.best, sweep.importance = best, importance
                sweep.save(update_fields=["best", "importance"])
                after_commit.changed(sweep.user.username, "sweep", sweep.name)
    except Missing:
        return


def job_moved(job: Job) -> None:
    """Have the sweep of a job that has begun or ended looked at; called inside the transaction of that change."""
    trial = first_row(Trial, {"job": job.pk})
    if trial is None:
        return
    after_commit.changed(job.user.username, "sweep", trial.sweep.name, moving=True)
    if job.state in ENDED:
        after_commit.enqueue("automation.sweep", trial.sweep_id)


def is_of_trial(change: StateChange) -> bool:
    """Return whether the change is of a trial's job. The owner is notified of the sweep's end only."""
    return change.kind == "job" and Trial.objects.filter(job=change.object_id).exists()
