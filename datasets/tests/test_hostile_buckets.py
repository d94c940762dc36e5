"""Datasets from a server that answers wrongly, slowly or not at all, and from an environment that says otherwise."""

from __future__ import annotations

import ssl
from datetime import timedelta
from urllib.request import urlopen

import pytest
from django.utils import timezone

from datasets import copies, lifecycle
from datasets.buckets import caching, fetching, manifests, places, rows, store
from datasets.models import Bucket, Dataset
from datasets.tests import hostile_s3
from datasets.tests.test_buckets import copied, files_of
from kernel import storage
from kernel.errors import Refused
from supervision.tests.certificates import Authority

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = {"connect_timeout": timedelta(seconds=1), "read_timeout": timedelta(seconds=0.2)}
FIELDS = {"bucket": "kept", "region": "us-east-1", "signing": "key", "access_key": "THE-KEY", "everybody": True}


@pytest.fixture(scope="module")
def server():
    with hostile_s3.running() as each:
        yield each


@pytest.fixture
def bucket(db, server, monkeypatch) -> Bucket:
    for name in ("PIECE", "WHOLE"):
        monkeypatch.setattr(store, name, SHORT)
    for name in ("RETRIES", "LISTED"):
        monkeypatch.setattr(store, name, {"max_retries": 1, "retry_timeout": timedelta(seconds=1)})
    return rows.create(by="root", name="photos", endpoint=server.address, secret="the-secret", **FIELDS)


ELSEWHERE = {
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
    "AWS_SKIP_SIGNATURE": "true",
    "AWS_REQUEST_PAYER": "true",
    "AWS_S3_EXPRESS": "true",
    "AWS_UNSIGNED_PAYLOAD": "true",
    "AWS_SESSION_TOKEN": "the-token",
    "AWS_SERVER_SIDE_ENCRYPTION": "sse-c",
    "AWS_SSE_CUSTOMER_KEY_BASE64": "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
}


@pytest.mark.parametrize("signing", ["key", "none"])
def test_the_environment_says_nothing_of_a_bucket(as_alice, bucket, server, tasks, monkeypatch, signing):
    """What it has for backups, or for another bucket, is neither used nor sent."""
    for name, value in ELSEWHERE.items():
        monkeypatch.setenv(name, value)
    rows.change(bucket, by="root", signing=signing, everybody=True)
    server.asked.clear()
    assert copied(as_alice, tasks, "s3/photos/whole")["state"] == "ready"
    assert files_of("cats") == {"a": hostile_s3.CONTENT}
    for headers in server.asked:
        assert ("authorization" in headers) == (signing == "key")
        assert "THE-KEY" in headers.get("authorization", "THE-KEY")
        assert headers.get("x-amz-content-sha256") != "UNSIGNED-PAYLOAD"
        assert not {name for name in headers if "customer" in name or "payer" in name or "token" in name}


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("refused", "403 Forbidden: SignatureDoesNotMatch: It <differs>"),
        ("control", "403 Forbidden: no\ufffd\\x1b[31m"),
        ("silent-list", "the bucket photos: "),
        ("silent", "the bucket photos: "),
        ("shorter", "the object shorter/a changed while it was being copied"),
        ("longer", "the object longer/a changed while it was being copied"),
        ("ends", "the bucket photos: "),
        ("fails", "the bucket photos: "),
    ],
)
def test_a_wrong_answer_fails_the_dataset_and_leaves_nothing(as_alice, bucket, tasks, behaviour, said):
    row = copied(as_alice, tasks, f"s3/photos/{behaviour}")
    assert row["state"] == "error"
    assert said in row["reason"]
    assert "THE-KEY" not in row["reason"]
    assert list(storage.dataset_dir("alice", "cats").parent.iterdir()) == []


def test_a_copy_is_cancelled_while_the_bucket_is_listed(as_alice, alice, bucket, tasks, monkeypatch):
    """A bucket may have a million objects, each thousand of them another answer of the server."""
    monkeypatch.setattr(fetching, "LISTED_AT_ONCE", 1)
    monkeypatch.setattr(copies, "TOUCHED_EVERY_S", 0.0)

    def then_cancel(self, path):
        yield store.Entry("whole/a", 10, "tag")
        lifecycle.end_upload(user=alice, name="cats", by="alice")
        yield store.Entry("whole/b", 10, "tag")
        raise AssertionError("it is listed on")

    monkeypatch.setattr(store.Store, "list", then_cancel)
    row = copied(as_alice, tasks, "s3/photos/whole")
    assert (row["state"], row["reason"]) == ("error", "cancelled")
    assert list(storage.dataset_dir("alice", "cats").parent.iterdir()) == []


