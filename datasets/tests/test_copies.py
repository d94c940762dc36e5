"""Datasets made of files that are on the platform already: a job's output, or a folder of `.home`."""

from __future__ import annotations

import errno
import os
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

from accounts import lifecycle as accounts
from datasets import copies, lifecycle, reconcile
from datasets.models import Dataset
from datasets.webdav.errors import HttpError
from datasets.webdav.gate import internal_key
from datasets.webdav.put import batch, store
from jobs.models import Job
from kernel import storage
from kernel.singleton import Holder
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)
DATASETS = "users/alice/datasets"


@pytest.fixture
def prepared(alice, home):
    """A finished job with an output, among it what is the platform's."""
    folder = storage.job_dir("alice", "prepare")
    for path, content in {"clean/a.csv": b"x\n1\n", "clean/deep/b.csv": b"y\n22\n", "log/0.log": b"no"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return put(Job, alice, "prepare", "finished")


def rom() -> int:
    return Tenant.objects.get(name="default").rom_inuse


def files_of(name: str) -> dict[str, bytes]:
    folder = storage.dataset_dir("alice", name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def litter() -> list[str]:
    return [path.name for path in storage.dataset_dir("alice", "clean").parent.glob(".*.part")]


def test_the_output_of_a_job_becomes_a_dataset(as_alice, prepared, tasks):
    made = as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare", "title": "Clean, June"})
    assert (made.status_code, made.json()["state"], made.json()["size"]) == (201, "creating", 9)
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["progress"], row["stored"], row["src"]) == ("ready", 100, 9, "jobs/prepare")
    assert files_of("clean") == {"clean/a.csv": b"x\n1\n", "clean/deep/b.csv": b"y\n22\n"}, "without the job's log"
    assert rom() == 9
    version = as_alice.call("get", f"{DATASETS}/clean/versions").json()[0]
    assert (version["number"], version["files"], version["size"]) == (1, 2, 9)
    assert len(version["sha256"]) == 64


@pytest.mark.parametrize(
    ("src", "holds"),
    [("jobs/prepare/clean", {"a.csv", "deep/b.csv"}), ("jobs/prepare/clean/a.csv", {"a.csv"}), ("home/raw", {"c"})],
)
def test_a_part_of_an_output_and_a_folder_of_home_do_too(as_alice, prepared, home, tasks, src, holds):
    (home / "raw").mkdir()
    (home / "raw" / "c").write_bytes(b"c")
    as_alice.call("post", DATASETS, {"name": "clean", "src": src})
    tasks.run()
    assert set(files_of("clean")) == holds
    assert as_alice.call("get", f"{DATASETS}/clean").json()["state"] == "ready"


@pytest.mark.parametrize(
    ("body", "says"),
    few([
        ({"src": "jobs/prepare", "size": 4}, "src: give either a size or a source"),
        ({}, "size:"),
        ({"src": "jobs/none"}, "src: you have no job named none"),
        ({"src": "jobs/busy"}, "src: the job busy is running"),
        ({"src": "jobs/prepare/no"}, "src: jobs/prepare/no does not exist"),
        ({"src": "jobs/prepare/empty"}, "src: jobs/prepare/empty has no files"),
        ({"src": "jobs/prepare/link"}, "src:"),
        ({"src": "home/../bob"}, "src:"),
        ({"src": "/etc"}, "src: must be jobs/{job}"),
        ({"src": 7}, "src:"),
    ], 5),
)  # fmt: skip
def test_what_cannot_be_copied_is_refused_and_nothing_is_made(as_alice, alice, prepared, body, says):
    put(Job, alice, "busy", "running")
    folder = storage.job_dir("alice", "prepare")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("/etc")
    assert as_alice.refused("post", DATASETS, {"name": "clean", **body}).startswith(says)
    assert not Dataset.objects.exists()
    assert rom() == 0


def test_of_another_users_job_nothing_is_copied(as_bob, bob, prepared):
    assert as_bob.refused("post", "users/bob/datasets", {"name": "mine", "src": "jobs/prepare"}).startswith("src: you")


def test_more_than_the_tenant_has_is_refused(as_alice, prepared):
    Tenant.objects.update(rom=8)
    assert "rom" in as_alice.refused("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    assert not Dataset.objects.exists()


def test_nothing_is_uploaded_to_what_is_copied_and_its_owner_cancels(as_alice, prepared, tasks):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    for report in ({"state": "creating", "progress": 5}, {"state": "ready", "progress": 100}):
        assert "copied from jobs/prepare" in as_alice.refused("put", f"{DATASETS}/clean:heartbeat", report)
    assert as_alice.call("put", f"{DATASETS}/clean:heartbeat", {"state": "error", "progress": 0}).status_code == 200
    tasks.run()
    assert as_alice.call("get", f"{DATASETS}/clean").json()["state"] == "error"
    assert files_of("clean") == {}


def test_a_small_file_is_refused_as_a_large_one_is(as_alice, alice, prepared):
    """Small ones are stored together, another way; they were acknowledged, and gone once the copy had ended."""
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    asked = {
        "HTTP_AUTHORIZATION": f"Bearer {accounts.token_of(alice)}", "HTTP_X_INTERNAL_KEY": internal_key(),
        "HTTP_X_DATA_URI": "/data/alice/clean/new.csv",
    }  # fmt: skip
    [left] = batch.store_all([batch.Request(asked, b"x")])
    with pytest.raises(HttpError) as refused:
        store.store(left)
    assert (refused.value.status, Dataset.objects.get().stored, files_of("clean")) == (409, 0, {})


def test_a_cancel_ends_a_copy_that_is_under_way(as_alice, alice, prepared, tasks, monkeypatch):
    monkeypatch.setattr(copies, "TOUCHED_EVERY_S", 0)
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    read = os.read

    def cancelled(file, count):
        if Dataset.objects.get().state == "creating":
            lifecycle.end_upload(user=alice, name="clean", by="alice")
        return read(file, count)

    with monkeypatch.context() as patched:
        patched.setattr("kernel.copying.os.read", cancelled)
        tasks.run()
    assert Dataset.objects.get().state == "error"
    assert (files_of("clean"), litter()) == ({}, [])


def test_a_copy_that_was_killed_begins_again(as_alice, prepared, tasks, monkeypatch):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})

    def killed(*_arguments, **_options):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr("kernel.copying.storage.remove_tree", killed)  # what a kill leaves stays
        with pytest.raises(SystemExit):
            tasks.run()
    assert litter()
    reconcile.run()
    assert tasks.queue == [], "it may still be under way"
    Dataset.objects.update(touched=timezone.now() - timedelta(days=2))
    reconcile.run()
    tasks.run()
    assert (Dataset.objects.get().state, litter()) == ("ready", [])
    assert len(files_of("clean")) == 2


