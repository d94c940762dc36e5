"""Services on the cluster: their address, probes and replacement, and the loss of a node."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from mlp.tests.tiers import later
from runners.kubernetes import KubernetesRunner, pod_status

from .helpers import end_of, eventually, spec

SERVER = """
import http.server, socket
class Server(http.server.HTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # two pods on one machine
        super().server_bind()
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_): pass
import sys
Server(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def app(tmp_path, port: int, code: str = SERVER, **labels):
    labels = {"user": "alice", "app": "digits"} | labels
    run = spec(tmp_path, code, name="app-1-1", kind="service", port=port, owner=7, runtime="serve", labels=labels)
    run.command.append(str(port))
    return run


def ready(cluster) -> list[str]:
    pods = cluster.store.list("pods")
    containers = [(pod["metadata"]["name"], pod["status"].get("containerStatuses") or [{}]) for pod in pods]
    return [name for name, (container, *_) in containers if container.get("ready")]


def only(cluster, resource: str) -> dict:
    (only,) = cluster.store.list(resource)
    return only


def test_a_service_is_a_deployment_that_is_probed_and_has_an_address(kubernetes, cluster, tmp_path, port):
    kubernetes.start(app(tmp_path, port))
    eventually(lambda: ready(cluster), what="readiness")
    deployment, service = only(cluster, "deployments"), only(cluster, "services")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    probes = {key: container[key]["httpGet"] for key in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes["readinessProbe"] == {"path": "/v2/health/ready", "port": port}
    assert probes["livenessProbe"] == probes["startupProbe"] == {"path": "/v2/health/live", "port": port}
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert service["spec"]["ports"][0]["port"] == port
    selected = service["spec"]["selector"].items()
    assert selected <= cluster.store.list("pods")[0]["metadata"]["labels"].items()
    assert kubernetes.address("app-1-1") == ("mlp-app-1-1.mlp.svc.cluster.local", port)
    labels = deployment["metadata"]["labels"]
    assert (labels["mlp.platform/user"], labels["mlp.platform/app"]) == ("alice", "digits")


def test_a_workspace_has_started_once_it_listens(kubernetes, cluster, tmp_path, port):
    """JupyterLab has no paths of the Open Inference Protocol, and kernels may keep it from answering."""
    lab = app(tmp_path, port, SERVER.replace("send_response(200)", "send_response(404)"))
    kubernetes.start(replace(lab, purpose="workspace"))
    eventually(lambda: ready(cluster), what="readiness")
    container = only(cluster, "deployments")["spec"]["template"]["spec"]["containers"][0]
    assert not {"livenessProbe", "readinessProbe"} & container.keys()


def test_a_new_pod_is_ready_before_the_old_one_goes(kubernetes, cluster, tmp_path, port):
    kubernetes.start(app(tmp_path, port))
    (old,) = eventually(lambda: ready(cluster))
    again = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
    cluster.store.patch("deployments", "mlp-app-1-1", {"spec": {"template": again}})
    eventually(lambda: ready(cluster) and old not in ready(cluster), what="the new pod")
    asked = next(number for number, _, _, each in cluster.store.events if going(each, old))
    before = [
        each["metadata"]["name"] for number, _, _, each in cluster.store.events if number < asked and is_ready(each)
    ]
    assert set(before) - {old}
    assert kubernetes.poll("app-1-1").state == "running"


def going(each: dict, name: str) -> bool:
    return each["metadata"]["name"] == name and "deletionTimestamp" in each["metadata"]


def is_ready(each: dict) -> bool:
    return bool((each.get("status", {}).get("containerStatuses") or [{}])[0].get("ready"))


def test_a_crashed_service_is_restarted_by_the_cluster(kubernetes, cluster, tmp_path, port):
    code = "import os\nif not os.path.exists('fell'):\n    open('fell', 'w')\n    raise SystemExit(1)\n" + SERVER
    kubernetes.start(app(tmp_path, port, code))
    eventually(lambda: ready(cluster), what="readiness after a fall")
    assert kubernetes.poll("app-1-1").state == "running"


@pytest.mark.parametrize("fields", [{}, {"ingress_class": "nginx"}, {"ingress_gateway": "mlp-platform:30002"}])
@pytest.mark.parametrize("labels", [later({}), later({"public": "false"}), {"public": "true"}])
def test_no_ingress_leads_past_the_gateway(cluster, configured, tmp_path, port, fields, labels):
    runner = KubernetesRunner(configured(ingress_host="apps.example.org", **fields))
    runner.start(app(tmp_path, port, **labels))
    assert cluster.store.list("ingresses") == []
    assert runner.stop_all(0) == []


def test_with_a_gateway_any_ingress_class_works(cluster, configured, tmp_path, port):
    """The gateway checks tokens, so an application that is not public has an Ingress too."""
    gateway = {"ingress_gateway": "mlp-platform:30002", "ingress_host": "apps.example.org"}
    runner = KubernetesRunner(configured(ingress_class="traefik", **gateway))
    runner.start(app(tmp_path, port))
    ingress = only(cluster, "ingresses")
    path = ingress["spec"]["rules"][0]["http"]["paths"][0]
    assert (path["path"], path["pathType"]) == ("/alice/digits", "Prefix")
    assert path["backend"]["service"] == {"name": "mlp-platform", "port": {"number": 30002}}
    spec = ingress["spec"]
    assert (spec["ingressClassName"], spec["rules"][0]["host"]) == ("traefik", "apps.example.org")
    assert not any("nginx" in key for key in ingress["metadata"]["annotations"])
    assert runner.stop_all(0) == []


def test_a_lost_node_loses_the_run_and_nothing_starts_twice(kubernetes, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(pod_status, "NODE_SILENCE_S", 0)
    kubernetes.start(spec(tmp_path, "import signal; open('ready', 'w'); signal.pause()", grace_s=1))
    eventually((tmp_path / "work/ready").exists)
    cluster.node.silent = True
    pod = only(cluster, "pods")["metadata"]["name"]
    cluster.store.delete("pods", pod)  # as the taint manager does, five minutes after the node went silent
    result = end_of(kubernetes)
    assert result.state == "lost"
    assert result.reason == "lost: node node-1 has not answered since it was asked to end the run"
    assert only(cluster, "jobs")["spec"]["suspend"] is True
    assert kubernetes.poll("job-1-1") == result
    kubernetes.forget("job-1-1")
    cluster.node.silent = False
