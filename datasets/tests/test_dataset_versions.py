"""Versions of a dataset: published from another one, named by jobs, deleted; nothing is lost when a process dies."""

from __future__ import annotations

import hashlib
import os
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from accounts.sharing import grants
from datasets import lifecycle, orphans, publishing, reconcile, sources, versions
from datasets.models import Dataset, Version
from jobs import environment
from jobs.code import capture
from jobs.models import Capture, Job
from kernel import storage
from kernel.models import StateChange
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from operations.accounting import SOURCES
from resources import books
from resources.models import ResourceRequest, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

JOB = {"entry": "train.py", "cpu": 0.1, "ram": 100}
ADDRESS = "users/alice/datasets/photos"


class Killed(BaseException):
    """Stands for the end of the process at this place."""


def upload(caller, name: str, files: dict[str, str], tenant=None) -> Dataset:
    """Make a ready dataset as its uploader does, with the files put where the data service puts them."""
    size = sum(len(text) for text in files.values())
    assert caller.call("post", "users/alice/datasets", {"name": name, "size": size}).status_code == 201
    for path, text in files.items():
        file = storage.dataset_dir("alice", name) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    answer = caller.call("put", f"users/alice/datasets/{name}:heartbeat", {"state": "ready", "progress": 100})
    assert answer.status_code == 200, answer.content
    return Dataset.objects.get(name=name)


@pytest.fixture
def photos(as_alice, home, tasks) -> Dataset:
    return upload(as_alice, "photos", {"a.txt": "old", "sub/b.txt": "b"})


@pytest.fixture
def published(photos, as_alice, tasks) -> Dataset:
    upload(as_alice, "photos.new", {"a.txt": "newer"})
    tasks.run()
    answer = as_alice.call("post", f"{ADDRESS}/versions", {"source": "photos.new", "notes": "*better*"})
    assert (answer.status_code, answer.json()["number"]) == (201, 2)
    tasks.run()
    photos.refresh_from_db()
    return photos


def text_of(number: int) -> str:
    row = Dataset.objects.select_related("user").get(name="photos")
    return (storage.root() / "datasets" / Path(*versions.steps_of(row, number)) / "a.txt").read_text()


def held() -> int:
    return ResourceRequest.objects.get(pk=lifecycle.request_id(Dataset.objects.get(name="photos").pk)).rom


def numbers(caller) -> list[int]:
    return [version["number"] for version in caller.call("get", f"{ADDRESS}/versions").json()]


def read_by(job: Job, attempt_of: str = "photos") -> str:
    """Return what the first file of the job's dataset holds, at the place from which its run reads."""
    job.run_name = job.run_name or "job-1-1"
    spec = environment.run_spec(job, job.user)
    mount = next(each for each in spec.mounts if str(each.target).endswith(f"/{attempt_of}"))
    return (mount.source / "a.txt").read_text()


