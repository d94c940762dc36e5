"""Project: runs that belong together. Written only through tracking.runs.projects; Job.project refers to it.

Each user has one default project, made with their first job (`Project.objects.default_of`). A project in the trash has
`trashed` set, and so have the runs that went there with it, with the same time.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from kernel.database import first_row
from kernel.titles import Titled

DEFAULT_NAME = "default"
MAX_NAME = 500


class Projects(models.Manager):
    def default_of(self, user) -> Project:
        """Return the user's default project; make it when there is none."""
        if (found := first_row(self.model, {"user": user, "default": True})) is not None:
            return found
        taken = self.filter(user=user, trashed=None, name=DEFAULT_NAME, default=False).exists()
        name = DEFAULT_NAME if not taken else f"{DEFAULT_NAME} ({user.username})"
        return self.get_or_create(user=user, default=True, defaults={"name": name})[0]

    def named(self, user, name: str | None) -> Project:
        """Return the user's project of that name, made when there is none; the default one without a name."""
        if name is None:
            return self.default_of(user)
        return self.get_or_create(user=user, name=name, trashed=None)[0]


class Project(Titled):
    """A user's project. `board` is the list of the numbers and charts that its page shows; `goals` says of a metric
    which direction is better, {"loss": "min"}.
    """

    stored_by = "r.user_id"  # kernel.stored
    untitled = "project"

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="projects", verbose_name=_("user")
    )
    name = models.CharField(_("name"), max_length=MAX_NAME)
    default = models.BooleanField(_("default project"), default=False)
    readme = models.TextField(_("readme"), blank=True, default="")
    board = models.JSONField(_("board"), default=list, blank=True)
    goals = models.JSONField(_("directions"), default=dict, blank=True)
    tags = models.JSONField(_("tags"), default=dict, blank=True)
    system_tags = models.JSONField(default=dict, blank=True, db_default={})  # those named mlflow.…
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())
    updated = models.DateTimeField(_("changed"), auto_now=True, db_default=Now())
    trashed = models.DateTimeField(_("in the trash since"), null=True, blank=True)

    objects = Projects()
    reading = None  # how a visitor reads another user's project: see accounts.sharing.access

    class Meta:
        db_table = "project"
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"], condition=Q(trashed=None), name="project_name_once_per_user"
            ),
            models.UniqueConstraint(fields=["user"], condition=Q(default=True), name="project_one_default_per_user"),
        ]

    def __str__(self) -> str:
        return f"{self.user}/{self.name}"


class View(models.Model):
    """A table of runs that a user has saved: its columns, filter and order as the query of the page's address.

    `project` is None for a view of all of the user's runs.
    """

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="views")
    name = models.CharField(_("name"), max_length=100)
    query = models.TextField(_("query"), blank=True, default="")
    created = models.DateTimeField(_("created"), auto_now_add=True, db_default=Now())

    class Meta:
        db_table = "run_view"
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        constraints = [
            models.UniqueConstraint(
                fields=["user", "project", "name"], nulls_distinct=False, name="view_name_once_per_project"
            ),
        ]

    def __str__(self) -> str:
        return self.name