def test_what_is_deleted_while_it_is_copied_leaves_nothing(as_alice, prepared, tasks):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    row = Dataset.objects.get()
    copy = Holder(lifecycle.copying_of(row.pk))
    assert copy.hold()  # another worker
    as_alice.call("put", f"{DATASETS}/clean:heartbeat", {"state": "error", "progress": 0})
    as_alice.call("delete", f"{DATASETS}/clean?trash=0")
    tasks.queue.clear()
    lifecycle.erase(row.pk)
    assert Dataset.objects.get().state == "deleting", "it waits for the copy to end"
    copy.release()
    tasks.run()
    assert not Dataset.objects.exists()
    assert rom() == 0


def test_a_source_that_is_gone_or_has_grown_is_the_reason(as_alice, prepared, tasks):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare/clean"})
    storage.remove_tree(storage.job_dir("alice", "prepare") / "clean")
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["reason"]) == ("error", "src: jobs/prepare/clean does not exist")


def while_reading(monkeypatch, tasks, happens) -> None:
    """Run the tasks; `happens` is called once, when the first file is being read."""
    read, left = os.read, [happens]

    def reading(file, count):
        while left:
            left.pop()()
        return read(file, count)

    with monkeypatch.context() as patched:
        patched.setattr("kernel.copying.os.read", reading)
        tasks.run()


