"""Pipeline, PipelineRun and Step. Written only through automation.pipelines.

PipelineRun:
    running           --finish--> finished
    running           --fail-->   error      (a step has failed or was rejected, or it was cancelled)
    any but deleting  --erase-->  deleting   (its jobs end first, then the rows are deleted)

Step, of one run:
    waiting --start--> running --settle--> complete, failed or cancelled
    waiting --ask-->   approval --settle--> complete or failed
    waiting --settle--> cached, skipped, failed or cancelled

A step's job is created in the transaction that starts the step: a killed platform neither loses a step nor runs it
twice.
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


class RunState(models.TextChoices):
    RUNNING = "running", _("running")
    FINISHED = "finished", _("finished")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


class StepState(models.TextChoices):
    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    APPROVAL = "approval", _("waits for approval")
    COMPLETE = "complete", _("complete")
    CACHED = "cached", _("unchanged")
    SKIPPED = "skipped", _("skipped")
    FAILED = "failed", _("failed")
    CANCELLED = "cancelled", _("cancelled")


LIVE_STEPS = (StepState.WAITING, StepState.RUNNING, StepState.APPROVAL)
DONE_STEPS = (StepState.COMPLETE, StepState.CACHED)
ENDS = (StepState.COMPLETE, StepState.CACHED, StepState.SKIPPED, StepState.FAILED, StepState.CANCELLED)


class Pipeline(Titled):
    """A graph of steps. `steps` is a list of [name, step] in an order in which none comes before what it needs."""

    stored_by = "r.user_id"  # kernel.stored
    untitled = "pipeline"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="pipelines", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=40)
    notes = models.TextField(_("notes"), blank=True, default="")
    params = models.JSONField(_("parameters"), default=dict)
    steps = models.JSONField(_("steps"))
    last = models.PositiveIntegerField(_("runs so far"), default=0)
    deleted = models.BooleanField(default=False, db_default=False)  # it is gone once its runs are
    created = models.DateTimeField(_("created"), auto_now_add=True)
    updated = models.DateTimeField(_("changed"), default=timezone.now)

    class Meta:
        db_table = "pipeline"
        verbose_name = _("pipeline")
        verbose_name_plural = _("pipelines")
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="pipeline_name_once_per_user")]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"


class PipelineRun(ConcurrentTransitionMixin, Ending):
    """One run of a pipeline, with its parameters and the steps as they were when it began."""

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="pipeline_runs", verbose_name=_("user")
    )
    pipeline = models.ForeignKey(Pipeline, on_delete=models.CASCADE, related_name="runs", verbose_name=_("pipeline"))
    number = models.PositiveIntegerField(_("number"))
    state = FSMField(_("state"), default=RunState.RUNNING, choices=RunState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    params = models.JSONField(_("parameters"), default=dict)
    wanted = models.PositiveBigIntegerField(default=0)  # counts who wants it to go on; see kernel.exclusive
    created = models.DateTimeField(_("created"), auto_now_add=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "pipeline_run"
        verbose_name = _("pipeline run")
        verbose_name_plural = _("pipeline runs")
        constraints = [
            models.UniqueConstraint(fields=["pipeline", "number"], name="pipeline_run_number_once"),
            models.CheckConstraint(condition=Q(state__in=RunState.values), name="pipeline_run_state"),
            models.CheckConstraint(condition=Q(outcome__in=["", *Outcome.values]), name="pipeline_run_outcome"),
        ]
        indexes = [
            models.Index(fields=["state"], name="pipeline_run_open", condition=Q(state__in=["running", "deleting"]))
        ]

    def __str__(self) -> str:
        return f"{self.pipeline} {self.number}"

    @property
    def history_name(self) -> str:
        return f"{self.pipeline.name}/{self.number}"

    @property
    def name(self) -> str:
        """Return what the run is called where it stands beside jobs and sweeps."""
        return self.history_name

    @property
    def title(self) -> str:
        """Return the title of its pipeline with its number, "" where that has none."""
        return f"{self.pipeline.title} {self.number}" if self.pipeline.title else ""

    @property
    def shown_name(self) -> str:
        return self.title or self.name

    @transition(
        field=state, source=RunState.RUNNING, target=RunState.FINISHED, custom=refused("the run has already ended")
    )
    def finish(self, *, by, reason=""):
        """Move from running to finished."""
        self.outcome = Outcome.FINISHED

    @transition(
        field=state, source=RunState.RUNNING, target=RunState.ERROR, custom=refused("the run has already ended")
    )
    def fail(self, *, by, reason="", outcome=Outcome.FAILED):
        """Move from running to error."""
        self.reason, self.outcome = reason, outcome

    @transition(
        field=state,
        source=[RunState.RUNNING, RunState.FINISHED, RunState.ERROR],
        target=RunState.DELETING,
        custom=refused("the run is already being deleted"),
    )
    def erase(self, *, by, reason=""):
        """Move to deleting."""


class Step(ConcurrentTransitionMixin, models.Model):
    """One step of a run. `spec` is the step as the run began with it, parameters filled in. `key` is what its result
    depends on (automation.pipelines.caching). `job` is its own, of a cached step the earlier one's.
    """

    stored_by = "(SELECT user_id FROM pipeline_run WHERE id = r.run_id)"  # kernel.stored

    keeps_own_history = True  # the job's history says it all

    run = models.ForeignKey(PipelineRun, on_delete=models.CASCADE, related_name="steps", verbose_name=_("run"))
    place = models.PositiveSmallIntegerField(_("place"))
    name = models.CharField(_("name"), max_length=40)
    spec = models.JSONField(_("step"))
    snapshot = models.ForeignKey(
        "jobs.Snapshot", on_delete=models.PROTECT, null=True, blank=True, related_name="steps", verbose_name=_("code")
    )
    state = FSMField(_("state"), default=StepState.WAITING, choices=StepState.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    key = models.CharField(max_length=64, blank=True, default="")
    job = models.ForeignKey(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="steps", verbose_name=_("job")
    )
    by = models.CharField(_("decided by"), max_length=80, blank=True, default="")
    started = models.DateTimeField(_("started"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)

    class Meta:
        db_table = "pipeline_step"
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        ordering = ["place"]
        constraints = [
            models.UniqueConstraint(fields=["run", "name"], name="step_name_once"),
            models.CheckConstraint(condition=Q(state__in=StepState.values), name="step_state"),
        ]
        indexes = [models.Index(fields=["key"], name="step_result", condition=Q(state="complete"))]

    def __str__(self) -> str:
        return f"{self.run_id} {self.name}"

    @property
    def needs(self) -> list[str]:
        return self.spec["needs"]

    @transition(field=state, source=StepState.WAITING, target=StepState.RUNNING, custom=refused("the step has begun"))
    def start(self, *, by, reason=""):
        """Move from waiting to running."""
        self.started = timezone.now()

    @transition(field=state, source=StepState.WAITING, target=StepState.APPROVAL, custom=refused("the step has begun"))
    def ask(self, *, by, reason=""):
        """Move from waiting to approval."""
        self.started = timezone.now()

    @transition(field=state, source=list(LIVE_STEPS), target=RETURN_VALUE(*ENDS), custom=refused("the step has ended"))
    def settle(self, result: str, *, by, reason=""):
        """Move to a result."""
        self.reason, self.ended = reason, timezone.now()
        return result
