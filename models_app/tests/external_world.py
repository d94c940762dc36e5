"""External models for tests: created of the objects of a bucket of rclone's S3 server, listed, fetched and checked."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import pytest

from datasets.buckets import caching
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from models_app import external, launching, lifecycle
from models_app.models import Model
from operations.backup.tests.conftest import s3  # noqa: F401
from resources import tcc
from resources.models import Tenant

MODELS = "users/alice/models"
FILES = {"predictor.py": b"class Predictor: ...\n", "deep/weights.bin": b"w" * 1000}
SIZE = sum(map(len, FILES.values()))


@pytest.fixture
def created(as_alice, bucket, objects):
    """Create an external model of the objects, and list them as a worker does."""

    def create(contents: dict[str, bytes] = FILES, name: str = "net", src: str = "s3://photos/train/net") -> Model:
        objects({f"net/{path}": content for path, content in contents.items()})
        response = as_alice.call("post", MODELS, {"name": name, "src": src, "external": True})
        assert response.status_code == 201, response.content
        launching.copy(Model.objects.get(name=name).pk)
        return Model.objects.get(name=name)

    return create


def prepared(model: Model) -> bool:
    """Do what the start of a check does, and return whether the check may start."""
    return launching.RUNS.prepare(Model.objects.get(pk=model.pk))


def fetch(model: Model) -> None:
    caching.fetch(external.key(model.pk))


@pytest.fixture
def ready(created):
    """Create an external model that was checked."""

    def make(*args, **fields) -> Model:
        model = created(*args, **fields)
        assert not prepared(model)
        fetch(model)
        assert prepared(model)
        lifecycle.complete(model.pk, {"format": "predictor", "inputs": [], "outputs": []}, by="check")
        return Model.objects.get(pk=model.pk)

    return make


def in_cache(model: Model) -> dict[str, bytes]:
    top = external.folder(model)
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def held() -> int:
    return tcc.allocated(Tenant.objects.get(name="default"))["rom"]