def test_a_job_that_is_deleted_while_its_output_is_copied_makes_no_dataset_of_a_part(
    as_alice, prepared, tasks, monkeypatch
):
    """What is ready has all files: those that were gone already were taken for links, and it was ready without them."""
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    while_reading(monkeypatch, tasks, lambda: storage.remove_tree(storage.job_dir("alice", "prepare")))
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["reason"]) == ("error", "the files changed while they were being copied")
    assert (files_of("clean"), litter()) == ({}, [])


@pytest.mark.parametrize("path", ["clean/deep/b.csv", "clean/deep"])
def test_a_file_or_folder_that_is_removed_meanwhile_does_not_either(as_alice, prepared, tasks, monkeypatch, path):
    there = storage.job_dir("alice", "prepare") / path
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    while_reading(monkeypatch, tasks, lambda: storage.remove_tree(there) if there.is_dir() else there.unlink())
    assert as_alice.call("get", f"{DATASETS}/clean").json()["state"] == "error"


def test_what_cannot_be_read_is_the_reason_and_not_left_out(as_alice, prepared, tasks, monkeypatch):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    opened = os.open

    def broken(path, *arguments, **options):
        if path == "b.csv":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return opened(path, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr("kernel.copying.os.open", broken)
        tasks.run()
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["reason"]) == ("error", "could not be copied (Input/output error)")


def test_another_job_that_has_got_the_name_meanwhile_is_not_copied_while_it_runs(as_alice, alice, prepared, tasks):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    Job.objects.all().delete()
    put(Job, alice, "prepare", "running")
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], "is running" in row["reason"]) == ("error", True)


def test_a_deletion_disturbs_no_copy_to_a_name_that_begins_with_its_own(as_alice, prepared, tasks, monkeypatch):
    """With `clean` goes what killed copies to it have left, not where files are being copied for `clean.new`."""
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    tasks.run()
    as_alice.call("post", DATASETS, {"name": "clean.new", "src": "jobs/prepare"})

    def other():
        as_alice.call("delete", f"{DATASETS}/clean?trash=0")
        lifecycle.erase(Dataset.objects.get(name="clean").pk)
        assert call_command("datasets", "check", "--repair", stdout=StringIO()) is None, "nor is it repaired"

    while_reading(monkeypatch, tasks, other)
    row = as_alice.call("get", f"{DATASETS}/clean.new").json()
    assert (row["state"], row["stored"], len(files_of("clean.new"))) == ("ready", 9, 2), row["reason"]
    assert Dataset.objects.count() == 1


def test_a_user_has_one_copy_at_a_time_and_the_next_follows_it(as_alice, prepared, tasks, monkeypatch):
    """Copies that take hours would leave no thread of the worker to start jobs of anybody."""
    for name in ("clean", "other"):
        as_alice.call("post", DATASETS, {"name": name, "src": "jobs/prepare"})
    del tasks.queue[1:]
    waiting = Dataset.objects.get(name="other").pk

    def meanwhile():
        copies.copy(waiting)
        row = as_alice.call("get", f"{DATASETS}/other").json()
        assert (row["state"], row["reason"]) == ("creating", "waits for the copies of other datasets")

    while_reading(monkeypatch, tasks, meanwhile)
    rows = [as_alice.call("get", f"{DATASETS}/{name}").json() for name in ("clean", "other")]
    assert [(row["state"], row["reason"]) for row in rows] == [("ready", "")] * 2


