"""Datasets that are copied from a bucket of a real S3 server: rclone's."""

from __future__ import annotations

import pytest
from django.urls import reverse
from django.utils import translation
from obstore.exceptions import InvalidPathError
from obstore.store import S3Store

from accounts.tenancy import members
from datasets import copies, lifecycle
from datasets.buckets import rows, store
from datasets.buckets.store import Entry, Store
from datasets.models import Bucket
from kernel import storage
from kernel.admin_display import url_of
from mlp.operators.tests.test_admin_verbs import do
from operations.backup.tests.conftest import s3  # noqa: F401
from resources import tenants

pytestmark = pytest.mark.django_db(transaction=True)
DATASETS = "users/alice/datasets"
WORD = {"name": "photos", "bucket": "kept", "region": "us-east-1", "signing": "key", "everybody": True}


@pytest.fixture
def remote(s3):  # noqa: F811
    """Return a client of the server's bucket, which is empty."""
    options = {"client_options": {"allow_http": True}, "region": "us-east-1", "endpoint": s3["AWS_ENDPOINT_URL"]}
    keys = {"access_key_id": s3["AWS_ACCESS_KEY_ID"], "secret_access_key": s3["AWS_SECRET_ACCESS_KEY"]}
    client = S3Store("kept", **options, **keys)
    client.delete([entry["path"] for batch in client.list("train") for entry in batch])
    return client


@pytest.fixture
def objects(remote):
    """Write objects, by their keys below `train`."""

    def write(contents: dict[str, bytes]) -> None:
        for key, content in contents.items():
            remote.put(f"train/{key}", content)

    return write


@pytest.fixture
def bucket(db, s3) -> Bucket:  # noqa: F811
    keys = {"access_key": s3["AWS_ACCESS_KEY_ID"], "secret": s3["AWS_SECRET_ACCESS_KEY"]}
    return rows.create(by="root", endpoint=s3["AWS_ENDPOINT_URL"], **keys, **WORD)


def files_of(name: str) -> dict[str, bytes]:
    folder = storage.dataset_dir("alice", name)
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(client, tasks, src: str, name: str = "cats") -> dict:
    """Create a dataset of the source and return it once its copy has ended."""
    created = client.call("post", DATASETS, {"name": name, "src": src})
    assert created.status_code == 201, created.content
    tasks.run()
    return client.call("get", f"{DATASETS}/{name}").json()


LARGE = bytes(range(256)) * 40_000
ODD = ("a b", "ü", "a=b&c;d", "100%.txt", "a#b", "x*y", "[x]", "~", "a?b", "a+b", "a%20b", "-", "..a", ".hidden")


def test_a_folder_of_a_bucket_becomes_a_dataset(as_alice, bucket, objects, tasks):
    odd = {f"odd/{name}": name.encode() for name in ODD}
    objects({"a.csv": b"x\n1\n", "deep/er/b.bin": LARGE, "empty.txt": b"", **odd})
    row = copied(as_alice, tasks, "s3://photos/train/")
    assert (row["state"], row["reason"], row["src"]) == ("ready", "", "s3/photos/train/")
    assert files_of("cats") == {"a.csv": b"x\n1\n", "deep/er/b.bin": LARGE, "empty.txt": b"", **odd}
    assert row["size"] == row["stored"] == sum(map(len, files_of("cats").values()))


def test_the_right_to_read_has_its_own_words_in_chinese():
    with translation.override("zh-hans"):
        assert str(Bucket.Access.READ.label) == "只读"


def test_a_single_object_and_a_whole_bucket_below_its_folder(as_alice, bucket, objects, tasks):
    objects({"deep/one.csv": b"1", "deep/one.csv.gz": b"22"})
    assert copied(as_alice, tasks, "s3/photos/train/deep/one.csv")["state"] == "ready"
    assert files_of("cats") == {"one.csv": b"1"}
    rows.change(bucket, by="root", prefix="/train/deep/", everybody=True)
    assert copied(as_alice, tasks, "s3/photos", "whole")["state"] == "ready"
    assert files_of("whole") == {"one.csv": b"1", "one.csv.gz": b"22"}


