"""Sweep and Trial. Written only through automation.sweeps.

Sweep:
    running           --pause-->  paused
    paused            --resume--> running
    finished, error   --resume--> running    (it is extended, or tries again)
    running, paused   --finish--> finished
    running, paused   --fail-->   error
    any but deleting  --erase-->  deleting   (its jobs end first, then the rows are deleted)

Trial:
    waiting           --start-->  running    (its job exists)
    waiting, running  --settle--> complete, pruned, failed or cancelled

A waiting trial has its values: they are stored before its job is created, and the job is created in the transaction
that starts the trial. So a killed platform neither loses a trial nor runs one twice.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django_fsm import RETURN_VALUE, FSMField, transition

from kernel.messages import ReasonField
from kernel.models import refused
from kernel.outcomes import Ending, Outcome
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin


class SweepState(models.TextChoices):
    RUNNING = "running", _("running")
    PAUSED = "paused", _("paused")
    FINISHED = "finished", _("finished")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


class TrialState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    COMPLETE = "complete", _("complete")
    PRUNED = "pruned", _("pruned")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


LIVE_TRIALS = (TrialState.WAITING, TrialState.RUNNING)
ENDED_TRIALS = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED, TrialState.CANCELLED)
OPEN = (SweepState.RUNNING, SweepState.PAUSED)
ENDED = (SweepState.FINISHED, SweepState.ERROR)


class Sweep(ConcurrentTransitionMixin, Titled, Ending):
    """A search for the best arguments of a script.

    `job` is what each trial submits (automation.spec), `snapshot` its code. `objectives`, `sampler`, `pruner` and
    `stop` are as in REST (automation.sweeps.serializers), complete with defaults. `attrs` is what the sampler keeps of
    the study; `best` are the numbers of the best trial or of the Pareto front; `importance` is by parameter.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "sweep"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="sweeps", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=50)
    state = FSMField(_("state"), default=SweepState.RUNNING, choices=SweepState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    notes = models.TextField(_("notes"), blank=True, default="")
    job = models.JSONField(_("job"))
    snapshot = models.ForeignKey(
        "jobs.Snapshot", on_delete=models.PROTECT, related_name="sweeps", verbose_name=_("code")
    )
    parameters = models.JSONField(_("search space"))  # [name, parameter] in order: an object would lose it
    pass_as = models.CharField(_("values are passed as"), max_length=12)
    objectives = models.JSONField(_("objectives"))
    sampler = models.JSONField(_("sampler"))
    pruner = models.JSONField(_("pruner"))
    stop = models.JSONField(_("stop rules"))
    trials_wanted = models.PositiveIntegerField(_("trials"))
    parallel = models.PositiveSmallIntegerField(_("at the same time"))
    asked = models.PositiveIntegerField(default=0)  # trials made so far, which is the next one's number
    every = models.PositiveIntegerField(default=1)  # of the reported steps that the pruner sees
    attrs = models.JSONField(default=dict)
    best = models.JSONField(_("best trials"), default=list)
    importance = models.JSONField(_("importance"), default=dict)
    wanted = models.PositiveBigIntegerField(default=0)  # counts who wants it to go on; see automation.sweeps.progress
    trash_runs = models.BooleanField(default=False)  # when it is deleted
    created = models.DateTimeField(_("created"), auto_now_add=True)
    resumed = models.DateTimeField(_("running since"), default=timezone.now)
    used_s = models.FloatField(_("time used (s)"), default=0)  # before `resumed`
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "sweep"
        verbose_name = _("sweep")
        verbose_name_plural = _("sweeps")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="sweep_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=SweepState.values), name="sweep_state"),
            models.CheckConstraint(condition=Q(outcome__in=["", *Outcome.values]), name="sweep_outcome"),
        ]
        indexes = [models.Index(fields=["state"], name="sweep_open", condition=~Q(state__in=ENDED))]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN

    @property
    def space(self) -> dict[str, dict]:
        """Return the parameters by name, each after those that its condition names."""
        return dict(self.parameters)

    @property
    def directions(self) -> list[str]:
        """Return minimize or maximize for each objective."""
        return [each["direction"] for each in self.objectives]

    @property
    def time_used(self) -> float:
        """Return the seconds that it has been running, without pauses."""
        more = (timezone.now() - self.resumed).total_seconds() if self.state == SweepState.RUNNING else 0.0
        return self.used_s + max(0.0, more)

    @transition(
        field=state,
        source=SweepState.RUNNING,
        target=SweepState.PAUSED,
        custom=refused("the sweep is %(state)s; only a running sweep can be paused"),
    )
    def pause(self, *, by, reason=""):
        """Move from running to paused: no new trials are made."""

    @transition(
        field=state,
        source=[SweepState.PAUSED, *ENDED],
        target=SweepState.RUNNING,
        custom=refused("the sweep is %(state)s; it cannot be resumed"),
    )
    def resume(self, *, by, reason=""):
        """Move from paused, finished or error to running."""
        self.outcome = ""

    @transition(
        field=state,
        source=list(OPEN),
        target=SweepState.FINISHED,
        custom=refused("the sweep has already ended"),
    )
    def finish(self, *, by, reason=""):
        """Move from running or paused to finished."""
        self.outcome = Outcome.FINISHED

    @transition(
        field=state,
        source=list(OPEN),
        target=SweepState.ERROR,
        custom=refused("the sweep has already ended"),
    )
    def fail(self, *, by, reason="", outcome=Outcome.FAILED):
        """Move from running or paused to error."""
        self.outcome = outcome

    @transition(
        field=state,
        source=[*OPEN, *ENDED],
        target=SweepState.DELETING,
        custom=refused("the sweep is already being deleted"),
    )
    def erase(self, *, by, reason=""):
        """Move to deleting."""


