"""Applications of models whose files stay in a bucket of a real S3 server: started, restarted, with replicas, and what
becomes of them when the bucket changes.
"""

# ruff: noqa: F811 (fixtures)
from __future__ import annotations

import os
import sys
from subprocess import PIPE, Popen
from urllib.parse import urlsplit

import pytest
import requests
from django.db import connection

import jobs.reconcile
import models_app.reconcile
from apps.models import Application, Replica
from datasets.buckets import caching
from datasets.models import Dataset
from datasets.tests.test_buckets import bucket, objects, remote  # noqa: F401
from jobs.models import Job
from kernel import storage
from kernel.tests.nats_tools import until as wait_for
from mlp.tests.patience import LIMIT_S
from models_app import external, fetched
from models_app.models import Model, ModelManifest
from operations.backup.tests.conftest import s3  # noqa: F401

from .conftest import ADDER, NAMES, bearer_of

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]
MODELS = "users/alice/models"


@pytest.fixture
def net(as_alice, bucket, objects, until) -> Model:
    """An external model that its check has loaded."""
    objects({"net/predictor.py": ADDER.encode(), "net/weights.bin": b"w" * 100_000})
    body = {"name": "net", "src": "s3/photos/train/net", "external": True}
    assert as_alice.call("post", MODELS, body).status_code == 201

    def is_checked() -> bool:
        models_app.reconcile.run()
        return Model.objects.get(name="net").state != "creating"

    until(is_checked)
    model = Model.objects.get(name="net")
    assert (model.state, model.reason, model.format) == ("ready", "", "predictor")
    return model


@pytest.fixture
def answers(front, alice):
    def ask(app: Application) -> list[float]:
        url = f"{front}/alice/{app.name}/predict"
        answer = requests.post(url, json={"x": [1]}, headers=bearer_of(alice), timeout=LIMIT_S)
        assert answer.status_code == 200, answer.text
        return answer.json()["y"]

    return ask


def test_an_application_serves_what_was_listed_whatever_the_bucket_has(
    as_alice, net, deploy, ready, until, remote, answers
):
    """A restart and a second replica use the files of the first; without these a start names the object."""
    app = ready(deploy(next(NAMES), model_name="net"))
    assert answers(app) == [2]
    inode = (external.folder(net) / "weights.bin").stat().st_ino
    remote.put("train/net/predictor.py", ADDER.replace("v + 1", "v + 5").encode())
    as_alice.call("put", f"users/alice/apps/{app.name}:restart", {})
    until(lambda: not Application.objects.filter(pk=app.pk, rollout__isnull=False).exists())
    assert answers(ready(app)) == [2]
    as_alice.call("put", f"users/alice/apps/{app.name}/replicas", {"min": 2, "max": 2})
    until(lambda: Replica.objects.filter(app=app, phase="ready").exists())
    assert {tuple(answers(app)) for _request in range(20)} == {(2,)}
    assert (external.folder(net) / "weights.bin").stat().st_ino == inode
    as_alice.call("put", f"users/alice/apps/{app.name}:stop", {})
    until(lambda: caching.evict(external.key(net.pk)))
    as_alice.call("put", f"users/alice/apps/{app.name}:start", {})
    until(lambda: "has changed" in str(Application.objects.get(pk=app.pk).reason))
    said = "the object train/net/predictor.py has changed since the model was created"
    assert said in str(Application.objects.get(pk=app.pk).reason)
    remote.put("train/net/predictor.py", ADDER.encode())  # the same content again
    assert answers(ready(app)) == [2]


def test_a_job_scores_with_one(as_alice, alice, net, until):
    folder = storage.dataset_dir("alice", "digits")
    folder.mkdir(parents=True)
    (folder / "a.csv").write_text("x\n1\n2\n")
    Dataset.objects.create(user=alice, tenant=alice.tenant, name="digits", size=6, stored=6, state="ready")
    assert caching.evict(external.key(net.pk))
    body = {"dataset": "digits", "output": "scores", "cpu": 0.1, "ram": 400}
    answer = as_alice.call("post", f"{MODELS}/net:score", body)
    assert answer.status_code == 201, answer.content

    def has_ended() -> bool:
        jobs.reconcile.run()
        return Job.objects.get(name="scores").state not in ("creating", "running")

    until(has_ended)
    job = Job.objects.get(name="scores")
    assert job.state == "finished", job.reason
    assert any((storage.job_dir("alice", "scores") / "scored").rglob("*"))


FETCHING = """
import sys
import django
django.setup()
from datasets.buckets import caching, fetching
caching.BATCH_FILES, real = 1, fetching.fetch
def fetch(store, entries, folder, *rest):
    real(store, entries, folder, *rest)
    print("here", flush=True)
    sys.stdin.read()
fetching.fetch = fetch
caching.fetch(sys.argv[1])
"""


def test_a_process_that_is_killed_while_it_fetches_a_model_leaves_whole_files(net, deploy, tasks, settings):
    """What it was fetching is fetched again, and the application starts with the bytes that were checked."""
    key = external.key(net.pk)
    assert caching.evict(key)
    Application.objects.filter(pk=deploy(next(NAMES), model_name="net").pk).update(run_name="one")
    assert fetched.waits_for(net, net.created) is not None
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    environment = os.environ | {
        "DATABASE_URL": database, "MLP_ROOT": str(settings.MLP_ROOT), "MLP_SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "mlp.settings",
    }  # fmt: skip
    command = [sys.executable, "-c", FETCHING, key]
    child = Popen(command, cwd=settings.BASE_DIR, env=environment, stdin=PIPE, stdout=PIPE, text=True)
    try:
        assert child.stdout.readline() == "here\n"
        caching.fetch(key)  # the other has its lock
        assert ModelManifest.objects.get().cached is None
    finally:
        child.kill()
        child.communicate()
    wait_for(lambda: (caching.fetch(key), ModelManifest.objects.get().cached)[1])
    assert (external.folder(net) / "weights.bin").read_bytes() == b"w" * 100_000
    assert [path.name for path in storage.dataset_cache_dir().iterdir()] == [key]
