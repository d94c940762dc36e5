"""Job. Its state is changed only by jobs.lifecycle; columns of Tracked and Reporting also by tracking and jobs.idle.

Job:
    creating          --start-->  running
    running           --finish--> finished
    creating, running --fail-->   error
    running           --preempt--> creating    (in the queue again: its resources are for another job)
    finished, error   --resume--> running      (only a run that was reported from elsewhere)
    finished, error   --erase-->  deleting     (files go first, then the row)

An attempt is one run of the script. `run_name` is its name at the runner and stays until the run is cleaned up, also
after the job has ended: the resources are released only then. `run_started` distinguishes a run that was lost from one
that never started.

A run that an MLflow client reports from elsewhere (tracking.mlflow) is a row, too, with the origin `client`. It has no
process, no code and no resources, is running from the beginning, and ends when its client says so.
"""

from __future__ import annotations

import secrets
from datetime import datetime

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Case, F, Q, Value, When
from django.utils.translation import gettext_lazy as _
from django_fsm import FSMField, transition

from kernel.messages import ReasonField
from kernel.models import STOPPED, refused
from kernel.outcomes import Ending, Outcome
from kernel.registering import RegistryRights
from kernel.titles import Titled
from kernel.transitions import ConcurrentTransitionMixin

from . import nesting
from .footprint import UNREMOVED, Footprint
from .preemption import Preemptible
from .reporting import Reporting
from .submission import Submission
from .tracked import Origin, Tracked


class State(models.TextChoices):
    CREATING = "creating", _("queued")
    RUNNING = "running", _("running")
    FINISHED = "finished", _("finished")
    ERROR = "error", _("failed")
    DELETING = "deleting", _("deleting")


ENDED = (State.FINISHED, State.ERROR)
# States that only pages tell apart: a queued job is starting once its resources are reserved; an error may be a cancel.
SHOWN_ONLY = {"starting": _("starting"), **{name: Outcome(name).label for name in STOPPED}}


def new_nonce() -> str:
    return secrets.token_hex(16)


class Kept(models.Manager):
    """The jobs that are not in the trash: what lists show."""

    def get_queryset(self):
        return super().get_queryset().filter(trashed=None)


