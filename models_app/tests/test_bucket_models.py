"""Models that are copied from a bucket of a real S3 server."""

from __future__ import annotations

import hashlib

import pytest

from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from kernel import storage
from models_app import launching, lifecycle
from models_app.models import Model
from operations.backup.tests.conftest import s3  # noqa: F401
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)
MODELS = "users/alice/models"
WEIGHTS = {"bert/config.json": b"{}", "bert/deep/weights.bin": b"w" * 1000}


def copied(client, src: str) -> dict:
    """Create a model of the source and return it once its files have been copied, or have not."""
    created = client.call("post", MODELS, {"name": "bert", "src": src})
    assert created.status_code == 201, created.content
    launching.copy(Model.objects.get(name="bert").pk)
    return client.call("get", f"{MODELS}/bert").json()


def test_a_folder_of_a_bucket_becomes_a_model(as_alice, bucket, objects):  # noqa: F811
    objects(WEIGHTS)
    row = copied(as_alice, "s3://photos/train/bert")
    assert (row["state"], row["src"], row["size"]) == ("creating", "s3/photos/train/bert", 1002)
    folder = storage.model_dir("alice", "bert")
    assert (folder / "deep/weights.bin").read_bytes() == WEIGHTS["bert/deep/weights.bin"]
    expected = {
        key.removeprefix("bert/"): {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for key, content in WEIGHTS.items()
    }
    assert Model.objects.get(name="bert").checksums == expected
    assert Tenant.objects.get(name="default").rom_inuse == 1002


def test_what_cannot_be_copied_is_the_reason(as_alice, bucket, objects):  # noqa: F811
    objects(WEIGHTS)
    Tenant.objects.filter(name="default").update(rom=1001)
    row = copied(as_alice, "s3/photos/train/bert")
    assert row["state"] == "error"
    assert "rom" in row["reason"]
    assert list(storage.model_dir("alice", "bert").parent.iterdir()) == []
    assert as_alice.refused("post", MODELS, {"name": "other", "src": "s3/none/a"}) == (
        "src: there is no bucket named none that you may read"
    )


def test_a_model_that_is_deleted_meanwhile_leaves_nothing(as_alice, alice, bucket, objects, monkeypatch):  # noqa: F811
    """It has failed, and is deleted, before the first bytes are written."""
    objects(WEIGHTS)
    reserve = lifecycle.measure_again

    def then_delete(pk: int, size: int) -> None:
        reserve(pk, size)
        lifecycle.fail(pk, "cancelled", by="alice")
        lifecycle.delete_model(user=alice, name="bert", by="alice")

    monkeypatch.setattr(lifecycle, "measure_again", then_delete)
    as_alice.call("post", MODELS, {"name": "bert", "src": "s3/photos/train/bert"})
    launching.copy(Model.objects.get(name="bert").pk)
    assert list(storage.model_dir("alice", "bert").parent.iterdir()) == []