@pytest.mark.parametrize(
    ("change", "src", "problem"),
    [
        ({}, "s3/photos/none", "s3/photos/none has no files, or only empty ones"),
        ({"bucket": "missing"}, "s3/photos/a", "the bucket photos: "),
        ({"access_key": "other", "secret": "other"}, "s3/photos/a", "the bucket photos: "),
        ({"endpoint": "http://127.0.0.1:9"}, "s3/photos/a", "the bucket photos: "),
    ],
)
def test_what_the_server_refuses_is_the_reason(as_alice, bucket, tasks, monkeypatch, change, src, problem):
    monkeypatch.setattr(store, "LISTED", store.SOON)
    rows.change(bucket, by="root", everybody=True, **change)
    row = copied(as_alice, tasks, src)
    assert row["state"] == "error"
    assert problem in row["reason"]
    assert "Debug" not in row["reason"]
    assert len(row["reason"]) < 500


@pytest.mark.parametrize(
    ("src", "problem"),
    [
        ("s3/other/a", "src: there is no bucket named other that you may read"),
        ("s3/Photos", "src: must be s3/{bucket} or s3/{bucket}/{path}"),
        ("s3/photos/../x", "src: must not have an empty part"),
        ("s4/photos", "src: must be jobs/{job}[/{path}], home/{path} or s3/{bucket}[/{path}]"),
    ],
)
def test_a_source_that_cannot_be_is_refused_at_once(as_alice, bucket, src, problem):
    assert as_alice.refused("post", DATASETS, {"name": "cats", "src": src}).startswith(problem)
    assert as_alice.call("get", DATASETS).json() == []


def test_only_members_of_its_tenants_read_a_bucket(as_alice, as_bob, bucket, objects, tasks):
    objects({"a.csv": b"1"})
    team = tenants.create(name="team", cpu=0, gpu=0, ram=0, rom=0, by="root")
    rows.change(bucket, by="root", everybody=False, tenants=[team])
    assert as_bob.call("get", "users/bob/buckets").json() == []
    refused = as_bob.refused("post", "users/bob/datasets", {"name": "cats", "src": "s3/photos/train"})
    assert "there is no bucket named photos that you may read" in refused
    members.put(tenant="team", user="alice", role="viewer", by="root")
    assert as_alice.call("get", "users/alice/buckets").json() == []
    members.put(tenant="team", user="alice", role="member", by="root")
    answer = as_alice.call("get", "users/alice/buckets")
    assert [row["name"] for row in answer.json()] == ["photos"]
    assert "secret" not in answer.content.decode()
    assert "the-key" not in answer.content.decode()
    as_alice.call("post", DATASETS, {"name": "cats", "src": "s3/photos/train"})
    members.remove(tenant="team", user="alice", by="root")  # before the copy has begun
    tasks.run()
    assert "that you may read" in as_alice.call("get", f"{DATASETS}/cats").json()["reason"]
    tenants.delete(name="team", by="root")
    assert as_alice.call("get", "users/alice/buckets").json() == []


def test_more_than_the_tenant_has_room_for_is_refused_before_it_is_copied(as_alice, bucket, objects, tasks):
    objects({"large.bin": LARGE})
    tenants.change(name="default", rom=len(LARGE) - 1, by="root")
    row = copied(as_alice, tasks, "s3/photos/train")
    assert row["state"] == "error"
    assert "rom" in row["reason"]
    assert list(storage.dataset_dir("alice", "cats").parent.iterdir()) == []


def test_an_object_that_changes_while_it_is_copied_fails_the_dataset(as_alice, bucket, objects, tasks, monkeypatch):
    """The moment between the list and the copy cannot be met from outside: the objects change as the list ends."""
    objects({"a.csv": b"1", "b.csv": b"2"})
    listed = Store.list

    def then_change(self, path):
        yield from listed(self, path)
        objects({"b.csv": b"3"})

    monkeypatch.setattr(Store, "list", then_change)
    row = copied(as_alice, tasks, "s3/photos/train")
    assert row["reason"] == "src: the object train/b.csv changed while it was being copied"