class Job(
    ConcurrentTransitionMixin, Submission, Tracked, Reporting, Preemptible, Footprint, RegistryRights, Titled, Ending
):
    """One training script of one user, run until it ends.

    What was submitted is in Submission, what its run reports in Reporting, what tracking shows of it in Tracked. Its
    `title` is the run name of MLflow's clients, too.
    """

    untitled = "job"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="jobs", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        "resources.Tenant", on_delete=models.PROTECT, related_name="jobs", verbose_name=_("tenant"))  # fmt: skip
    name = models.CharField(_("name"), max_length=50)
    state = FSMField(_("state"), default=State.CREATING, choices=State.choices, protected=True)
    reason = ReasonField(_("reason"), blank=True)
    reserved = models.BooleanField(_("resources reserved"), default=False)
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=0)
    # Of the script, where the job has failed by it; null where a signal or the platform ended it, and in earlier rows.
    exit_code = models.PositiveSmallIntegerField(_("exit code"), null=True, blank=True)
    run_name = models.CharField(_("run"), max_length=64, blank=True)
    run_started = models.BooleanField(default=False)
    not_before = models.DateTimeField(_("not before"), null=True, blank=True)
    diagnosed = models.BooleanField(default=False, db_default=False)  # jobs.doctor has seen its failure
    nonce = models.CharField(max_length=32, default=new_nonce)
    traceparent = models.CharField(max_length=55, blank=True, default="", db_default="", editable=False)
    created = models.DateTimeField(_("created"), auto_now_add=True)
    started = models.DateTimeField(_("started"), null=True, blank=True)
    ended = models.DateTimeField(_("ended"), null=True, blank=True)
    trashed = models.DateTimeField(_("in the trash since"), null=True, blank=True)
    # What pages call its state (jobs.states), for the database alone: runs are counted by an index, not read.
    display_state = models.GeneratedField(
        expression=Case(
            When(state=State.CREATING, reserved=True, then=Value("starting")),
            When(state=State.CREATING, then=Value("queued")),
            When(state=State.ERROR, outcome__in=STOPPED, then=F("outcome")),
            When(state=State.ERROR, then=Value("failed")),
            default=F("state"),
            output_field=models.CharField(),
        ),
        output_field=models.CharField(max_length=10),
        db_persist=True,
        verbose_name=_("state on pages"),
    )

    objects = models.Manager()
    kept = Kept()  # without those in the trash

    class Meta:
        db_table = "job"
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        constraints = [
            models.UniqueConstraint(fields=["user", "name"], name="job_name_once_per_user"),
            models.CheckConstraint(condition=Q(state__in=State.values), name="job_state"),
            models.CheckConstraint(condition=Q(outcome__in=["", *Outcome.values]), name="job_outcome"),
            models.CheckConstraint(condition=Q(progress__lte=100), name="job_progress"),
            models.CheckConstraint(condition=Q(origin__in=Origin.values), name="job_origin"),
        ]
        indexes = [
            models.Index(fields=["state", "id"], name="job_unsteady"),
            models.Index(fields=["user", "-id"], name="job_newest"),
            models.Index(fields=["id"], name="job_run_left", condition=~Q(run_name="")),
            models.Index(fields=["user"], name="job_reserved", condition=Q(reserved=True)),
            models.Index(fields=["user", "-started"], name="job_last_start", condition=Q(started__isnull=False)),
            models.Index(fields=["preempted_for"], name="job_preempted_for", condition=Q(preempted_for__isnull=False)),
            models.Index(fields=["id"], name="job_undiagnosed", condition=Q(state=State.ERROR, diagnosed=False)),
            models.Index(fields=["project", "-id"], name="job_of_project"),
            models.Index(fields=["project"], name="job_hidden", condition=Q(hidden=True)),
            models.Index(fields=["user", "group", "-id"], name="job_group", condition=~Q(group="")),
            models.Index(fields=["user", "display_state", "-id"], name="job_by_state", condition=Q(trashed=None)),
            models.Index(
                fields=["user", "project", "display_state", "-id"], name="job_project_state", condition=Q(trashed=None)
            ),
            models.Index(fields=["tenant", "ended"], name="job_retained", condition=UNREMOVED),
            models.Index(fields=["id"], name="job_unmeasured", condition=Q(output_measured=None)),
            models.Index(fields=["trashed"], name="job_trash", condition=Q(trashed__isnull=False)),
            models.Index(fields=["parent"], name="job_parent", condition=Q(parent__isnull=False)),
            nesting.INDEX,
            GinIndex(fields=["tags"], name="job_tags"),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"

    @property
    def shown_state(self) -> str:
        if self.state == State.CREATING and self.reserved:
            return "starting"
        return str(self.outcome) if self.was_stopped else self.state

    @property
    def shown_state_word(self) -> str:
        return str(SHOWN_ONLY.get(self.shown_state, self.get_state_display()))

    @property
    def failure(self) -> str:
        """Return the title of the job's diagnosis, empty where there is none."""
        diagnosis = getattr(self, "diagnosis", None)
        return diagnosis.title if diagnosis else ""

    @property
    def has_ended(self) -> bool:
        return self.state in (*ENDED, State.DELETING)

    @property
    def is_live(self) -> bool:
        """Return whether it is running, or about to be marked so: its run is ordered and may report already."""
        return self.state == State.RUNNING or (self.state == State.CREATING and bool(self.run_name))

    def ran_at(self, moment: datetime) -> bool:
        """Return whether a report sent at that moment was sent while this job ran; it may arrive after the end."""
        return moment >= (self.metrics_from or self.created) and self.ran_and_had_not_ended_at(moment)

    def ran_and_had_not_ended_at(self, moment: datetime) -> bool:
        """Return the same without looking at the job's creation."""
        if self.requeued and moment < self.requeued:
            return True
        return self.is_live or (self.state in ENDED and self.attempt > 0 and moment < self.ended)

    def attempt_at(self, moment: datetime) -> int:
        """Return the attempt that ran at that moment: the current one, or the previous one before `not_before`."""
        early = self.attempt > 1 and self.not_before is not None and moment < self.not_before
        return self.attempt - 1 if early else self.attempt

    @property
    def is_overdue(self) -> bool:
        """Return whether it has run for longer than its time limit."""
        return self.timeout is not None and self.state == State.RUNNING and (self.ran_for or 0) > self.timeout

    @transition(
        field=state,
        source=State.CREATING,
        target=State.RUNNING,
        custom=refused("the job is %(state)s; only a job in the queue can start"),
    )
    def start(self, *, by, reason=""):
        """Move from creating to running."""

    @transition(
        field=state,
        source=State.RUNNING,
        target=State.CREATING,
        custom=refused("the job is %(state)s; only a running job can be preempted"),
    )
    def preempt(self, *, by, reason=""):
        """Move from running back to creating."""

    @transition(
        field=state,
        source=State.RUNNING,
        target=State.FINISHED,
        custom=refused("the job is %(state)s; only a running job can finish"),
    )
    def finish(self, *, by, reason=""):
        """Move from running to finished."""
        self.progress, self.outcome = 100, Outcome.FINISHED

    @transition(
        field=state,
        source=[State.CREATING, State.RUNNING],
        target=State.ERROR,
        custom=refused("the job has already ended"),
    )
    def fail(self, *, by, reason="", outcome=Outcome.FAILED, exit_code=None):
        """Move from creating or running to error."""
        self.reason, self.outcome, self.exit_code = reason, outcome, exit_code

    @transition(
        field=state,
        source=list(ENDED),
        target=State.RUNNING,
        conditions=[lambda job: job.is_client],
        custom=refused("the job is %(state)s; a job that has ended does not run again"),
    )
    def resume(self, *, by, reason=""):
        """Move from finished or error to running: its client goes on."""
        self.reason, self.outcome, self.progress = "", "", 0

    @transition(
        field=state,
        source=list(ENDED),
        target=State.DELETING,
        custom=refused("the job has not ended; cancel it before you delete it"),
    )
    def erase(self, *, by, reason=""):
        """Move from finished or error to deleting."""
