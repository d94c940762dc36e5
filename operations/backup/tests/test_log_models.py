"""A tenant's own log model is in a backup and comes back elsewhere; of a deleted tenant later backups have nothing."""

from __future__ import annotations

import pytest

from supervision.tests.visitor import ADMIN_PASSWORD

from .test_whole import Kept, list_of

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.begins(0)]

MAKE = """
import json
from django.db import transaction
from aiops import lifecycle
from aiops.logstore.base import OWN_TEMPLATES
from aiops import logstore
from aiops.services.known_model import KnownModel
from aiops.training import versions
from aiops.wire import folders
from opnilog.store import NEEDED
from resources import tcc, tenants
tenant = tenants.create(name="red", by="test")
tcc.set_capacity(name="red", by="test", log_model=True)
for number in (1, 2):
    with transaction.atomic():  # so that the platform's trainer, which runs beside this, never sees it queued
        run = lifecycle.create_own(tenant=tenant, by="test")
        out = folders.training(run.uuid) / "out-1"
        out.mkdir(parents=True)
        for name in NEEDED:
            (out / name).write_text(json.dumps({"number": number}))
        assert lifecycle.complete(run.pk, version=versions.files().add(out), manifest={}, by="test")
versions.follow()
known = KnownModel(tenant.pk)
known.follow()
known.cache.learn([("valve open", "Normal", "valve open", 0.9)])
known.save()
number = tenant.pk * OWN_TEMPLATES + 1
logstore.get().put_templates([{"_id": str(number), "template_matched": "valve open", "log": "valve open"}])
"""
LOOK = """
from aiops.models import ModelVersion, Template
from aiops.services.known_model import KnownModel
from aiops.training import versions
from resources.models import Tenant
tenant = Tenant.objects.get(name="red")
known = KnownModel(tenant.pk)
known.load()
serving = versions.files(tenant.pk).serving()
row = ModelVersion.objects.get(tenant=tenant, serving=True)
print("FOUND", serving == row.version == known.cache.version, known.follow(), known.cache.match("valve open").level,
      versions.files().manifest(serving), len(versions.files().all()), Template.objects.count())
"""
DELETE = """
from aiops.training import erasing
from resources import tenants
tenants.delete(name="red", by="test")
erasing.erase()
"""


KEPT = ("models", "drain")
TRAININGS = "trainings"  # what a running platform removes from them once they have ended is no part of a model


def files_of(platform: Kept, *parts: str) -> list[str]:
    """Return the names of all files of AIOps that a tenant's model has in these folders."""
    folder = platform.root / "aiops"
    paths = [path for part in parts for path in folder.glob(f"{part}/**/*")]
    return sorted(str(path.relative_to(folder)) for path in paths if path.is_file() and path.name != "workload.bin")


def test_a_tenants_model_comes_back_and_a_deleted_one_does_not(tmp_path):
    platform, place = Kept(tmp_path / "root", MLP_ADMIN_PASSWORD=ADMIN_PASSWORD), str(tmp_path / "backups")
    platform.start()
    try:
        platform.must("shell", "--no-imports", "-c", MAKE)
        expected = files_of(platform, *KEPT)
        assert expected
        platform.must("backup", place)
        platform.must("shell", "--no-imports", "-c", DELETE)
        assert files_of(platform, *KEPT, TRAININGS) == []
        platform.must("backup", place)
    finally:
        platform.stop()
    last, first = (platform.elsewhere(tmp_path / name) for name in ("last", "first"))
    last.must("restore", place)
    assert files_of(last, *KEPT, TRAININGS) == []
    first.must("restore", place, "--backup", list_of(platform, place)[0]["name"])
    assert files_of(first, *KEPT) == expected
    first.start()
    try:
        assert "FOUND True False Normal {'number': 2} 2 1" in first.must("shell", "--no-imports", "-c", LOOK)
    finally:
        first.stop()
