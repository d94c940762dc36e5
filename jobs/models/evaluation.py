"""Evaluation datasets and scorers of MLflow's clients: what a program is evaluated with, and by what.

Records are JSON texts, which keep what PostgreSQL's JSON refuses: NaN, NUL, and the order of keys.
"""

from __future__ import annotations

import secrets
import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .project import Project


def new_dataset_key() -> str:
    """Return the id of an evaluation dataset, in MLflow's form."""
    return f"d-{secrets.token_hex(16)}"


def new_record_key() -> str:
    """Return the id of a record, in MLflow's form."""
    return f"dr-{secrets.token_hex(16)}"


def new_scorer_key() -> str:
    """Return the id of a scorer, in MLflow's form."""
    return str(uuid.uuid4())


class EvaluationDataset(models.Model):
    """Records with inputs and expectations, in the projects that it is associated with. `changed` has milliseconds, and
    no two changes have the same: the digest is made of it.
    """

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user")
    )
    key = models.CharField(_("id"), max_length=34, unique=True, default=new_dataset_key)
    name = models.CharField(_("name"), max_length=255)
    projects = models.ManyToManyField(Project, related_name="evaluation_datasets", verbose_name=_("projects"))
    tags = models.JSONField(_("tags"), default=dict, blank=True)
    schema = models.JSONField(_("schema"), null=True, blank=True)
    records_kept = models.PositiveIntegerField(pgettext_lazy("evaluation", "records"), default=0)
    digest = models.CharField(_("digest"), max_length=8)
    created_by = models.CharField(_("created by"), max_length=255, blank=True, default="")
    changed_by = models.CharField(_("changed by"), max_length=255, blank=True, default="")
    created = models.DateTimeField(_("created"))
    changed = models.DateTimeField(_("changed"))

    class Meta:
        db_table = "evaluation_dataset"
        verbose_name = _("evaluation dataset")
        verbose_name_plural = _("evaluation datasets")

    def __str__(self) -> str:
        return self.name


class EvaluationRecord(models.Model):
    """One example of an evaluation dataset; its inputs are unique there. `size` is that of the texts in characters."""

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    dataset = models.ForeignKey(
        EvaluationDataset, on_delete=models.CASCADE, related_name="records", verbose_name=_("evaluation dataset"),
        db_index=False,
    )  # fmt: skip
    key = models.CharField(_("id"), max_length=35, unique=True, default=new_record_key)
    inputs = models.TextField(_("inputs"))
    input_hash = models.CharField(max_length=64)
    outputs = models.TextField(_("outputs"), null=True, blank=True)
    expectations = models.TextField(_("expectations"), null=True, blank=True)
    tags = models.TextField(_("tags"), default="{}")
    source = models.TextField(_("source"), null=True, blank=True)
    source_type = models.CharField(_("source type"), max_length=20, blank=True, default="")
    source_id = models.CharField(_("source id"), max_length=250, blank=True, default="")
    size = models.PositiveIntegerField(_("size"), default=0)
    created_by = models.CharField(_("created by"), max_length=255, blank=True, default="")
    changed_by = models.CharField(_("changed by"), max_length=255, blank=True, default="")
    created = models.DateTimeField(_("created"))
    changed = models.DateTimeField(_("changed"))

    class Meta:
        db_table = "evaluation_record"
        verbose_name = pgettext_lazy("evaluation", "record")
        verbose_name_plural = pgettext_lazy("evaluation", "records")
        constraints = [models.UniqueConstraint(fields=["dataset", "input_hash"], name="inputs_once_per_dataset")]
        indexes = [models.Index(fields=["dataset", "id"], name="record_of_dataset")]

    def __str__(self) -> str:
        return self.key


class Scorer(models.Model):
    """A scorer of a project, of which each registration is a version. The platform never runs one."""

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="scorers", verbose_name=_("project"))
    key = models.CharField(_("id"), max_length=36, unique=True, default=new_scorer_key)
    name = models.CharField(_("name"), max_length=255)
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "scorer"
        verbose_name = _("scorer")
        verbose_name_plural = _("scorers")
        constraints = [models.UniqueConstraint(fields=["project", "name"], name="scorer_once_per_project")]

    def __str__(self) -> str:
        return self.name


class ScorerVersion(models.Model):
    """One version of a scorer, as its client has serialized it."""

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+", verbose_name=_("user"), db_index=False
    )
    scorer = models.ForeignKey(
        Scorer, on_delete=models.CASCADE, related_name="versions", verbose_name=_("scorer"), db_index=False
    )
    number = models.PositiveIntegerField(_("version"))
    serialized = models.TextField(_("definition"))
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "scorer_version"
        verbose_name = _("version of a scorer")
        verbose_name_plural = _("versions of scorers")
        constraints = [models.UniqueConstraint(fields=["scorer", "number"], name="scorer_version_once")]

    def __str__(self) -> str:
        return f"{self.scorer_id} {self.number}"