def test_only_so_many_copies_of_all_users_run_at_once_and_what_waits_is_sent_again_after_a_while(
    as_alice, prepared, tasks
):
    places = [Holder(name) for name in copies.PLACES]
    assert all(place.hold() for place in places)
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    tasks.run()
    assert Dataset.objects.get().state == "creating"
    places[-1].release()
    Dataset.objects.update(touched=timezone.now() - timedelta(minutes=1))
    for _round in range(3):
        reconcile.run()
    assert len(tasks.queue) == 1
    tasks.run()
    assert Dataset.objects.get().state == "ready"
    for place in places:
        place.release()


def test_a_cancel_after_the_last_file_leaves_no_files(as_alice, alice, prepared, tasks, monkeypatch):
    monkeypatch.setattr(copies, "TOUCHED_EVERY_S", float("inf"))  # what was copied before is not looked at
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    while_reading(monkeypatch, tasks, lambda: lifecycle.end_upload(user=alice, name="clean", by="alice"))
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["stored"], files_of("clean"), litter()) == ("error", 0, {}, [])


def test_a_copy_killed_at_its_end_whose_source_is_gone_leaves_no_files(as_alice, prepared, tasks, monkeypatch):
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})

    def killed(*_arguments):
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr("datasets.lifecycle.complete_copy", killed)
        with pytest.raises(SystemExit):
            tasks.run()
    assert len(files_of("clean")) == 2
    storage.remove_tree(storage.job_dir("alice", "prepare"))
    copies.copy(Dataset.objects.get().pk)
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert (row["state"], row["stored"], files_of("clean")) == ("error", 0, {})


def test_what_is_left_out_is_said(as_alice, alice, prepared, tasks):
    """Links lead out of the output, or double it; nobody is to miss them later."""
    folder = storage.job_dir("alice", "prepare")
    (folder / "latest.csv").symlink_to("clean/a.csv")
    (folder / "all").symlink_to("clean")
    os.mkfifo(folder / "pipe")
    Path(os.fsdecode(bytes(folder / "clean") + b"/\xff.csv")).write_bytes(b"x")
    (folder / "clean" / "two\nlines.csv").write_bytes(b"x")  # the data service has no address for it
    as_alice.call("post", DATASETS, {"name": "clean", "src": "jobs/prepare"})
    tasks.run()
    row = as_alice.call("get", f"{DATASETS}/clean").json()
    assert row["state"] == "ready"
    assert set(files_of("clean")) == {"clean/a.csv", "clean/deep/b.csv"}
    names = ("latest.csv", "all", "pipe", "clean/\\xff.csv", "clean/two\\x0alines.csv", "5 (")
    assert all(name in row["reason"] for name in names), row["reason"]
    page = visitor(alice, HTTP_ACCEPT_LANGUAGE="zh-hans").get("/datasets/clean")
    assert "已略过 5 项" in visible_text(page)


def test_the_pages_lead_from_the_output_to_the_dataset(alice, prepared, tasks):
    browser = visitor(alice)
    assert "/datasets?src=jobs/prepare#new" in browser.get("/jobs/prepare").content.decode()
    form = browser.get("/datasets?src=jobs/prepare").content.decode()
    assert 'value="jobs/prepare"' in form
    assert 'value="prepare"' in form, "the name that is proposed"
    wrong = browser.post("/datasets", {"name": "clean", "src": "jobs/none"})
    assert (wrong.status_code, "you have no job named none" in wrong.content.decode()) == (403, True)
    assert 'value="jobs/none"' in wrong.content.decode(), "what was typed stays"
    assert browser.post("/datasets", {"name": "clean", "src": "jobs/prepare"}).status_code == 302
    tasks.run()
    page = browser.get("/datasets/clean")
    assert "Copied from jobs/prepare" in " ".join(visible_text(page).split())
    assert 'href="/jobs/prepare"' in page.content.decode()