def test_a_copy_that_is_cancelled_leaves_nothing(as_alice, alice, bucket, objects, tasks, monkeypatch):
    """It is cancelled when the first piece has been asked for."""
    objects({f"{number}.bin": LARGE for number in range(3)})
    pieces = Store.pieces

    def then_cancel(self, entries):
        for number, piece in enumerate(pieces(self, entries)):
            yield piece
            if number == 0:
                lifecycle.end_upload(user=alice, name="cats", by="alice")

    monkeypatch.setattr(copies, "TOUCHED_EVERY_S", 0.0)
    monkeypatch.setattr(Store, "pieces", then_cancel)
    row = copied(as_alice, tasks, "s3/photos/train")
    assert (row["state"], row["reason"]) == ("error", "cancelled")
    assert list(storage.dataset_dir("alice", "cats").parent.iterdir()) == []


def test_what_cannot_be_a_file_is_left_out_and_named(as_alice, bucket, objects, tasks, monkeypatch):
    """An S3 server may have `a` beside `a/b`; the one of these tests keeps its objects in folders, so cannot."""
    objects({"a/b.csv": b"1", "c.csv": b"2"})
    listed = Store.list

    def with_more(self, path):
        yield Entry("train/a", 3, "tag")
        yield Entry("train/line\nbreak", 3, "tag")
        yield from listed(self, path)

    monkeypatch.setattr(Store, "list", with_more)
    row = copied(as_alice, tasks, "s3/photos/train")
    assert (row["state"], files_of("cats")) == ("ready", {"a/b.csv": b"1", "c.csv": b"2"})
    assert "2 (" in row["reason"]
    assert "train/a" in row["reason"]


def test_a_key_that_cannot_be_a_path_is_named(as_alice, bucket, tasks, monkeypatch):
    """The server of these tests keeps its objects in folders; the words are those for one of moto's."""
    words = (
        'Encountered object with invalid path: Error parsing Path "d/./a.csv": Encountered illegal character sequence'
    )

    def invalid(self, path):
        with self.told():
            raise InvalidPathError(words)
        yield

    monkeypatch.setattr(Store, "list", invalid)
    row = copied(as_alice, tasks, "s3/photos/train")
    assert row["reason"].startswith("src: the bucket photos has the key d/./a.csv, which cannot be a path")


def test_an_administrator_adds_tests_and_changes_a_bucket(staff_client, s3, objects):  # noqa: F811
    """The secret key is nowhere on the pages, and stays when its field is left empty."""
    secret = s3["AWS_SECRET_ACCESS_KEY"]
    fields = {"bucket": "kept", "region": "us-east-1", "signing": "key", "access_key": s3["AWS_ACCESS_KEY_ID"]}
    add = reverse("admin:datasets_bucket_add")
    bad = staff_client.post(add, {**fields, "name": "photos", "endpoint": "localhost:9000", "secret": secret})
    assert "must be the address of a server" in bad.content.decode()
    assert secret not in bad.content.decode()
    fields["endpoint"] = s3["AWS_ENDPOINT_URL"]
    assert staff_client.post(add, {**fields, "name": "photos", "secret": secret}).status_code == 302
    row = Bucket.objects.get(name="photos")
    assert secret not in row.secret
    assert do(staff_client, row, "change", **fields, prefix="train").status_code == 302
    row.refresh_from_db()
    assert row.prefix == "train"
    do(staff_client, row, "test")
    page = staff_client.get(url_of(row)).content.decode()
    assert "Test access: done for photos" in page
    assert secret not in page
    do(staff_client, row, "change", **fields, secret="another")
    do(staff_client, row, "test")
    page = staff_client.get(url_of(row)).content.decode()
    assert "the bucket photos: " in page
    assert "another" not in page
    do(staff_client, row, "delete")
    assert not Bucket.objects.exists()


def test_the_form_offers_the_buckets_that_its_user_may_read(client, alice, bucket):
    client.force_login(alice)
    page = client.get("/datasets?new=1").content.decode()
    assert 'href="/datasets?src=s3/photos/#new"' in page
    rows.change(bucket, by="root", everybody=False)
    assert "s3/photos" not in client.get("/datasets?new=1").content.decode()
