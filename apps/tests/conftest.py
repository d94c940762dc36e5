"""Fixtures of the application tests: a ready model, applications created over REST, and running the workers."""

from __future__ import annotations

import itertools
import shutil
import time
from string import ascii_lowercase

import pytest

import runners
from accounts import lifecycle as accounts
from apps import reconcile
from apps.models import Application, Rollout
from datasets.tests.live import servers, service
from kernel import storage
from mlp.tests.patience import LIMIT_S
from models_app.models import Model, ModelVersion, RegisteredModel
from models_app.registry import registered

__all__ = ["servers", "service"]  # nginx and the web server, started once

# The web server outlives a test and remembers the address of an application for a second: no two tests use one name.
NAMES = ("calc" + "".join(two) for two in itertools.product(ascii_lowercase, repeat=2))

ADDER = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + 1 for v in x["data"]]}]
"""
BROKEN = "raise RuntimeError('no weights')"


@pytest.fixture
def adder(alice):
    """A ready model of alice's, as a successful check leaves it."""
    folder = storage.model_dir("alice", "adder")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictor.py").write_text(ADDER)
    return Model.objects.create(
        user=alice, tenant=alice.tenant, name="adder", src="home/p.py", size=len(ADDER), state="ready", reserved=False
    )


@pytest.fixture
def deploy(as_alice, adder):
    def post(name: str = "calc", **fields) -> Application:
        body = {"name": name, "model_name": "adder", "cpu": 0.1, "ram": 400, **fields}
        response = as_alice.call("post", "users/alice/apps", body)
        assert response.status_code == 201, response.content
        return Application.objects.get(name=name, user__username="alice")

    return post


@pytest.fixture
def front(service):
    """The address of the gateway of applications."""
    return f"http://127.0.0.1:{service.app_port}"


@pytest.fixture
def churn(alice):
    """A registered model with three versions, each adds its number; @champion names the first, the last is broken."""
    row = RegisteredModel.objects.create(user=alice, name="churn", last=3)
    for number in (1, 2, 3):
        name = f"churnv{'abc'[number - 1]}"
        folder = storage.model_dir("alice", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "predictor.py").write_text(BROKEN if number == 3 else ADDER.replace("v + 1", f"v + {number}"))
        model = Model.objects.create(
            user=alice, tenant=alice.tenant, name=name, src="home/x", size=1, state="ready", reserved=False
        )
        ModelVersion.objects.create(registered=row, number=number, model=model)
    registered.set_alias(alice, "churn", "champion", 1, "test")
    return row


@pytest.fixture
def followed(as_alice, churn, ready):
    """Return a function that deploys an application which follows @champion, and waits until it is ready."""

    def deploy(**fields) -> Application:
        name = next(NAMES)
        body = {"name": name, "follows": "models:/churn@champion", "cpu": 0.1, "ram": 400, **fields}
        response = as_alice.call("post", "users/alice/apps", body)
        assert response.status_code == 201, response.content
        assert response.json()["follows"] == "models:/churn@champion"
        return ready(Application.objects.get(name=name))

    return deploy


def settled(app: Application) -> bool:
    return not Rollout.objects.filter(app=app).exclude(phase="failed").exists()


def bearer_of(user) -> dict:
    return {"Authorization": f"Bearer {accounts.token_of(user)}"}


@pytest.fixture
def until(tasks):
    """Run the workers and the reconcile loop until `done()` is true."""

    def wait(done, seconds: float = LIMIT_S) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            tasks.run_once()
            reconcile.run()
            if done():
                return
            time.sleep(0.2)  # a round costs more than it waits
        raise AssertionError(f"not after {seconds} s: {list(Application.objects.values())}")

    return wait


@pytest.fixture
def ready(until):
    def wait(app: Application) -> Application:
        def is_ready() -> bool:
            app.refresh_from_db()
            return app.state == "ready"

        until(is_ready)
        return app

    return wait


@pytest.fixture(autouse=True)
def nothing_left(request):
    yield
    if "tasks" in request.fixturenames:
        runners.get().stop_all(grace=0)
        shutil.rmtree(storage.root() / "apps", ignore_errors=True)
