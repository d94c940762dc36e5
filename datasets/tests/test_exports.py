"""Exports to a bucket of a real S3 server, rclone's: datasets, outputs of jobs and models."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import os
import subprocess
from datetime import timedelta

import pytest
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Notice
from accounts.tenancy import members
from datasets import reconcile
from datasets.buckets import rows, writing
from datasets.exports import lifecycle, sending
from datasets.models import Dataset, Export
from datasets.tests.test_buckets import LARGE, ODD, bucket, remote  # noqa: F401
from jobs.models import Job
from kernel import storage
from kernel.singleton import Holder
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visible_text, visitor
from mlp.tests.tiers import few
from models_app.models import Model
from operations.backup.tests.conftest import RCLONE, s3  # noqa: F401
from resources import tenants

pytestmark = pytest.mark.django_db(transaction=True)
EXPORTS = "users/alice/exports"
SIGNED = "@failures (1): {x} '!,;$&.png"  # characters that a signature of the address has to encode
FILES = {
    "a.csv": b"x\n1\n",
    "deep/er/b.txt": b"b",
    "empty.txt": b"",
    **{f"odd/{name}": name.encode() for name in (*ODD, SIGNED)},
}


def write(folder, contents: dict[str, bytes]) -> None:
    for path, content in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


@pytest.fixture
def writable(bucket, remote):
    remote.delete([entry["path"] for batch in remote.list("out") for entry in batch])
    rows.change(bucket, by="root", access="write", everybody=True)
    return bucket


@pytest.fixture
def cats(alice) -> Dataset:
    write(storage.dataset_dir("alice", "cats"), FILES)
    return put(Dataset, alice, "cats", "ready")


@pytest.fixture
def prepared(alice) -> Job:
    """A finished job, with an output and what is the platform's."""
    write(storage.job_dir("alice", "prepare"), {"clean/a.csv": b"x\n1\n", "log/0.log": b"no", "b.bin": b"b"})
    return put(Job, alice, "prepare", "finished")


@pytest.fixture
def export(as_alice, tasks):
    """Export, and return the export once the worker has done all it has."""

    def send(src: str = "datasets/cats", target: str = "s3/photos/out") -> dict:
        created = as_alice.call("post", EXPORTS, {"src": src, "target": target})
        assert created.status_code == 201, created.content
        tasks.run()
        return as_alice.call("get", f"{EXPORTS}/{created.json()['number']}").json()

    return send


@pytest.fixture
def objects(remote):
    """Return the contents of the objects below `out`."""

    def read() -> dict[str, bytes]:
        paths = [entry["path"] for batch in remote.list("out") for entry in batch]
        return {path.removeprefix("out/"): bytes(remote.get(path).bytes()) for path in paths}

    return read


def ending(row: dict) -> tuple:
    return row["state"], row["outcome"], row["reason"]


def test_a_dataset_is_sent_and_again_only_what_is_not_there(as_alice, cats, writable, export, objects, remote):
    row = export(target="s3://photos/out/")
    assert ending(row) == ("finished", "finished", "")
    assert objects() == FILES
    assert (row["src"], row["target"], row["progress"]) == ("datasets/cats@1", "s3/photos/out", 100)
    assert (row["files"], row["sent"], row["size"]) == (len(FILES), len(FILES), sum(map(len, FILES.values())))
    again = export()
    assert (again["state"], again["files"], again["sent"]) == ("finished", len(FILES), 0)
    remote.put("out/a.csv", b"y\n1\n")  # of the same size
    remote.delete("out/deep/er/b.txt")
    remote.put("out/other", b"stays")
    assert export()["sent"] == 2
    assert objects() == {**FILES, "other": b"stays"}
    listed = as_alice.call("get", f"{EXPORTS}?state=finished")
    assert [each["sent"] for each in listed.json()] == [2, 0, len(FILES)]


