"""Imported: what has been imported from a server elsewhere, and what it has become here. Written only through
models_app.transfer.

A row is written in the transaction that makes its object, so an import that is killed makes nothing twice. It outlives
the object: what was deleted here is not brought back by the next import.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class Imported(models.Model):
    """One object of a server. `key` is its id there, `object_id` that of the project, run, registered model or version
    here.

    `mark` is a checksum of what the server said of it when all of it had been taken; empty until then. `counts` are the
    numbers of its parameters, points and files at the server.
    """

    class Kind(models.TextChoices):
        EXPERIMENT = "experiment"
        RUN = "run"
        LOGGED = "logged"
        REGISTERED = "registered"
        VERSION = "version"
        EVALUATION = "evaluation"  # an evaluation dataset
        SCORER = "scorer"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", db_index=False)
    source = models.CharField(max_length=500)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    key = models.CharField(max_length=300)
    object_id = models.BigIntegerField()
    mark = models.CharField(max_length=64, blank=True, default="", db_default="")
    counts = models.JSONField(default=dict, blank=True, db_default={})
    at = models.DateTimeField(auto_now=True, db_default=Now())

    class Meta:
        db_table = "mlflow_import"
        constraints = [
            models.UniqueConstraint(fields=["user", "source", "kind", "key"], name="mlflow_import_once"),
            models.CheckConstraint(
                condition=models.Q(
                    kind__in=["experiment", "run", "logged", "registered", "version", "evaluation", "scorer"]
                ),
                name="mlflow_import_kind",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"
