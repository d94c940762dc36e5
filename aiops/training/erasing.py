"""Erases what is left of tenants' own models, once the tenant is deleted or the model is switched off: trainings with
their lines, versions, templates and verdicts. At once, by a task; reconcile repeats it for what was missed.
"""

from __future__ import annotations

from django.db.models.signals import post_delete, post_save

from aiops import lifecycle, logstore
from aiops.judging import own_models
from aiops.models import ModelVersion, State, TrainingRun
from aiops.wire import folders
from kernel import after_commit, storage
from kernel.messages import Message
from kernel.outcomes import Outcome
from resources.models import Tenant

from . import versions

BY = "training queue"
SWITCHED_OFF = Message("the tenant has no log model of its own any more")


def erase() -> None:
    """Erase the models of tenants that have none any more. Idempotent, and repeated after a kill: the rows of the
    versions go last. Raises Fault while the log store is unavailable.

    The files of a training that still runs are removed at the end of its run (launching).
    """
    there = own_models.all_own()
    runs = TrainingRun.objects.filter(tenant__isnull=False).exclude(tenant_id__in=there)
    for pk in runs.filter(state=State.TRAINING).values_list("pk", flat=True):
        lifecycle.fail(pk, SWITCHED_OFF, BY, Outcome.CANCELLED)
    for uuid in runs.exclude(state=State.TRAINING).filter(run_name="").values_list("uuid", flat=True):
        if folders.training(uuid).exists():
            storage.remove_tree(folders.training(uuid))
    rows = ModelVersion.objects.filter(tenant__isnull=False).exclude(tenant_id__in=there)
    files = {number: path for number, path in folders.drain_files().items() if number not in there}
    gone = {*rows.values_list("tenant_id", flat=True), *files}
    if not gone:
        return
    rows.update(serving=False)
    versions.follow()
    for version in rows.values_list("version", flat=True):
        versions.files().remove(version)
    for number in gone:
        logstore.get().forget_templates(number)
        folders.drain_file(number).unlink(missing_ok=True)
    rows.delete()


def is_erased(run: TrainingRun) -> bool:
    """Return whether the training's model is one that a tenant has no more."""
    return run.tenant_id is not None and run.tenant_id not in own_models.all_own()


def listen() -> None:
    """Erase a model when its tenant is deleted or has it switched off."""
    post_delete.connect(_deleted, sender=Tenant, dispatch_uid="aiops.erasing.deleted")
    post_save.connect(_saved, sender=Tenant, dispatch_uid="aiops.erasing.saved")


def _deleted(sender, instance: Tenant, **_others) -> None:
    if instance.log_model:
        after_commit.enqueue("aiops.erase_models")


def _saved(sender, instance: Tenant, update_fields, **_others) -> None:
    if "log_model" in (update_fields or ()) and not instance.log_model:
        after_commit.enqueue("aiops.erase_models")