class TestPublishing:
    def test_the_new_files_are_current_and_the_old_ones_stay(self, published, as_alice):
        assert (text_of(1), text_of(2)) == ("old", "newer")
        row = as_alice.call("get", ADDRESS).json()
        assert (row["version"], row["size"], row["stored"], row["state"]) == (2, 5, 5, "ready")
        assert not Dataset.objects.filter(name="photos.new").exists()
        assert not storage.dataset_dir("alice", "photos.new").exists()
        rows = as_alice.call("get", f"{ADDRESS}/versions").json()
        assert [(row["number"], row["current"], row["size"], row["notes"], row["by"]) for row in rows] == [
            (2, True, 5, "*better*", "alice"), (1, False, 4, "", "alice"),
        ]  # fmt: skip
        assert held() == 9
        assert books.explain(Tenant.objects.get(name="default"), SOURCES) == []
        assert ResourceRequest.objects.filter(state__in=["tried", "confirmed"]).count() == 1
        assert orphans.find() == []

    def test_checksums_are_those_of_the_content(self, published, as_alice):
        lines = [f"{path}\0{len(text)}\0{hashlib.sha256(text.encode()).hexdigest()}\n".encode() for path, text in (
            ("a.txt", "old"), ("sub/b.txt", "b"))]  # fmt: skip
        new, old = as_alice.call("get", f"{ADDRESS}/versions").json()
        assert old["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()
        assert (old["files"], new["files"], len(new["sha256"])) == (2, 1, 64)

    def test_an_empty_dataset_gets_and_becomes_a_version(self, as_alice, home, tasks):
        upload(as_alice, "photos", {})
        upload(as_alice, "next", {"a.txt": "x"})
        assert as_alice.call("post", f"{ADDRESS}/versions", {"source": "next"}).status_code == 201
        tasks.run()
        upload(as_alice, "none", {})
        assert as_alice.call("post", f"{ADDRESS}/versions", {"source": "none"}).status_code == 201
        tasks.run()
        assert (numbers(as_alice), text_of(2), held()) == ([3, 2, 1], "x", 1)
        assert list(storage.dataset_dir("alice", "photos").iterdir()) == []

    @pytest.mark.parametrize(
        ("source", "problem"),
        [
            ("photos", "source: must be another dataset"),
            ("nothing", "source: you have no dataset named nothing"),
            ("coming", "state: the dataset coming is creating; both must be ready"),
        ],
    )
    def test_refusals_name_the_reason(self, photos, as_alice, source, problem):
        as_alice.call("post", "users/alice/datasets", {"name": "coming", "size": 3})
        assert as_alice.refused("post", f"{ADDRESS}/versions", {"source": source}) == problem
        assert (text_of(1), numbers(as_alice)) == ("old", [1])

    def test_a_dataset_that_a_job_uses_is_not_published_elsewhere(self, photos, as_alice):
        upload(as_alice, "next", {"a.txt": "x"})
        assert (
            as_alice.call("post", "users/alice/jobs", {"name": "fit", **JOB, "datasets": ["next"]}).status_code == 201
        )
        assert "the job fit uses this dataset" in as_alice.refused("post", f"{ADDRESS}/versions", {"source": "next"})
        assert Dataset.objects.get(name="next").state == "ready"

    def test_others_neither_publish_nor_delete(self, published, as_bob, bob):
        grants.make(row=published, audience="user", user="bob", right="clone", by="alice")
        assert numbers(as_bob) == [2, 1]  # readers see them
        assert as_bob.call("post", f"{ADDRESS}/versions", {"source": "x"}).status_code == 403
        assert as_bob.call("delete", f"{ADDRESS}/versions/1").status_code == 403
        assert text_of(1) == "old"

    @pytest.mark.parametrize("renames", few([0, 1, 2], 1))
    def test_a_publication_whose_process_dies_is_finished(self, photos, as_alice, alice, tasks, monkeypatch, renames):
        upload(as_alice, "next", {"a.txt": "newer"})
        rename, done = os.rename, []

        def dies(*given):
            if len(done) == renames:
                raise Killed
            done.append(given)
            rename(*given)
            if len(done) == renames == 2:
                raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(versions.os, "rename", dies)
            with pytest.raises(Killed):
                publishing.publish(user=alice, name="photos", source="next", by="alice")
        assert as_alice.refused("delete", ADDRESS).endswith("another version of the dataset photos is being published")
        tasks.queue.clear()  # and its message is lost
        Version.objects.update(asked=None)
        StateChange.objects.update(at=timezone.now() - timedelta(minutes=1))
        reconcile.run()
        tasks.run()
        assert (text_of(1), text_of(2), held(), numbers(as_alice)) == ("old", "newer", 9, [2, 1])
        assert Dataset.objects.get().incoming is None
        assert orphans.find() == []

    def test_deleting_the_dataset_deletes_its_versions(self, published, as_alice, tasks):
        sources.folder(published.user, "photos@1")
        assert as_alice.call("delete", ADDRESS).status_code == 200
        tasks.run()
        assert not Dataset.objects.exists()
        assert not Version.objects.exists()
        left = list((storage.root() / "datasets").rglob("*.txt"))
        assert left == []
        assert not ResourceRequest.objects.filter(state__in=["tried", "confirmed"]).exists()


class TestJobs:
    def order(self, caller, *references: str, name: str = "fit") -> Job:
        answer = caller.call("post", "users/alice/jobs", {"name": name, **JOB, "datasets": list(references)})
        assert answer.status_code == 201, answer.content
        return Job.objects.get(name=name)

    def test_a_job_reads_the_version_that_it_names(self, published, as_alice):
        checksum = Version.objects.get(number=1).sha256
        assert read_by(self.order(as_alice, "photos")) == "newer"
        assert read_by(self.order(as_alice, "photos@1", name="a")) == "old"
        job = self.order(as_alice, f"photos@{checksum[:12]}", name="b")
        assert (read_by(job), job.datasets) == ("old", ["photos@1"])

    def test_an_unknown_version_is_refused(self, published, as_alice):
        references = ["photos@3", "photos@" + 12 * "0", "other@1"]
        assert {each: self.refusal(as_alice, each) for each in references} == {
            each: f"datasets: you have no ready dataset named {each}" for each in references
        }

    def test_a_malformed_version_is_named(self, published, as_alice):
        references = ["photos@", "photos@0", "photos@01", "photos@x", "photos@1@2", "@1"]
        said = {each: self.refusal(as_alice, each) for each in references}
        assert {each: text for each, text in said.items() if not text.startswith("datasets")} == {}

    def refusal(self, caller, reference: str) -> str:
        return caller.refused("post", "users/alice/jobs", {"name": "fit", **JOB, "datasets": [reference]})

    def test_two_versions_of_one_dataset_would_be_at_one_place(self, published, as_alice):
        given = {"name": "fit", **JOB, "datasets": ["photos@1", "photos@2"]}
        assert as_alice.refused("post", "users/alice/jobs", given) == "datasets: two of them are named photos"

    def test_what_is_published_meanwhile_is_not_seen_by_a_job_that_has_started(self, photos, as_alice, tasks):
        job = self.order(as_alice, "photos")
        capture.pin_datasets(job)
        before = read_by(job)
        place = sources.folder(job.user, "photos")[1]
        upload(as_alice, "next", {"a.txt": "newer"})
        assert as_alice.call("post", f"{ADDRESS}/versions", {"source": "next"}).status_code == 201
        assert (place / "a.txt").read_text() == "old"  # where a run reads, or a pod that waits will
        assert (before, read_by(job)) == ("old", "old")  # its next attempt, too
        capture.keep_datasets(job)
        kept = Capture.objects.get(job=job).datasets["photos"]
        assert (kept["version"], kept["files"], kept["bytes"]) == (1, 2, 4)
        assert "the job fit uses this dataset" in as_alice.refused("delete", f"{ADDRESS}/versions/1")

    def test_without_hard_links_a_run_reads_the_versions_own_folder(self, published, as_alice, monkeypatch):
        link = os.link

        def none(source, *given, **named):
            if "photos" in str(source):
                raise PermissionError("no links here")
            link(source, *given, **named)

        monkeypatch.setattr(versions.os, "link", none)
        assert read_by(self.order(as_alice, "photos@1")) == "old"
        assert orphans.find() == []

    def test_a_shared_version_is_read_by_others(self, published, as_bob, bob):
        grants.make(row=published, audience="user", user="bob", right="clone", by="alice")
        (storage.home_dir("bob") / "train.py").write_text("")
        given = {"name": "theirs", **JOB, "datasets": ["alice/photos@1"]}
        assert as_bob.call("post", "users/bob/jobs", given).status_code == 201
        assert read_by(Job.objects.get()) == "old"


class TestDeletion:
    def test_an_earlier_version_is_deleted_with_its_files(self, published, as_alice, tasks):
        sources.folder(published.user, "photos@1")
        assert as_alice.call("delete", f"{ADDRESS}/versions/1").status_code == 200
        assert numbers(as_alice) == [2]
        tasks.run()
        assert (held(), text_of(2)) == (5, "newer")
        assert not storage.dataset_version_dir("alice", "photos", 1).exists()
        assert not storage.dataset_mount_dir("alice", "photos", 1).exists()
        assert as_alice.refused("delete", f"{ADDRESS}/versions/1") == "version: no such version"
        assert orphans.find() == []

    def test_a_lost_message_is_made_up_for(self, published, as_alice, alice, tasks):
        Version.objects.filter(number=1).update(erased=True)
        reconcile.run()
        tasks.run()
        assert (numbers(as_alice), held()) == ([2], 5)

    def test_the_current_one_and_one_in_use_stay(self, published, as_alice, tasks):
        assert as_alice.refused("delete", f"{ADDRESS}/versions/2") == (
            "state: version 2 is the current one; delete the dataset instead"
        )
        given = {"name": "fit", **JOB, "datasets": ["photos@1"]}
        assert as_alice.call("post", "users/alice/jobs", given).status_code == 201
        assert "the job fit uses this dataset" in as_alice.refused("delete", f"{ADDRESS}/versions/1")
        assert text_of(1) == "old"


class TestPages:
    def test_versions_are_listed_read_published_and_deleted(self, published, alice, as_alice, tasks):
        client = visitor(alice)
        page = client.get("/datasets/photos").content.decode()
        assert "photos@2" in page
        assert "<em>better</em>" in page
        old = client.get("/datasets/photos?version=1").content.decode()
        assert 'href="/datasets/photos/view/a.txt?version=1"' in old
        assert "sub/" in old
        file = client.get("/datasets/photos/files/a.txt?version=1")
        assert b"".join(file.streaming_content) == b"old"
        assert "old" in client.get("/datasets/photos/view/a.txt?version=1").content.decode()
        for wrong in ("3", "0", "x", "1" * 13):
            assert client.get(f"/datasets/photos?version={wrong}").status_code == 404
        upload(as_alice, "third", {"a.txt": "3"})
        assert client.post("/datasets/photos/versions", {"source": "third"}).status_code == 302
        assert text_of(3) == "3"
        assert client.post("/datasets/photos/versions", {"delete": "1"}).status_code == 302
        assert numbers(as_alice) == [3, 2]
        shown = client.post("/datasets/photos/versions", {"delete": "3"}, follow=True).content.decode()
        assert "Version 3 is the current one" in shown

    def test_the_form_of_a_job_offers_earlier_versions(self, published, alice):
        assert 'value="photos@1"' in visitor(alice).get("/jobs?new=1").content.decode()

    def test_a_dataset_from_before_there_were_versions_has_its_first(self, alice, as_alice, home, tasks):
        folder = storage.dataset_dir("alice", "photos")
        folder.mkdir(parents=True)
        (folder / "a.txt").write_text("old")
        Dataset.objects.create(user=alice, tenant=alice.tenant, name="photos", size=3, stored=3, state="ready")
        reconcile.run()
        tasks.run()
        (version,) = as_alice.call("get", f"{ADDRESS}/versions").json()
        assert (version["number"], version["files"], len(version["sha256"])) == (1, 1, 64)
