"""Traces of programs, which they send with OpenTelemetry or MLflow: what a request did, span by span.

Times are nanoseconds since 1970 by the clock of the program that sent them; `created` is by the platform's own.
"""

from __future__ import annotations

import secrets

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .project import Project

MAX_PREVIEW = 1000  # characters


def new_key() -> str:
    """Return the id of an assessment, in MLflow's form."""
    return f"a-{secrets.token_hex(16)}"


class Trace(models.Model):
    """The spans of one id, summed up. `reported` says that an MLflow client has said how the trace ended, which its
    spans do not change any more.

    What is not known is None: the end of a trace whose root has not arrived, tokens that no span has, the cost of a
    model without a price.
    """

    stored_by = "r.user_id"  # kernel.stored

    class Status(models.TextChoices):
        IN_PROGRESS = "in_progress", _("in progress")
        OK = "ok", _("OK")
        ERROR = "error", _("error")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="traces", verbose_name=_("user")
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="traces", verbose_name=_("project"))
    key = models.CharField(_("id"), max_length=64)
    name = models.CharField(_("name"), max_length=500, blank=True, default="")
    status = models.CharField(_("status"), max_length=20, choices=Status.choices, default=Status.IN_PROGRESS)
    started_ns = models.BigIntegerField(default=0)
    ended_ns = models.BigIntegerField(null=True, blank=True)
    spans_kept = models.PositiveIntegerField(_("spans"), default=0)
    errors = models.PositiveIntegerField(_("errors"), default=0)
    input_tokens = models.BigIntegerField(_("input tokens"), null=True, blank=True)
    output_tokens = models.BigIntegerField(_("output tokens"), null=True, blank=True)
    cost = models.FloatField(_("cost"), null=True, blank=True)  # US dollars
    model = models.CharField(_("model"), max_length=250, blank=True, default="")
    request = models.TextField(_("request"), blank=True, default="")
    response = models.TextField(_("response"), blank=True, default="")
    session = models.CharField(_("session"), max_length=250, blank=True, default="")
    end_user = models.CharField(_("end user"), max_length=250, blank=True, default="")
    reported = models.BooleanField(default=False)
    tags = models.JSONField(_("tags"), default=dict, blank=True)
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "trace"
        verbose_name = _("trace")
        verbose_name_plural = _("traces")
        constraints = [
            models.UniqueConstraint(fields=["user", "key"], name="trace_once_per_user"),
            models.CheckConstraint(
                condition=models.Q(status__in=["in_progress", "ok", "error"]), name="trace_status_is_known"
            ),
        ]
        indexes = [
            models.Index(fields=["project", "-started_ns"], name="trace_of_project"),
            models.Index(fields=["created"], name="trace_by_age"),
        ]

    def __str__(self) -> str:
        return self.key

    @property
    def duration_ns(self) -> int | None:
        """Return how long it took; None while that is not known."""
        return None if self.ended_ns is None else max(0, self.ended_ns - self.started_ns)

    @property
    def tokens(self) -> int | None:
        known = [count for count in (self.input_tokens, self.output_tokens) if count is not None]
        return sum(known) if known else None


class Span(models.Model):
    """One span of a trace. `tokens` and `cost` are what its own attributes say."""

    stored_by = "r.user_id"  # kernel.stored

    class Status(models.TextChoices):
        UNSET = "unset", _("unset")
        OK = "ok", _("OK")
        ERROR = "error", _("error")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    trace = models.ForeignKey(
        Trace, on_delete=models.CASCADE, related_name="spans", verbose_name=_("trace"), db_index=False
    )
    key = models.CharField(_("id"), max_length=16)
    parent = models.CharField(_("parent"), max_length=16, blank=True, default="")
    from_afar = models.BooleanField(default=False)  # its parent is in another process, which may send to elsewhere
    name = models.CharField(_("name"), max_length=500, blank=True, default="")
    kind = models.CharField(_("kind"), max_length=20, blank=True, default="")
    type = models.CharField(_("type"), max_length=50, blank=True, default="")
    status = models.CharField(_("status"), max_length=10, choices=Status.choices, default=Status.UNSET)
    message = models.TextField(_("message"), blank=True, default="")
    started_ns = models.BigIntegerField()
    ended_ns = models.BigIntegerField(null=True, blank=True)
    attributes = models.JSONField(_("attributes"), default=dict, blank=True)
    events = models.JSONField(_("events"), default=list, blank=True)
    resource = models.JSONField(_("resource"), default=dict, blank=True)
    scope = models.CharField(_("scope"), max_length=250, blank=True, default="")
    model = models.CharField(_("model"), max_length=250, blank=True, default="")
    input_tokens = models.BigIntegerField(_("input tokens"), null=True, blank=True)
    output_tokens = models.BigIntegerField(_("output tokens"), null=True, blank=True)
    cost = models.FloatField(_("cost"), null=True, blank=True)  # US dollars

    class Meta:
        db_table = "trace_span"
        verbose_name = _("span")
        verbose_name_plural = _("spans")
        constraints = [models.UniqueConstraint(fields=["trace", "key"], name="span_once_per_trace")]

    def __str__(self) -> str:
        return self.key


class Assessment(models.Model):
    """What people, programs or models say of a trace: feedback, or what was expected of it."""

    stored_by = "r.user_id"  # kernel.stored

    class Kind(models.TextChoices):
        FEEDBACK = "feedback", pgettext_lazy("trace", "feedback")
        EXPECTATION = "expectation", _("expectation")

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    trace = models.ForeignKey(Trace, on_delete=models.CASCADE, related_name="assessments", verbose_name=_("trace"))
    key = models.CharField(_("id"), max_length=34, unique=True, default=new_key)
    name = models.CharField(_("name"), max_length=250)
    kind = models.CharField(_("kind"), max_length=20, choices=Kind.choices, default=Kind.FEEDBACK)
    value = models.JSONField(_("value"), null=True, blank=True)
    error = models.JSONField(_("error"), null=True, blank=True)
    rationale = models.TextField(_("rationale"), blank=True, default="")
    source_type = models.CharField(_("source"), max_length=50, default="HUMAN")
    source = models.CharField(_("source"), max_length=250, blank=True, default="")
    span = models.CharField(_("span"), max_length=16, blank=True, default="")
    metadata = models.JSONField(_("metadata"), default=dict, blank=True)
    overrides = models.CharField(max_length=34, blank=True, default="")
    valid = models.BooleanField(default=True)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())

    class Meta:
        db_table = "trace_assessment"
        verbose_name = _("assessment")
        verbose_name_plural = _("assessments")
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.key


class TraceLink(models.Model):
    """A run that a trace belongs to, beside the one in which it was made: an evaluation of it, for instance."""

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    trace = models.ForeignKey(
        Trace, on_delete=models.CASCADE, related_name="links", verbose_name=_("trace"), db_index=False
    )
    run = models.CharField(_("run"), max_length=32)  # the id of the run, as MLflow has it

    class Meta:
        db_table = "trace_link"
        verbose_name = _("run of a trace")
        verbose_name_plural = _("runs of traces")
        constraints = [models.UniqueConstraint(fields=["trace", "run"], name="run_once_per_trace")]
        indexes = [models.Index(fields=["run"], name="trace_link_of_run")]

    def __str__(self) -> str:
        return self.run
