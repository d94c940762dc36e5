"""The life cycle of applications on Kubernetes (MLP_RUNNER=kubernetes), on the runner tests' fake cluster."""

from __future__ import annotations

import os
import signal
import socket

import pytest

import runners
from apps.models import Application
from models_app import reconcile as models_reconcile
from models_app.models import Model
from runners.tests.on_cluster import platform_on_cluster

from .conftest import ADDER
from .test_apps import in_use, infer

pytestmark = pytest.mark.django_db(transaction=True)
IMAGE = "registry.test/serve:1"
LABELS = {"user": "alice", "app": "calc", "public": "false"}


@pytest.fixture
def cluster(settings, tmp_path, monkeypatch):
    real = socket.getaddrinfo

    def resolve(host, *rest, **more):
        """Replace the cluster's DNS: its one node is this machine."""
        return real("127.0.0.1" if str(host).endswith(".mlp.svc.cluster.local") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    ingress = {"ingress_class": "nginx", "ingress_host": "apps.example.org", "ingress_gateway": "mlp-platform:30002"}
    with platform_on_cluster(settings, tmp_path, images={"serve": IMAGE}, **ingress) as fake:
        yield fake


def only(cluster, resource: str) -> dict:
    (obj,) = cluster.store.list(resource)
    return obj


def test_it_starts_answers_and_is_deleted_completely(cluster, as_alice, deploy, ready, until):
    app = ready(deploy())
    assert app.address == f"mlp-{app.run_name}.mlp.svc.cluster.local:{app.port}"
    assert infer(app, [1, 2.5]) == [2, 3.5]
    for resource in ("deployments", "services", "ingresses"):
        labels = only(cluster, resource)["metadata"]["labels"]
        assert {key: labels[f"mlp.platform/{key}"] for key in LABELS} == LABELS
    container = only(cluster, "deployments")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == IMAGE
    assert container["command"][container["command"].index("--host") + 1] == "0.0.0.0"
    assert container["resources"]["limits"] | {"cpu": "100m", "memory": "400Mi"} == container["resources"]["limits"]
    path = only(cluster, "ingresses")["spec"]["rules"][0]["http"]["paths"][0]
    assert (path["path"], path["backend"]["service"]["name"]) == ("/alice/calc", "mlp-platform")
    with runners.get().watch(lambda: None):  # as `manage.py reconcile` does: it copies the logs
        until(lambda: b"on port" in as_alice.call("get", "users/alice/apps/calc/log").content)
    assert as_alice.call("delete", "users/alice/apps/calc").status_code == 200
    until(lambda: not Application.objects.exists())
    assert in_use() == {"cpu": 0, "ram": 0}
    until(lambda: not any(map(cluster.store.list, ("deployments", "services", "ingresses", "secrets", "pods"))))


def test_a_killed_process_is_restarted(cluster, deploy, ready, until):
    app = ready(deploy(public=True))
    assert only(cluster, "ingresses")["metadata"]["labels"]["mlp.platform/public"] == "true"
    (process,) = cluster.node.processes.values()
    os.killpg(process.pid, signal.SIGKILL)
    until(lambda: any(one is not process for one in cluster.node.processes.values()))

    def answers() -> bool:
        app.refresh_from_db()
        try:
            return app.state == "ready" and infer(app, [1]) == [2]
        except OSError:
            return False

    until(answers)


def test_a_model_is_checked_in_a_pod_of_the_serving_image(cluster, home, as_alice, until):
    (home / "predictor.py").write_text(ADDER)
    order = {"name": "net", "src": "home/predictor.py"}
    assert as_alice.call("post", "users/alice/models", order).status_code == 201
    images = set()

    def checked() -> bool:
        models_reconcile.run()
        images.update(pod["spec"]["containers"][0]["image"] for pod in cluster.store.list("pods"))
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    assert (Model.objects.get().state, Model.objects.get().reason) == ("ready", "")
    assert images == {IMAGE}


def test_without_the_image_it_is_an_error_with_the_reason(cluster, settings, deploy, until):
    settings.MLP_K8S = {**settings.MLP_K8S, "images": {"torch": IMAGE}}
    runners._runner.cache_clear()
    app = deploy()

    def failed() -> bool:
        app.refresh_from_db()
        return app.state == "error"

    until(failed)
    assert app.reason == "could not be started: runtime serve: no image; set MLP_K8S_IMAGE_SERVE"
    assert in_use() == {"cpu": 0, "ram": 0}
