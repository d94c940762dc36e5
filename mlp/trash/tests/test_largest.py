"""The largest items, for users and for administrators: sizes from the rows, age, last use, and the trash."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from django.utils import timezone

from apps.models import Application
from datasets.models import Dataset
from jobs import lifecycle, sizes
from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.trash import largest
from models_app.models import Model

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]


@pytest.fixture
def world(alice, bob):
    put(Dataset, alice, "photos", "ready")
    Dataset.objects.update(stored=3 << 30)
    put(Model, alice, "net", "ready")
    Model.objects.update(size=2 << 30)
    put(Job, alice, "fit", "finished")
    Job.objects.update(output_bytes=1 << 30, datasets=["photos"])
    put(Dataset, bob, "photos", "ready")
    Dataset.objects.filter(user=bob).update(stored=5 << 30)


def names(items) -> list[tuple[str, str, str]]:
    return [(item.kind, item.owner, item.name) for item in items]


def test_the_largest_are_first_and_only_the_users_own(world, alice, bob):
    assert [row[0] for row in names(largest.items(alice))] == ["dataset", "model", "job"]
    assert names(largest.items(bob)) == [("dataset", "bob", "photos")]
    assert names(largest.items())[0] == ("dataset", "bob", "photos")
    assert len(largest.items()) == 4
    assert [row[0] for row in names(largest.items(kind="model"))] == ["model"]
    text = visible_text(visitor(alice).get("/largest"))
    assert text.index("photos") < text.index("net") < text.index("fit")
    assert "3 GiB" in text
    assert "5 GiB" not in text


def test_the_last_use_is_of_jobs_and_applications(world, alice, bob):
    def used() -> dict:
        return {(item.kind, item.owner): item.used for item in largest.items()}

    job = Job.objects.get()
    assert used()["dataset", "alice"] == job.created
    assert used()["dataset", "bob"] is None
    assert used()["model", "alice"] is None
    app = put(Application, alice, "calc", "ready")
    theirs = put(Job, bob, "theirs", "finished")
    Job.objects.filter(pk=theirs.pk).update(datasets=["alice/photos"])
    assert used()["model", "alice"] == app.created
    assert used()["dataset", "alice"] == theirs.created
    assert used()["dataset", "bob"] is None


def test_items_are_moved_to_the_trash_from_there(world, alice, staff):
    client = visitor(alice)
    given = {"kind": "dataset", "name": "photos", "next": "/largest"}
    page = client.post("/trash/move", given, follow=True)
    assert page.redirect_chain == [("/largest", 302)]
    assert "photos moved to the trash" in visible_text(page)
    assert "(in the trash)" in visible_text(page)
    assert Dataset.objects.get(user=alice).trashed
    for kind, name in (("job", "fit"), ("model", "net")):
        client.post("/trash/move", {"kind": kind, "name": name})
    assert [row.trashed is not None for row in (Job.objects.get(), Model.objects.get())] == [True, True]
    assert client.post("/trash/move", {"kind": "job", "name": "none"}, follow=True).status_code == 200
    assert client.post("/trash/move", {"kind": "user", "name": "alice"}).status_code == 404
    text = visible_text(visitor(staff).get("/admin/largest/"))
    assert "bob" in text
    assert "Delete permanently" in text


def test_administrators_move_and_delete_by_the_verbs(world, staff, bob):
    client = visitor(staff)
    row = Dataset.objects.get(user=bob)
    client.post(f"/admin/datasets/dataset/{row.pk}/do/trash/")
    row.refresh_from_db()
    assert row.trashed
    question = client.post(f"/admin/datasets/dataset/{row.pk}/do/delete/")
    assert "cannot be undone" in visible_text(question)
    client.post(f"/admin/datasets/dataset/{row.pk}/do/delete/", {"confirmed": "yes"})
    row.refresh_from_db()
    assert row.state == "deleting"
    assert ("dataset", "bob", "photos") not in names(largest.items())


def test_a_jobs_files_are_counted_again_when_it_has_ended(alice):
    running = put(Job, alice, "fit", "running")
    folder = storage.job_dir("alice", "fit")
    folder.mkdir(parents=True)
    (folder / "a").write_bytes(bytes(10_000))
    now = timezone.now()
    sizes.measure(now)
    counted = Job.objects.get().output_bytes
    assert 10_000 <= counted < 10_000 + 4 * 4096  # in blocks, with the folder's own
    (folder / "b").write_bytes(bytes(50_000))
    (folder / "sparse").touch()
    os.truncate(folder / "sparse", 1 << 40)  # takes no room
    sizes.measure(now + sizes.AGAIN_AFTER / 2)
    assert Job.objects.get().output_bytes == counted
    sizes.measure(now + sizes.AGAIN_AFTER + timedelta(seconds=1))
    assert counted + 50_000 <= Job.objects.get().output_bytes < counted + 50_000 + 4 * 4096
    (folder / "b").unlink()
    lifecycle.cancel(user=alice, name="fit", by="test")
    sizes.measure(now)
    running.refresh_from_db()
    assert running.output_bytes == counted


def test_no_page_walks_the_disk(world, alice, staff, monkeypatch):
    def walked(*_, **__):
        raise AssertionError("a page walks the disk")

    monkeypatch.setattr(storage, "tree_size", walked)
    assert visitor(alice).get("/largest").status_code == 200
    assert visitor(staff).get("/admin/largest/").status_code == 200
    assert visitor(alice).get("/trash").status_code == 200
