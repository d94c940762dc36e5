"""What each verb of each life cycle does, and that it does it to its own row alone.

An effect reads: the state of the row | the state of its resource request | the tasks enqueued after the commit | the
groups of open pages that are notified. `-` is none of it, and `gone` a row that no longer exists.
"""

from __future__ import annotations

import pytest
from django.db import models

from resources.models import ResourceRequest, Tenant

from .test_row_locks import ALL, accounts, apps, datasets, jobs, models_app, trainings, within_a_transaction

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]

EFFECTS = {
    accounts: {
        "hold_active": "Actived | - | - | -",
        "activate": "Actived | - | - | pages",
        "deregister": "NotActive | - | - | pages",
        "set_staff": "Actived | - | - | pages",
        "change_password": "Actived | - | - | pages",
        "rotate_token": "Actived | - | - | pages",
        "revoke_service_token": "gone | - | - | -",
    },
    datasets: {
        "heartbeat": "creating | tried | - | dataset. pages",
        "heartbeat: error": "error | confirmed | - | dataset. pages",
        "heartbeat: ready": "ready | confirmed | - | dataset. pages",
        "fail": "error | confirmed | - | dataset. pages",
        "fail_silent": "error | confirmed | - | dataset. pages",
        "fail_all_of": "error | confirmed | - | dataset. pages",
        "delete_dataset": "deleting | tried | datasets.erase@files | dataset. pages",
        "erase": "gone | cancelled | - | dataset. pages",
        "recount": "creating | tried | - | dataset.",
    },
    jobs: {
        "heartbeat": "running | tried | - | job. pages",
        "order_run": "running | tried | - | -",
        "note_start": "running | tried | - | -",
        "finish": "finished | tried | jobs.clean@default | job. pages",
        "end_attempt": "error | tried | jobs.clean@default | job. pages",
        "fail": "error | tried | jobs.clean@default | job. pages",
        "cancel": "error | tried | jobs.clean@default | job. pages",
        "cancel_all_of": "error | tried | jobs.clean@default | job. pages",
        "delete_job": "deleting | tried | jobs.erase@files | job. pages",
        "reserve_next": "creating | tried | jobs.launch@default | pages",
    },
    models_app: {
        "note_copy": "creating | tried | models.check@default | -",
        "note_order": "creating | tried | - | -",
        "complete": "ready | confirmed | - | pages",
        "fail": "error | tried | models.clean@files | pages",
        "fail_all_of": "error | tried | models.clean@files | pages",
        "delete_model": "deleting | tried | models.erase@files | pages",
        "set_notes": "ready | tried | - | pages",
        "forget": "gone | cancelled | - | pages",
    },
    apps: {
        "move": "creating | tried | - | -",
        "note_order": "creating | tried | - | -",
        "up": "ready | confirmed | - | pages",
        "end_run": "creating | tried | apps.launch@default | pages",
        "end_asked": "creating | tried | apps.launch@default | pages",
        "restart": "ready | tried | apps.stop@default | -",
        "fail": "error | cancelled | - | pages",
        "delete_app": "deleting | tried | apps.erase@default | pages",
        "delete_all_of": "deleting | tried | apps.erase@default | pages",
        "forget": "gone | cancelled | - | pages",
    },
    trainings: {
        "order_run": "training | tried | - | -",
        "note_start": "training | - | - | aiops.",
        "note_trouble": "training | - | - | -",
        "beat": "training | - | - | aiops.",
        "complete": "completed | - | aiops.settle@default | aiops. pages",
        "fail": "error | - | aiops.settle@default | aiops. pages",
        "cancel_running": "error | - | aiops.settle@default | aiops. pages",
        "serve_version": "- | - | - | aiops.",
    },
}
WHOLE_USER = {"cancel_all_of", "fail_all_of", "delete_all_of", "reserve_next", "cancel_running"}


class Recorder:
    """A channel layer that keeps what is sent to its groups."""

    def __init__(self):
        self.sent: set[str] = set()

    async def group_send(self, group: str, event: dict) -> None:
        self.sent.add("pages" if event["type"] == "changed" else group.rstrip("0123456789"))


@pytest.fixture
def pages(monkeypatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("kernel.after_commit.get_channel_layer", lambda: recorder)
    return recorder


def twin(row: models.Model) -> None:
    """Make another object of the same user, in the same state."""
    copy = type(row).objects.get(pk=row.pk)
    copy.pk, copy.name, copy.run_name = None, "other", "another"
    copy._state.adding = True
    if hasattr(copy, "port"):
        copy.port += 5000
    copy.save()


def others(row: models.Model, request: str) -> list[dict]:
    """All other rows of the table, and all other resource requests."""
    rows = type(row).objects.exclude(pk=row.pk).order_by("pk").values()
    return [*rows, *ResourceRequest.objects.exclude(pk=request).order_by("pk").values()]


def request_of(lifecycle, row: models.Model) -> str:
    if not hasattr(lifecycle, "request_id"):
        return ""
    return lifecycle.request_id(row.uuid if hasattr(row, "uuid") else row.pk)


def effect(row: models.Model, request: str, tasks, pages: Recorder) -> str:
    now = type(row).objects.filter(pk=row.pk).first()
    state = "gone" if now is None else str(getattr(now, "state", "-"))
    claim = ResourceRequest.objects.filter(pk=request).values_list("state", flat=True).first() or "-"
    sent = sorted({f"{one.actor_name}@{one.queue_name}" for one in tasks.queue})
    return f"{state} | {claim} | {' '.join(sent) or '-'} | {' '.join(sorted(pages.sent)) or '-'}"


@pytest.mark.parametrize("lifecycle", EFFECTS, ids=lambda one: one.__name__)
def test_each_verb_does_this_to_its_own_row_alone(lifecycle, tasks, pages):
    seen = {}
    for verb, row, call in list(ALL[lifecycle]()):
        request, alone = request_of(lifecycle, row), verb not in WHOLE_USER
        if alone and lifecycle not in (accounts, trainings):
            twin(row)
        before = others(row, request)
        tasks.queue.clear()
        pages.sent.clear()
        within_a_transaction(call)
        seen[verb] = effect(row, request, tasks, pages)
        if alone and lifecycle is not accounts and verb != "serve_version":
            assert others(row, request) == before, f"{verb} changed other rows"
    assert seen == EFFECTS[lifecycle]
    tenant = Tenant.objects.get(name="default")
    assert tenant.cpu_inuse == 0
