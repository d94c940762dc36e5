"""Applications of models whose files stay in a bucket: what they wait for, what they have, when they are refused."""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.conf import settings
from django.utils import timezone

from accounts.models import User
from apps import launching as app_launching
from apps.models import Application
from datasets.buckets import caching, fetching, store
from datasets.models import Dataset
from jobs import environment
from jobs.models import Job
from jobs.packages.building import Failed
from mlp.operators.tests.admin_world import put
from models_app import external
from models_app.models import Model, ModelManifest
from models_app.tests.external_world import (  # noqa: F401
    FILES,
    bucket,
    created,
    fetch,
    in_cache,
    objects,
    prepared,
    ready,
    remote,
    s3,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def serve():
    """Return a function that makes an application of a model that is about to start."""

    def make(model: Model, name: str = "calc", **fields) -> Application:
        user = User.objects.get(username="alice")
        port = 31000 + Application.objects.count()
        given = {"cpu": 0, "ram": 1, "run_name": name, "state": "creating", "ordered": timezone.now(), **fields}
        return Application.objects.create(user=user, tenant=user.tenant, model=model, name=name, port=port, **given)

    return make


def test_applications_use_what_was_fetched_and_never_another_content(ready, serve, remote):
    """The bucket changes: what is in the cache goes on, for replicas and restarts; what is not says which file."""
    model = ready()
    app = serve(model)
    remote.put("train/net/predictor.py", b"class Other: ...\n")
    for _restart in range(2):
        assert app_launching.lacking(app) is None
    assert external.folder(model) in [mount.source for mount in app_launching.spec_of(app).mounts]
    assert not caching.evict(external.key(model.pk))
    Application.objects.update(state="error", stopped=True, run_name="")
    assert caching.evict(external.key(model.pk))
    Application.objects.update(state="creating", run_name="again")
    assert "its model net is being fetched" in str(app_launching.lacking(app))
    assert str(app_launching.lacking(app)) == "its model net is being fetched: 0 %"
    assert ModelManifest.objects.exclude(asked=None).count() == 1
    fetch(model)
    with pytest.raises(Failed, match=r"train/net/predictor\.py has changed since the model was created"):
        app_launching.lacking(app)
    assert not external.folder(model).exists()
    assert app_launching.lacking(serve(model, "later")) is not None  # it tries once more


def test_content_that_the_server_passes_off_as_the_same_is_found_by_its_checksum(ready, serve, remote, monkeypatch):
    """A server whose tags do not change with the content."""
    monkeypatch.setattr(store.Store, "_entry", staticmethod(lambda meta: store.Entry(meta["path"], meta["size"], "")))
    model = ready()
    assert caching.evict(external.key(model.pk))
    app = serve(model)
    remote.put("train/net/deep/weights.bin", b"v" * 1000)
    app_launching.lacking(app)
    fetch(model)
    with pytest.raises(Failed, match=r"deep/weights\.bin has changed since the model was created"):
        app_launching.lacking(app)
    remote.put("train/net/deep/weights.bin", FILES["deep/weights.bin"])
    app_launching.lacking(again := serve(model, "again"))
    fetch(model)
    assert app_launching.lacking(again) is None
    assert in_cache(model) == FILES


def test_what_datasets_and_models_have_in_the_cache_is_bounded_together(ready, serve, monkeypatch):
    """A model that an application uses stays; the next one waits, until it is stopped."""
    model = ready({"predictor.py": b"p" * 700_000})
    app = serve(model)
    monkeypatch.setattr(settings, "BUCKET_CACHE_MIB", 1)
    other = Model.objects.create(user=model.user, tenant=model.tenant, name="other", src=model.src, size=700_000,
                                 external=True, copied=True)  # fmt: skip
    ModelManifest.objects.create(model=other, top="other", listing=ModelManifest.objects.get().listing)
    prepared(other)
    fetch(other)
    assert "where runs use 700000" in ModelManifest.objects.get(model=other).reason
    Application.objects.filter(pk=app.pk).update(state="error", run_name="")
    fetch(other)  # removes the first; the objects are not below `other`
    assert not external.folder(model).exists()
    assert "is not in the bucket any more" in ModelManifest.objects.get(model=other).reason


def test_two_applications_that_start_at_once_fetch_the_files_once(ready, serve, monkeypatch):
    model, asked = ready(), []
    assert caching.evict(external.key(model.pk))
    read = store.Store.read
    monkeypatch.setattr(store.Store, "read", lambda *given: (asked.append(given[1].path), read(*given))[1])
    apps = [serve(model), serve(model, "other")]
    with ThreadPoolExecutor() as pool:
        assert all(pool.map(app_launching.lacking, apps))
        list(pool.map(lambda _worker: fetch(model), range(3)))
    assert [app_launching.lacking(app) for app in apps] == [None, None]
    assert sorted(asked) == ["train/net/deep/weights.bin", "train/net/predictor.py"]


def test_objects_that_change_while_they_are_fetched_are_not_served_with_the_others(ready, serve, remote, monkeypatch):
    """The first file is fetched already; the folder of the run is made of all files or not at all."""
    model = ready()
    assert caching.evict(external.key(model.pk))
    app = serve(model)
    app_launching.lacking(app)
    monkeypatch.setattr(caching, "BATCH_FILES", 1)
    fetched, done = fetching.fetch, []

    def then_change(*given):
        fetched(*given)
        done.append(given)
        remote.put("train/net/predictor.py", b"class Other: ...\n")

    monkeypatch.setattr(fetching, "fetch", then_change)
    fetch(model)
    assert len(done) == 1
    assert not external.folder(model).exists()
    with pytest.raises(Failed, match=r"train/net/predictor\.py has changed since the model was created"):
        app_launching.lacking(app)


def test_a_job_that_scores_waits_for_the_files_of_its_model(as_alice, alice, ready):
    model = ready()
    assert caching.evict(external.key(model.pk))
    put(Dataset, alice, "digits", "ready")
    body = {"dataset": "digits", "output": "scores", "cpu": 0.5, "ram": 600}
    assert as_alice.call("post", "users/alice/models/net:score", body).status_code == 201
    job = Job.objects.get(name="scores")
    assert [str(each) for each in environment.extra_waits(job)] == ["its model net is being fetched: 0 %"]
    fetch(model)
    assert environment.extra_waits(job) == [None]
    job.run_name = "job-1-1"
    assert external.folder(model) in {mount.source for mount in environment.run_spec(job, job.user).mounts}
    assert not caching.evict(external.key(model.pk))
    Job.objects.filter(pk=job.pk).update(state="finished", reserved=False, run_name="")
    assert caching.evict(external.key(model.pk))
