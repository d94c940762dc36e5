"""What a job is as a run among others: its project, labels and looks in charts, and what MLflow's clients know."""

from __future__ import annotations

import uuid

from django.contrib.postgres.functions import RandomUUID
from django.db import models
from django.utils.translation import gettext_lazy as _

from .project import Project

COLOURS = 10  # of lines in charts (mlp/static/mlp/charts.css)


class Origin(models.TextChoices):
    """Where a run comes from."""

    JOB = "job", _("job")
    CLIENT = "client", _("MLflow client")


class Tracked(models.Model):
    """The columns by which tracking finds, groups and shows a run.

    `tags` are one object, {"baseline": "", "team": "vision"}: a label is a key with an empty value.
    """

    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="jobs", verbose_name=_("project")
    )  # null in rows of older versions of the platform: reconcile moves them to the default project
    tags = models.JSONField(_("tags"), default=dict, blank=True, db_default={})
    notes = models.TextField(_("notes"), blank=True, default="", db_default="")
    favourite = models.BooleanField(_("favourite"), default=False, db_default=False)
    group = models.CharField(_("group"), max_length=100, blank=True, default="", db_default="")
    colour = models.PositiveSmallIntegerField(_("colour"), null=True, blank=True)  # 0 to 9; null in earlier rows
    hidden = models.BooleanField(_("hidden in charts"), default=False, db_default=False)  # on the board of its project
    run_id = models.UUIDField(_("run"), unique=True, default=uuid.uuid4, db_default=RandomUUID(), editable=False)
    origin = models.CharField(
        _("origin"), max_length=10, choices=Origin.choices, default=Origin.JOB, db_default=Origin.JOB
    )
    system_tags = models.JSONField(default=dict, blank=True, db_default={})  # those named mlflow.…
    parent = models.ForeignKey(
        "jobs.Job", on_delete=models.SET_NULL, null=True, blank=True, related_name="children", db_index=False,
        verbose_name=_("parent run"),
    )  # fmt: skip
    heard = models.DateTimeField(_("last report"), null=True, blank=True)  # of an MLflow client

    class Meta:
        abstract = True

    @property
    def shown_colour(self) -> int:
        return self.pk % COLOURS if self.colour is None else self.colour

    @property
    def is_client(self) -> bool:
        """Return whether it is reported from elsewhere: the platform has no process of it."""
        return self.origin == Origin.CLIENT
