"""Snapshot, Blob and Capture: the code of a job and what else is recorded of a run. Written only by jobs.code."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _


class Snapshot(models.Model):
    """The files of a script's folder when a job was submitted. Jobs with the same files share one row.

    `manifest` (snapshots.manifest) has each file's path, mode, checksum and size, and what was not kept; `digest` is
    its SHA-256. The bytes are in the folder of snapshots.store.
    """

    stored_by = "r.user_id"  # kernel.stored

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="snapshots", verbose_name=_("user")
    )
    digest = models.CharField(_("checksum"), max_length=64)
    manifest = models.JSONField()
    made = models.DateTimeField(_("created"), auto_now_add=True)

    class Meta:
        db_table = "code_snapshot"
        verbose_name = _("snapshot")
        verbose_name_plural = _("snapshots")
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="code_snapshot_once")]

    def __str__(self) -> str:
        return self.digest[:12]


class Blob(models.Model):
    """One file's content, stored once for each user under `name`: its SHA-256, and an x where it is executable.

    `refs` counts the snapshots with it. A row without any is removed, after its file, by reconcile.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=65)
    size = models.BigIntegerField()
    refs = models.PositiveIntegerField()

    class Meta:
        db_table = "code_blob"
        constraints = [models.UniqueConstraint(fields=["user", "name"], name="code_blob_once")]
        indexes = [models.Index(fields=["user"], name="code_blob_unused", condition=Q(refs=0))]

    def __str__(self) -> str:
        return self.name


class Capture(models.Model):
    """What is recorded of a run: `git` at the submission, `datasets` at the start, `environment` at the end."""

    stored_by = "(SELECT user_id FROM job WHERE id = r.job_id)"  # kernel.stored

    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="capture")
    git = models.JSONField(null=True)
    datasets = models.JSONField(null=True)
    environment = models.JSONField(null=True)

    class Meta:
        db_table = "job_capture"

    def __str__(self) -> str:
        return str(self.job_id)
