"""Each lifecycle function has the effects that verb_effects.py lists, on its own row only."""

from __future__ import annotations

import re
import uuid

import pytest
from django.db import models
from django.utils import timezone

from jobs.models import Job
from kernel.models import StateChange
from kernel.tests.pages import Recorder
from resources import tcc
from resources.models import ResourceRequest, Tenant

from .test_row_locks import ALL, accounts, jobs, trainings, within_a_transaction
from .verb_effects import EFFECTS, WHOLE_USER, Effect

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("default_tenant")]


@pytest.fixture
def pages(monkeypatch) -> Recorder:
    return Recorder(monkeypatch)


def add_twins(row: models.Model) -> None:
    """Add two objects of the same user in the same state, one with a smaller and one with a larger key."""
    fields = {field.name for field in row._meta.concrete_fields}
    for number, pk in enumerate((-row.pk, row.pk + 1_000_000), start=1):
        copy = type(row).objects.get(pk=row.pk)
        copy.pk, copy.run_name = pk, f"another{number}"
        if "name" in fields:
            copy.name = "other" * number
        if "number" in fields:
            copy.number += number
        if "port" in fields:
            copy.port += 5000 * number
        for name in fields & {"uuid", "run_id"}:
            setattr(copy, name, uuid.uuid4())
        copy._state.adding = True
        copy.save()


def others(row: models.Model, request: str) -> list[dict]:
    """Return all other rows of the table, and all other resource requests."""
    rows = type(row).objects.exclude(pk=row.pk).order_by("pk").values()
    return [*rows, *ResourceRequest.objects.exclude(pk=request).order_by("pk").values()]


def request_of(lifecycle, row: models.Model) -> str:
    if isinstance(row, Job):
        return jobs.request_id(row.pk)
    if not hasattr(lifecycle, "request_id"):
        return ""
    return lifecycle.request_id(row.uuid if hasattr(row, "uuid") else row.pk)


def values(row: models.Model) -> dict:
    """Return the row's columns, without those that the database derives from the others."""
    own = [field.attname for field in row._meta.concrete_fields if not field.generated]
    return type(row).objects.filter(pk=row.pk).values(*own).first() or {}


def effect(row: models.Model, before: dict, request: str, tasks, pages: Recorder) -> Effect:
    now = values(row)
    state = str(now.get("state", "-")) if now else "gone"
    claim = ResourceRequest.objects.filter(pk=request).values_list("state", flat=True).first() or "-"
    sent = sorted({f"{message.actor_name}@{message.queue_name}" for message in tasks.queue})
    groups = sorted(re.sub(rf"\.{row.pk}$", ".pk", group) for group in pages.sent)
    changed = [name for name in now if now[name] != before[name] and name != "state"]
    history = StateChange.objects.filter(kind=row._meta.model_name, object_id=row.pk, at__gt=before["now"])
    moves = [f"{change.transition} by {change.by}: {change.reason}".strip(" :") for change in history.order_by("id")]
    return Effect(state, claim, *(", ".join(part) for part in (sent, groups, changed, moves)))


SERVING = {"serve_version", "serve_foreign"}  # a version has no twin, and ends the serving of another


@pytest.mark.parametrize("lifecycle", EFFECTS, ids=lambda module: module.__name__)
def test_each_verb_changes_its_own_row_only(lifecycle, tasks, pages):
    seen = {}
    for verb, row, call in list(ALL[lifecycle]()):
        request, alone = request_of(lifecycle, row), verb.partition(":")[0] not in WHOLE_USER
        if alone and lifecycle is not accounts and verb not in SERVING:
            add_twins(row)
        before, rest = {**values(row), "now": timezone.now()}, others(row, request)
        tasks.queue.clear()
        pages.sent.clear()
        within_a_transaction(call)
        seen[verb] = effect(row, before, request, tasks, pages)
        if alone and lifecycle is not accounts and verb not in SERVING:
            assert others(row, request) == rest, f"{verb} changed other rows"
    assert seen == EFFECTS[lifecycle]
    tenant = Tenant.objects.get(name="default")
    assert tenant.cpu_inuse == tcc.allocated(tenant)["cpu"]
    assert tenant.cpu_inuse == 0 or lifecycle is trainings