class Trial(ConcurrentTransitionMixin, models.Model):
    """One set of values, tried by one job.

    `params` are the values by parameter, `given` names those that a user has chosen. `values` has a number for each
    objective once it is complete; of a pruned trial, what it had reached. `steps` are [step, value] of the objective,
    as far as the pruner has seen them; `seen` is the last row that was read for them. `attrs` is the sampler's.
    """

    stored_by = "(SELECT user_id FROM sweep WHERE id = r.sweep_id)"  # kernel.stored

    keeps_own_history = True  # the job's history says it all

    sweep = models.ForeignKey(Sweep, on_delete=models.CASCADE, related_name="trials", verbose_name=_("sweep"))
    number = models.PositiveIntegerField(_("number"))
    state = FSMField(_("state"), default=TrialState.WAITING, choices=TrialState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    params = models.JSONField(_("values"))
    given = models.JSONField(default=list)
    attrs = models.JSONField(default=dict)
    values = models.JSONField(_("results"), null=True, blank=True)
    steps = models.JSONField(default=list)
    seen = models.BigIntegerField(default=0)
    job = models.OneToOneField(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="trial", verbose_name=_("job")
    )
    created = models.DateTimeField(_("created"), auto_now_add=True)
    started = models.DateTimeField(_("started"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    gpu_s = models.FloatField(_("GPU seconds"), default=0)

    class Meta:
        db_table = "sweep_trial"
        verbose_name = _("trial")
        verbose_name_plural = _("trials")
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["sweep", "number"], name="trial_number_once"),
            models.CheckConstraint(condition=Q(state__in=TrialState.values), name="trial_state"),
        ]

    def __str__(self) -> str:
        return f"{self.sweep_id} #{self.number}"

    @property
    def is_live(self) -> bool:
        return self.state in LIVE_TRIALS

    def ordered(self, sweep: Sweep) -> dict:
        """Return the values in the order of the sweep's parameters."""
        return {name: self.params[name] for name in sweep.space if name in self.params}

    @transition(
        field=state, source=TrialState.WAITING, target=TrialState.RUNNING, custom=refused("the trial has begun")
    )
    def start(self, *, by, reason=""):
        """Move from waiting to running."""

    @transition(
        field=state,
        source=list(LIVE_TRIALS),
        target=RETURN_VALUE(*ENDED_TRIALS),
        custom=refused("the trial has ended"),
    )
    def settle(self, result: str, *, by, reason=""):
        """Move from waiting or running to its result."""
        self.reason = reason
        self.ended = timezone.now()
        return result
