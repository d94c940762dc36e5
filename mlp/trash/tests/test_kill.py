"""SIGKILL of a process in the middle of a purge: run again, nothing is lost that was not due, and nothing is left."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

import datasets.reconcile
from datasets.models import Dataset
from jobs import retention
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.moments import kill_at
from resources.models import Tenant

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]

FILES, REMOVED = 500, 100
PURGE = """
from django.utils import timezone
from datasets import lifecycle, trash
from datasets.models import Dataset
trash.purge(timezone.now())
for pk in Dataset.objects.filter(state="deleting").values_list("pk", flat=True): lifecycle.erase(pk)
"""
RETENTION = """
from django.utils import timezone
from jobs import retention
retention.run(timezone.now())
"""


def fill(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"{number}").touch()


def killed_while_it_removes(code: str, folder: Path, tmp_path: Path) -> None:
    """Run the code in another process, which is killed once some of the files are gone, but not all."""
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    environment = {
        **os.environ, "DATABASE_URL": database, "MLP_ROOT": str(storage.root()), "MLP_SECRET_KEY": settings.SECRET_KEY,
    }  # fmt: skip
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", code]
    kill_at([("os.remove", "'")] * REMOVED, command, tmp_path / "killed.out", environment, cwd=settings.BASE_DIR)
    assert 0 < len(os.listdir(folder)) < FILES


def test_a_dataset_that_is_purged(alice, as_alice, tasks, monkeypatch, tmp_path):
    fill(storage.dataset_dir("alice", "old"))
    for name, days in (("old", settings.TRASH_DAYS + 1), ("new", 1)):
        row = put(Dataset, alice, name, "ready")
        (storage.dataset_dir("alice", name) / "a").parent.mkdir(exist_ok=True)
        Dataset.objects.filter(pk=row.pk).update(trashed=timezone.now() - timedelta(days=days))
    (storage.dataset_dir("alice", "new") / "precious").write_text("x")
    killed_while_it_removes(PURGE, storage.dataset_dir("alice", "old"), tmp_path)
    assert [row["name"] for row in as_alice.call("get", "users/alice/trash").json()] == ["new"]
    monkeypatch.setattr("datasets.reconcile.AGAIN_AFTER", timedelta(0))
    datasets.reconcile.run()
    tasks.run()
    assert list(Dataset.objects.values_list("name", flat=True)) == ["new"]
    assert not storage.dataset_dir("alice", "old").exists()
    assert (storage.dataset_dir("alice", "new") / "precious").read_text() == "x"


@pytest.mark.long
def test_an_output_that_is_removed(alice, tmp_path):
    fill(storage.job_dir("alice", "old") / "out")
    for name, days in (("old", 8), ("new", 6)):
        row = put(Job, alice, name, "finished")
        Job.objects.filter(pk=row.pk).update(ended=timezone.now() - timedelta(days=days))
    (storage.job_dir("alice", "new") / "out").mkdir(parents=True)
    (storage.job_dir("alice", "new") / "out" / "precious").write_text("x")
    Tenant.objects.update(output_days=7)
    killed_while_it_removes(RETENTION, storage.job_dir("alice", "old") / "out", tmp_path)
    assert Job.objects.get(name="old").output_removed is None
    retention.run(timezone.now())
    assert Job.objects.get(name="old").output_removed
    assert not (storage.job_dir("alice", "old") / "out").exists()
    assert (storage.job_dir("alice", "new") / "out" / "precious").read_text() == "x"