@pytest.mark.long
def test_what_was_sent_is_what_rclone_check_finds(cats, s3, writable, export):
    """Files in parts are among them; the server's checksum of these is another one than that of their parts."""
    folder = storage.dataset_dir("alice", "cats")
    write(folder, {"large.bin": LARGE, "deep/larger.bin": LARGE * 7})
    assert export()["sent"] == len(FILES) + 2
    assert export()["sent"] == 0
    place = f":s3,provider=Other,endpoint='{s3['AWS_ENDPOINT_URL']}':kept/out"
    keys = {f"RCLONE_S3_{name}": s3[f"AWS_{name}"] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")}
    command = [RCLONE, "check", "--download", "--config", "/dev/null", str(folder), place]
    checked = subprocess.run(command, env={**os.environ, **keys}, capture_output=True, text=True, check=False)
    assert (checked.returncode, "0 differences found" in checked.stderr) == (0, True), checked.stderr
    (folder / "a.csv").write_bytes(b"y\n1\n")
    assert subprocess.run(command, env={**os.environ, **keys}, capture_output=True, check=False).returncode == 1


def test_an_output_without_files_and_the_whole_bucket_as_the_target(prepared, writable, export, remote):
    assert export("jobs/prepare/clean", "s3/photos")["state"] == "finished"
    assert bytes(remote.get("a.csv").bytes()) == b"x\n1\n"
    remote.delete("a.csv")
    (storage.job_dir("alice", "prepare") / "none").mkdir()
    row = export("jobs/prepare/none")
    assert (*ending(row), row["files"]) == ("finished", "finished", "jobs/prepare/none has no files", 0)


def test_the_output_of_a_job_or_a_part_of_it(prepared, writable, export, objects):
    folder = storage.job_dir("alice", "prepare")
    (folder / "link").symlink_to("b.bin")
    (folder / "none" / "at" / "all").mkdir(parents=True)
    (folder / "line\nbreak").write_bytes(b"x")
    row = export("jobs/prepare")
    assert row["state"] == "finished"
    assert row["reason"].startswith(
        "left out, as links and the like, names that cannot be sent and empty folders are: 3 ("
    )
    assert {"link", "none/at/all/", r"line\x0abreak"} == set(row["reason"].split("(")[1].rstrip(")").split(", "))
    assert objects() == {"clean/a.csv": b"x\n1\n", "b.bin": b"b"}, "without the job's log"
    assert export("jobs/prepare/b.bin", "s3/photos/out/one")["state"] == "finished"
    assert objects()["one/b.bin"] == b"b"


def test_a_model_with_its_files(alice, writable, export, objects):
    put(Model, alice, "net", "ready")
    write(storage.model_dir("alice", "net"), {"model.pt": b"weights"})
    assert export("models/net")["state"] == "finished"
    assert objects() == {"model.pt": b"weights"}


@pytest.mark.parametrize(
    ("src", "target", "problem"),
    few(
        [
            ("datasets/dogs", "s3/photos/out", "src: you have no dataset named dogs"),
            ("datasets/cats@7", "s3/photos/out", "src: the dataset cats has no such version"),
            ("datasets/cats@x/y", "s3/photos/out", "src: the dataset cats has no such version"),
            ("datasets/../bob/cats", "s3/photos/out", "src: you have no dataset named ../bob/cats"),
            ("jobs/fit", "s3/photos/out", "src: you have no job named fit"),
            ("models/net", "s3/photos/out", "src: you have no model named net"),
            ("home/x", "s3/photos/out", "src: must be datasets/{dataset}"),
            ("datasets/cats", "s3/other/out", "target: there is no bucket named other that you may read"),
            ("datasets/cats", "s3/photos/../x", "target: must not have an empty part"),
            ("datasets/cats", "gs/photos", "target: must be s3/{bucket}"),
        ],
        3,
    ),
)
def test_what_cannot_be_sent_is_refused_at_once(as_alice, cats, writable, src, target, problem):
    assert as_alice.refused("post", EXPORTS, {"src": src, "target": target}).startswith(problem)
    assert as_alice.call("get", EXPORTS).json() == []


def test_only_who_may_write_a_bucket_sends_to_it(as_alice, as_bob, cats, bucket, remote, tasks):
    sent = {"src": "datasets/cats", "target": "s3/photos/out"}
    assert as_alice.call("get", "users/alice/buckets").json()[0]["access"] == "read", "as it was before"
    assert as_alice.refused("post", EXPORTS, sent) == "target: the bucket photos is read-only"
    team = tenants.create(name="team", cpu=0, gpu=0, ram=0, rom=0, by="root")
    rows.change(bucket, by="root", access="write", everybody=False, tenants=[team])
    assert "that you may read" in as_alice.refused("post", EXPORTS, sent)
    members.put(tenant="team", user="alice", role="member", by="root")
    number = as_alice.call("post", EXPORTS, sent).json()["number"]
    assert as_alice.refused("post", EXPORTS, sent) == "target: datasets/cats@1 is being sent there already"
    assert as_bob.call("get", f"users/bob/exports/{number}").status_code == 403
    assert as_bob.call("put", f"users/bob/exports/{number}:cancel").status_code == 403
    members.remove(tenant="team", user="alice", by="root")  # before it has begun
    tasks.run()
    row = as_alice.call("get", f"{EXPORTS}/{number}").json()
    assert ending(row) == ("error", "failed", "there is no bucket named photos that you may read")
    notice = Notice.objects.get(kind="export", user__username="alice")
    assert (notice.title, notice.event) == ("datasets/cats@1 > s3/photos/out", "error")


def test_the_right_is_asked_for_while_files_are_sent(cats, writable, export, monkeypatch):
    monkeypatch.setattr(sending, "ALLOWED_EVERY_S", 0.0)
    real = writing.write

    def then_take(*given):
        real(*given)
        rows.change(writable, by="root", access="read", everybody=True)

    monkeypatch.setattr(writing, "write", then_take)
    assert ending(export()) == ("error", "failed", "the bucket photos is read-only")


def test_a_file_that_changes_while_it_is_sent_is_named_and_not_there(prepared, writable, export, objects, monkeypatch):
    """The moment between two reads cannot be met from outside: the file changes as its first block is read."""
    file = storage.job_dir("alice", "prepare") / "big.bin"
    file.write_bytes(LARGE)
    real = os.pread

    def then_change(handle, size, place):
        block = real(handle, size, place)
        if place == 0 and size == writing.BLOCK:
            os.utime(file, ns=(0, 0))
        return block

    monkeypatch.setattr(writing.os, "pread", then_change)
    assert ending(export("jobs/prepare")) == ("error", "failed", "the file big.bin changed while it was being sent")
    assert "big.bin" not in objects()


def test_a_cancelled_export_ends_and_what_was_sent_stays(as_alice, alice, cats, writable, export, objects, monkeypatch):
    monkeypatch.setattr(sending, "SAID_EVERY_S", 0.0)
    monkeypatch.setattr(sending, "WAITING", 1)
    real = writing.write

    def then_cancel(*given):
        real(*given)
        Export.objects.filter(state="running").exists() and lifecycle.cancel(
            user=alice, number=Export.objects.get().pk, by="alice"
        )

    monkeypatch.setattr(writing, "write", then_cancel)
    assert ending(export()) == ("error", "cancelled", "cancelled")
    assert set(objects().items()) < set(FILES.items())
    number = Export.objects.get().pk
    assert as_alice.refused("put", f"{EXPORTS}/{number}:cancel").startswith("state: the export is error")
    assert not Notice.objects.filter(kind="export").exists()


def test_an_export_whose_worker_was_killed_goes_on(alice, as_alice, cats, writable, remote, objects, tasks):
    """The row is as a killed worker leaves it: running, with some of the files there, and no message."""
    row = lifecycle.create_export(user=alice, src="datasets/cats", target="s3/photos/out", by="alice")
    tasks.queue.clear()
    assert lifecycle.begin(row.pk)
    remote.put("out/a.csv", FILES["a.csv"])
    Export.objects.update(touched=timezone.now() - timedelta(minutes=1))
    reconcile.run()
    tasks.run(times=2)
    row.refresh_from_db()
    assert (row.state, row.files, row.sent) == ("finished", len(FILES), len(FILES) - 1)
    assert objects() == FILES


def test_it_waits_for_a_place_and_for_the_users_other_export(alice, cats, writable, tasks):
    first, _second = (
        lifecycle.create_export(user=alice, src="datasets/cats", target=f"s3/photos/out/{name}", by="alice")
        for name in "ab"
    )
    places = [Holder(name) for name in sending.copies.PLACES]
    assert all(place.hold() for place in places)
    tasks.run()
    first.refresh_from_db()
    assert (first.state, first.reason) == ("queued", sending.TURN)
    for place in places:
        place.release()
    Export.objects.update(touched=timezone.now() - timedelta(minutes=1))
    reconcile.run()
    tasks.run()
    assert {row.state for row in Export.objects.all()} == {"finished"}


def test_another_dataset_of_that_name_is_not_sent(alice, cats, writable, tasks):
    row = lifecycle.create_export(user=alice, src="datasets/cats", target="s3/photos/out", by="alice")
    Export.objects.update(object_id=cats.pk + 1)
    tasks.run()
    row.refresh_from_db()
    assert row.reason == "datasets/cats@1 was deleted, and is another one now"


def test_a_deactivated_account_ends_its_exports(alice, cats, writable):
    row = lifecycle.create_export(user=alice, src="datasets/cats", target="s3/photos/out", by="alice")
    accounts.deregister(username="alice", by="root")
    row.refresh_from_db()
    assert (row.state, row.outcome) == ("error", "cancelled")


def test_the_pages_export_show_and_cancel(alice, cats, prepared, writable, remote, tasks):
    client = visitor(alice)
    for page, src in (("/datasets/cats", "datasets/cats"), ("/jobs/prepare", "jobs/prepare")):
        link = f"/exports?src={src}#new"
        assert f'href="{link}"' in client.get(page).content.decode() or page == "/jobs/prepare"
    form = client.get("/exports?src=datasets/cats").content.decode()
    assert 'value="datasets/cats"' in form
    assert "you may write: photos" in form
    refused = client.post("/exports", {"src": "datasets/cats", "target": "s3/other"})
    assert (refused.status_code, "no bucket named other" in visible_text(refused)) == (403, True)
    assert client.post("/exports", {"src": "datasets/cats", "target": "s3/photos/out"})["Location"] == "/exports"
    number = Export.objects.get().pk
    assert client.get(f"/exports/{number}")["Location"] == f"/exports#export-{number}"
    assert client.post(f"/exports/{number}/cancel").status_code == 302
    assert "cancelled" in visible_text(client.get("/exports"))
    tasks.run()
    assert Export.objects.get().sent == 0
