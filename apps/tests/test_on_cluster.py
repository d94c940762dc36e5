"""The life cycle of applications on Kubernetes (MLP_RUNNER=kubernetes), on the runner tests' fake cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
from datetime import timedelta

import pytest
from django.utils import timezone

import runners
from apps import proof
from apps.models import Application, Rollout
from kernel import outbound, sockets, storage
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model
from models_app.registry import registered
from runners.tests.on_cluster import platform_on_cluster

from .conftest import ADDER, settled
from .test_apps import in_use, infer

pytestmark = pytest.mark.django_db(transaction=True)
IMAGE = "registry.test/serve:1"
AN_HOUR = timedelta(hours=1)
LABELS = {"user": "alice", "app": "calc", "public": "false"}


@pytest.fixture
def cluster(settings, tmp_path, monkeypatch):
    real, fakes = socket.getaddrinfo, []

    def resolve(host, *rest, **more):
        """Replace the cluster's DNS and services: its one node is this machine."""
        service, _dot, domain = str(host).partition(".")
        there = fakes[0].node.address_of_service(service) if domain == "mlp.svc.cluster.local" else host
        return real(there, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    ingress = {"ingress_class": "nginx", "ingress_host": "apps.example.org", "ingress_gateway": "mlp-platform:30002"}
    placed = {"priority_classes": {"application": "serving", "check": "checks"}}
    with platform_on_cluster(settings, tmp_path, images={"serve": IMAGE}, **ingress, **placed) as fake:
        fakes.append(fake)
        for name in ("serving", "checks"):
            fake.store.create("priorityclasses", {"metadata": {"name": name}, "value": 1000})
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
    assert only(cluster, "deployments")["spec"]["template"]["spec"]["priorityClassName"] == "serving"
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
    until(lambda: any(other is not process for other in cluster.node.processes.values()))

    def answers() -> bool:
        app.refresh_from_db()
        try:
            return app.state == "ready" and infer(app, [1]) == [2]
        except OSError:
            return False

    until(answers)


def owners(ingress: dict) -> list[str]:
    return sorted(owner["name"] for owner in ingress["metadata"]["ownerReferences"])


@pytest.mark.long
def test_a_moved_alias_rolls_out_with_one_route(cluster, followed, alice, churn, until):
    """Two Ingress objects with one path are refused by ingress-nginx, and by this cluster."""
    app = followed()
    old = app.run_name
    (route,) = cluster.store.list("ingresses")
    assert owners(route) == [f"mlp-{old}"]
    registered.set_alias(alice, "churn", "champion", 2, "test")
    until(lambda: Application.objects.get(pk=app.pk).model.name == "churnvb")
    app.refresh_from_db()
    shared = only(cluster, "ingresses")
    assert shared["metadata"]["uid"] == route["metadata"]["uid"]
    assert owners(shared) == [f"mlp-{old}", f"mlp-{app.run_name}"]
    until(lambda: settled(app) and old not in runners.get().names())
    assert owners(only(cluster, "ingresses")) == [f"mlp-{app.run_name}"]
    assert infer(app, [1]) == [3]


@pytest.mark.long
def test_a_route_of_an_earlier_release_is_taken_over(cluster, followed, alice, churn, until):
    app = followed()
    (route,) = cluster.store.list("ingresses")
    cluster.store.remove("ingresses", route["metadata"]["name"])
    older = {**route, "metadata": {**route["metadata"], "name": f"mlp-{app.run_name}"}}
    cluster.store.create("ingresses", older)
    registered.set_alias(alice, "churn", "champion", 2, "test")
    until(lambda: Application.objects.get(pk=app.pk).model.name == "churnvb" and settled(app))
    app.refresh_from_db()
    assert owners(only(cluster, "ingresses")) == [f"mlp-{app.run_name}"]


def test_a_model_is_checked_in_a_pod_of_the_serving_image(cluster, home, as_alice, until):
    (home / "predictor.py").write_text(ADDER)
    order = {"name": "net", "src": "home/predictor.py"}
    assert as_alice.call("post", "users/alice/models", order).status_code == 201
    images = set()

    def checked() -> bool:
        models_reconcile.run()
        pods = [pod["spec"] for pod in cluster.store.list("pods")]
        images.update((pod["containers"][0]["image"], pod["priorityClassName"]) for pod in pods)
        return Model.objects.get().state in ("ready", "error")

    until(checked)
    assert (Model.objects.get().state, Model.objects.get().reason) == ("ready", "")
    assert images == {(IMAGE, "checks")}


@pytest.mark.long
def test_an_application_is_judged_only_from_when_its_pod_runs(cluster, settings, deploy, ready, until):
    cluster.node.capacity["cpu"] = "0"  # or a first pull of gigabytes
    app = deploy()

    def waits() -> bool:
        Application.objects.filter(run_name__gt="").update(ordered=timezone.now() - AN_HOUR)
        app.refresh_from_db()
        return app.reason.startswith("waiting to start: no node has room for it")

    until(waits)
    until(iter([False, False, True]).__next__)  # rounds in which it is looked at again
    app.refresh_from_db()
    assert (app.state, app.failures, app.attempt) == ("creating", 0, 1)
    cluster.node.capacity["cpu"] = "8"
    assert ready(app).reason == ""
    assert app.attempt == 1


def test_a_model_is_judged_only_from_when_its_check_runs(cluster, home, as_alice, until):
    (home / "predictor.py").write_text(ADDER)
    cluster.node.capacity["cpu"] = "0"
    order = {"name": "net", "src": "home/predictor.py"}
    assert as_alice.call("post", "users/alice/models", order).status_code == 201

    def waits() -> bool:
        models_reconcile.run()
        Model.objects.exclude(run_ordered=None).update(run_ordered=timezone.now() - AN_HOUR)
        return Model.objects.get().reason.startswith("waiting to start: no node has room for it")

    until(waits)
    models_reconcile.run()
    assert Model.objects.get().state == "creating"
    cluster.node.capacity["cpu"] = "8"
    until(lambda: (models_reconcile.run(), Model.objects.get().state != "creating")[-1])
    assert (Model.objects.get().state, Model.objects.get().reason) == ("ready", "")


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


@pytest.mark.long
def test_requests_are_copied_to_the_pod_of_a_shadow(cluster, alice, as_alice, deploy, ready, until):
    app = ready(deploy())
    folder = storage.model_dir("alice", "other")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "predictor.py").write_text(ADDER.replace("v + 1", "v + 2"))
    Model.objects.create(
        user=alice, tenant=alice.tenant, name="other", src="home/p.py", size=1, state="ready", reserved=False
    )
    path = f"users/alice/apps/{app.name}/shadow"
    assert as_alice.call("put", path, {"model_name": "other"}).status_code == 200
    until(lambda: Rollout.objects.filter(app=app, phase="shadow").exists())
    copied = {"X-App-Record": json.dumps({"share": 0, "bytes": 0, "mask": [], "shadow": 1})}  # as the gateway says it
    body, headers = json.dumps({"x": [1]}).encode(), {**proof.headers(app.run_name), **copied}
    where = sockets.parse(app.address)
    status, answer = outbound.exchange(where, "POST", "/predict", body, headers, limit_s=LIMIT_S, most=1000)
    assert (status, json.loads(answer)) == (200, {"y": [2.0]})
    until(lambda: as_alice.call("get", path).json()["different"] == 1)
    [pair] = as_alice.call("get", f"{path}/pairs").json()
    assert (pair["base_output"], pair["shadow_output"]) == ('{"y":[2.0]}', '{"y":[3.0]}')
    assert len(cluster.store.list("deployments")) == 2
    as_alice.call("delete", path)
    until(lambda: len(cluster.store.list("deployments")) == 1)
