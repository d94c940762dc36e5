"""Diagnosis: why a job failed, written once when it has. FailureRule: what administrators add to the shipped rules.

Written only through jobs.doctor; docs/jobs.md describes both.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import get_language
from django.utils.translation import gettext_lazy as _

from kernel.messages import ReasonField, translate

from .job import Job

CHINESE = "zh-hans"


class Where(models.TextChoices):
    """The text that a rule's pattern is searched in."""

    EXCEPTION = "exception", _("the last exception")
    LOG = "log", _("the end of the log")
    REASON = "reason", _("the reason of the end")


class Action(models.TextChoices):
    """What a failed job's page offers."""

    NONE = "", _("nothing")
    MORE_MEMORY = "more_memory", _("Run again with twice the memory")
    AGAIN = "again", _("Run again")
    EDIT = "edit", _("Edit the script")
    UPLOAD_SCRIPT = "upload_script", _("Upload the file")
    DATASET = "dataset", _("Choose or upload a dataset")
    NETWORK = "network", _("Run again with another network")
    FORM = "form", _("Edit and run again")
    USAGE = "usage", _("Show the usage")
    CHART = "chart", _("Show the metrics")


class FailureRule(models.Model):
    """A pattern of failures, with what it means. Of a row with `shipped` set, the key of a rule that comes with the
    platform, only `active` and `order` count: the rest repeats that rule.
    """

    shipped = models.CharField(_("comes with the platform"), max_length=60, blank=True, default="", editable=False)
    title = models.CharField(_("title"), max_length=120)
    title_zh = models.CharField(_("title in Chinese"), max_length=120, blank=True)
    pattern = models.CharField(
        _("pattern"), max_length=1000,
        help_text=_("A regular expression (RE2 syntax, no look-around or back-references), searched in each line."),
    )  # fmt: skip
    where = models.CharField(_("searched in"), max_length=10, choices=Where.choices, default=Where.EXCEPTION)
    explanation = models.TextField(
        _("explanation"), max_length=2000,
        help_text=_(
            "What the failure means and what to do. %(name)s is replaced by the text that the group "
            "(?P&lt;name&gt;…) has matched."
        ),
    )  # fmt: skip
    explanation_zh = models.TextField(_("explanation in Chinese"), max_length=2000, blank=True)
    action = models.CharField(_("button"), max_length=20, choices=Action.choices, blank=True, default=Action.NONE)
    example = models.TextField(
        _("example"), max_length=4000, help_text=_("Text that the pattern must match; checked when the rule is saved.")
    )
    order = models.PositiveSmallIntegerField(
        _("order"), default=50, validators=[MinValueValidator(0), MaxValueValidator(1000)],
        help_text=_("The first rule that matches counts. Shipped rules begin at 100."),
    )  # fmt: skip
    active = models.BooleanField(_("active"), default=True)

    class Meta:
        db_table = "failure_rule"
        verbose_name = _("failure rule")
        verbose_name_plural = _("failure rules")
        ordering = ["order", "pk"]
        constraints = [
            models.UniqueConstraint(fields=["shipped"], condition=~Q(shipped=""), name="failure_rule_shipped_once"),
            models.CheckConstraint(condition=Q(where__in=Where.values), name="failure_rule_where"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def key(self) -> str:
        """Return what a diagnosis names the rule by."""
        return self.shipped or f"own:{self.pk}"


class Diagnosis(models.Model):
    """Why a job failed: the last exception of its log, the line it came from, and the rule that explains it.

    `facts` are the pattern's groups and what the button needs. `local` has the words of an administrator's rule in
    other languages; those of shipped rules are translated by the catalogue.
    """

    stored_by = "(SELECT user_id FROM job WHERE id = r.job_id)"  # kernel.stored

    job = models.OneToOneField(Job, on_delete=models.CASCADE, related_name="diagnosis", verbose_name=_("job"))
    at = models.DateTimeField(_("at"), auto_now_add=True)
    attempt = models.PositiveSmallIntegerField(_("attempt"), default=0)
    rule = models.CharField(_("rule"), max_length=64, blank=True)
    title = ReasonField(_("title"), blank=True)
    explanation = ReasonField(_("explanation"), blank=True)
    local = models.JSONField(default=dict, blank=True)
    error = models.CharField(_("exception"), max_length=200, blank=True)
    exception = models.TextField(_("last exception"), blank=True)
    file = models.CharField(_("file"), max_length=300, blank=True)
    line = models.PositiveIntegerField(_("line"), null=True, blank=True)
    code = models.CharField(_("code"), max_length=500, blank=True)
    action = models.CharField(_("button"), max_length=20, choices=Action.choices, blank=True, default=Action.NONE)
    facts = models.JSONField(default=dict, blank=True)

    class Meta:
        db_table = "diagnosis"
        verbose_name = _("diagnosis")
        verbose_name_plural = _("diagnoses")
        indexes = [models.Index(fields=["rule", "-id"], name="diagnosis_rule")]

    def __str__(self) -> str:
        return f"{self.job_id}: {self.title}"

    @property
    def shown_title(self) -> str:
        """Return the title in the reader's language."""
        return self._local("title") or translate(self.title)

    @property
    def shown_explanation(self) -> str:
        """Return the explanation in the reader's language; empty where it only repeats the exception's message."""
        text = self._local("explanation") or translate(self.explanation)
        return "" if self.raised.endswith(text) else text

    @property
    def own_file(self) -> bool:
        """Return whether the line is in one of the user's scripts: other files have absolute paths."""
        return bool(self.line and self.file and not self.file.startswith(("/", "<")))

    @property
    def raised(self) -> str:
        """Return the exception without its traceback: its class and message."""
        _frames, _break, last = ("\n" + self.exception).rpartition(f"\n{self.error}")
        return self.error + last if self.error else ""

    @property
    def cause(self) -> str:
        """Return the last line of the exception that this one was raised from."""
        return self.facts.get("cause", "")

    def _local(self, name: str) -> str:
        return self.local.get(get_language() or "", {}).get(name, "")