def test_a_copy_ends_when_the_bucket_is_taken_from_its_user(as_alice, bucket, tasks, monkeypatch):
    monkeypatch.setattr(fetching, "ALLOWED_EVERY_S", 0.0)
    pieces = store.Store.pieces

    def then_take(self, entries):
        yield from pieces(self, entries)
        rows.change(bucket, by="root", everybody=False)

    monkeypatch.setattr(store.Store, "pieces", then_take)
    row = copied(as_alice, tasks, "s3/photos/whole")
    assert row["state"] == "error"
    assert "there is no bucket named photos that you may read" in row["reason"]
    assert list(storage.dataset_dir("alice", "cats").parent.iterdir()) == []


def test_a_server_with_a_certificate_of_an_authority_of_its_own(as_alice, bucket, tasks, tmp_path, settings):
    """Which is trusted where MLP_TLS_CA names it, and else named as what is wrong."""
    authority, chain = Authority(tmp_path), tmp_path / "chain.pem"
    certificate, key, _serial = authority.issue()
    chain.write_bytes(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    with hostile_s3.running(context) as server:
        endpoint = server.address.replace("http:", "https:")
        rows.change(bucket, by="root", endpoint=endpoint, everybody=True)
        refused = copied(as_alice, tasks, "s3/photos/whole")
        assert (refused["state"], refused["reason"][-16:]) == ("error", " (UnknownIssuer)")
        settings.TLS = settings.TLS._replace(ca=authority.path)
        assert copied(as_alice, tasks, "s3/photos/whole", "dogs")["state"] == "ready"


def test_the_mark_of_a_folder_is_no_file(as_alice, bucket, tasks):
    """Consoles write an empty object at `whole/` for a folder, also for the one below which everything is read."""
    assert copied(as_alice, tasks, "s3/photos/whole")["reason"] == ""
    rows.change(bucket, by="root", prefix="whole", everybody=True)
    row = copied(as_alice, tasks, "s3/photos", "dogs")
    assert (row["state"], row["reason"], files_of("dogs")) == ("ready", "", {"a": hostile_s3.CONTENT})


def test_the_address_of_a_file_in_a_public_bucket_has_no_signature(as_alice, bucket, tasks):
    rows.change(bucket, by="root", signing="none", everybody=True)
    as_alice.call("post", "users/alice/datasets", {"name": "cats", "src": "s3/photos/whole", "external": True})
    tasks.run()
    address = manifests.address(Dataset.objects.get(), 1, "a")
    assert "?" not in address
    assert urlopen(address).read() == hostile_s3.CONTENT


@pytest.mark.parametrize("behaviour", ["shorter", "longer"])
def test_bytes_that_are_not_the_object_never_come_to_the_cache(as_alice, bucket, tasks, monkeypatch, behaviour):
    monkeypatch.setattr(places, "_finders", [lambda: {("alice", "cats", 1)}])
    created = {"name": "cats", "src": f"s3/photos/{behaviour}", "external": True}
    as_alice.call("post", "users/alice/datasets", created)
    tasks.run()
    since = timezone.now()
    caching.waits_for(("alice", "cats", 1), since)
    tasks.run()
    with pytest.raises(Refused, match=f"the object {behaviour}/a has changed since"):
        caching.waits_for(("alice", "cats", 1), since)
    files = [path for path in storage.dataset_cache_dir().rglob("*") if path.is_file()]
    assert files == []


@pytest.mark.parametrize(
    ("behaviour", "state", "said"), [("odd-tag", "ready", ""), ("huge", "error", "must have at most")]
)
def test_an_external_dataset_of_odd_answers_is_whole_or_none(as_alice, bucket, tasks, behaviour, state, said):
    created = {"name": "cats", "src": f"s3/photos/{behaviour}", "external": True}
    as_alice.call("post", "users/alice/datasets", created)
    tasks.run()
    row = as_alice.call("get", "users/alice/datasets/cats").json()
    assert (row["state"], said in row["reason"]) == (state, True)
    if state == "ready":
        [file] = as_alice.call("get", "users/alice/datasets/cats/files").json()
        assert (file["path"], file["size"], file["tag"]) == ("a", 10, "t?a")
