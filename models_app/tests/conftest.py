"""Fixtures of the model tests: files in alice's home, a model created from them, and running the workers."""

from __future__ import annotations

import threading
import time
from http.server import ThreadingHTTPServer

import pytest

import runners
from kernel import storage
from mlp.tests.patience import LIMIT_S
from models_app import reconcile
from models_app.models import Model

from .receiver import Receiver

ADDER = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + 1 for v in x["data"]]}]
"""


@pytest.fixture
def uploaded(home):
    """Return a function that writes a file below alice's .home and returns the src that names it."""

    def write(path: str, data: str | bytes = ADDER) -> str:
        target = home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data if isinstance(data, bytes) else data.encode())
        return f"home/{path}"

    return write


@pytest.fixture
def make_model(as_alice):
    def post(src: str, name: str = "net") -> Model:
        response = as_alice.call("post", "users/alice/models", {"name": name, "src": src})
        assert response.status_code == 201, response.content
        assert response.json()["state"] == "creating"
        return Model.objects.get(name=name)

    return post


@pytest.fixture
def settled(tasks):
    """Return a function that runs workers and reconcile until the model is in a final state and its check is cleaned
    up.
    """

    def wait(model: Model) -> Model:
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            tasks.run_once()
            reconcile.run()
            model.refresh_from_db()
            if model.state in ("ready", "error") and not model.run_name:
                return model
            time.sleep(0.1)
        raise AssertionError(f"the model is {model.state} ({model.reason}) after {LIMIT_S} s")

    return wait


@pytest.fixture(autouse=True)
def nothing_left(request):
    yield
    if "tasks" in request.fixturenames:
        runners.get().stop_all(grace=0)
        storage.remove_tree(storage.root() / "models")


@pytest.fixture
def receiver(settings):
    """The address of a receiver of webhooks."""
    settings.WEBHOOK_PRIVATE = True
    Receiver.answers, Receiver.got = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    server.server_close()
