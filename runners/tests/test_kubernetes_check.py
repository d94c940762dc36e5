"""`manage.py kubernetes`: checks of a complete and of an incomplete cluster, the manifests, the capacity."""

from __future__ import annotations

import re
import socket
from dataclasses import asdict, replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from threading import Thread

import pytest
import yaml
from django.conf import settings as django_settings
from django.core.management import call_command

from mlp.tests.tiers import few
from runners.attaching import Wanted
from runners.kubernetes import KubernetesRunner, check, manifests, trouble
from runners.kubernetes.cluster import Cluster
from runners.kubernetes.config import RUNTIMES, ClusterConfig
from runners.kubernetes.lost_nodes import LostNodes

from .cluster.server import GRANTED
from .cluster.validation import client
from .helpers import end_of, eventually, spec

READY = [{"type": "Ready", "status": "True"}]


def node(name: str, cpu: str, memory: str, gpu: str = "", ready=READY, labels=None, **spec) -> dict:
    has = {"cpu": cpu, "memory": memory, "ephemeral-storage": "100Gi"} | ({"nvidia.com/gpu": gpu} if gpu else {})
    status = {"capacity": has, "allocatable": has, "conditions": ready}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec, "status": status}


@pytest.fixture
def complete_cluster(cluster):
    """A cluster in which nothing is missing."""
    store = cluster.store
    store.create("namespaces", {"metadata": {"name": "mlp"}, "status": {"phase": "Active"}})
    claim = {"phase": "Bound", "capacity": {"storage": "100Gi"}}
    modes = {"accessModes": ["ReadWriteMany"]}
    store.create("persistentvolumeclaims", {"metadata": {"name": "mlp"}, "spec": modes, "status": claim})
    store.create("nodes", node("node-1", "7910m", "32Gi", "2", labels={"nvidia.com/gpu.product": "NVIDIA-L4"}))
    controller = {"controller": "k8s.io/ingress-nginx"}
    store.create("ingressclasses", {"metadata": {"name": "nginx"}, "spec": controller})
    return cluster


ALL = {"ingress_class": "nginx", "ingress_gateway": "mlp-platform:30002", "gateway_url": "http://10.0.0.7:30001"}


def at_once(monkeypatch) -> None:
    """Make the runner read events at every poll."""
    monkeypatch.setattr(trouble, "QUIET_S", -2)
    monkeypatch.setattr(trouble, "ASK_AGAIN_S", -1)


def lines_of(config: ClusterConfig, **options) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in check.run(config, **options):
        lines.setdefault(line.kind, []).append(f"{line.about}: {line.text}")
    return lines


@pytest.fixture(autouse=True)
def names(monkeypatch):
    """Let the cluster's names resolve."""
    real = socket.getaddrinfo

    def resolve(host, *rest, **more):
        return real("127.0.0.1" if str(host).endswith(".cluster.local") else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_without_the_clusters_dns_it_says_how_applications_are_reached(complete_cluster, configured):
    (line,) = lines_of(configured(**ALL, cluster_domain="cluster.invalid"))["note"]
    assert line.startswith("services: kubernetes.default.svc.cluster.invalid does not resolve here")
    assert line.endswith("or set MLP_K8S_SERVICE_ADDRESS=ip on one of its nodes")
    lines = lines_of(configured(**ALL, cluster_domain="cluster.invalid", service_address="ip"))
    assert set(lines) == {"ok"}


def test_an_application_is_reached_at_the_address_of_its_service(cluster, configured, tmp_path):
    runner = KubernetesRunner(configured(service_address="ip"))
    runner.start(spec(tmp_path, "import signal; signal.pause()", name="app-1", kind="service", port=31999, owner=3))
    service = next(each for (kind, _name), each in cluster.store.objects.items() if kind == "services")
    service["spec"]["clusterIP"] = "10.96.7.7"  # as the API server gives it one
    assert runner.address("app-1") == ("10.96.7.7", 31999)
    assert KubernetesRunner(configured()).address("app-1")[0].endswith(".svc.cluster.local")
    runner.stop("app-1", 0)
    end_of(runner, "app-1")


def test_a_complete_cluster_passes_every_check(complete_cluster, configured):
    lines = lines_of(configured(**ALL))
    assert set(lines) == {"ok"}
    assert f"RBAC: all {len(GRANTED)} permissions granted" in lines["ok"]
    assert "nodes: 1 ready for runs, 7.910 CPUs and 32768 MiB in total" in lines["ok"]
    assert "GPUs: 2 nvidia.com/gpu" in lines["ok"]
    assert "GPU types: NVIDIA-L4 (2)" in lines["ok"]


def test_types_of_gpus_that_no_job_would_get_are_noted(complete_cluster, configured):
    complete_cluster.store.create("nodes", node("node-2", "8", "32Gi", "4"))
    named = {"l4": ("NVIDIA-L4",), "a100": ("NVIDIA-A100-SXM4-80GB",)}
    assert lines_of(configured(**ALL, gpu_types=named))["note"] == [
        "GPU types: 4 of nodes without a label of MLP_K8S_GPU_LABELS (nvidia.com/gpu.product, "
        "cloud.google.com/gke-accelerator): jobs that name a type do not get them",
        "GPU types: a100 of MLP_GPU_TYPES: no node has one of its products",
    ]
    assert len(lines_of(configured(**ALL, gpu_types=named, autoscales=True))["note"]) == 1


def test_everything_that_is_missing_is_listed(complete_cluster, configured):
    complete_cluster.denied = {("create", "jobs"), ("list", "nodes"), ("get", "pods")}
    complete_cluster.store.remove("persistentvolumeclaims", "mlp")
    complete_cluster.store.remove("namespaces", "mlp")
    lines = lines_of(configured(images={}, gateway_url="http://127.0.0.1:30001"))
    assert lines["missing"] == [
        "namespace: mlp not found; see `manage.py kubernetes manifests`",
        "RBAC: cannot create jobs in namespace mlp",
        "RBAC: cannot get pods/log in namespace mlp",
        "RBAC: cannot get pods/exec in namespace mlp",
        "storage: PersistentVolumeClaim mlp not found",
        "images: python: MLP_K8S_IMAGE_PYTHON is not set; runs with this runtime fail",
        "gateway: unreachable from pods: http://127.0.0.1:30001; set MLP_RUN_URL or MLP_URL",
    ]
    assert "RBAC: cannot list nodes in the cluster, needed to see nodes and classes" in lines["note"]


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    few(
        [
            ({"claim": ""}, "missing", "storage: not configured; set MLP_K8S_PVC or MLP_K8S_NFS"),
            ({"claim": "", "nfs": "10.0.0.9:/srv/mlp"}, "ok", "storage: NFS 10.0.0.9:/srv/mlp"),
            ({"ingress_class": "traefik"}, "missing", "ingress: IngressClass traefik not found"),
            ({"ingress_class": ""}, "note", "ingress: MLP_K8S_INGRESS_CLASS is not set"),
            (
                {"ingress_gateway": ""},
                "note",
                "ingress: MLP_K8S_INGRESS_GATEWAY is not set; applications have no Ingress",
            ),
            ({"node_selector": {"pool": "gpu"}}, "missing", "nodes: no node is ready for runs"),
            ({"gpu_resource": "amd.com/gpu"}, "note", "GPUs: 0 amd.com/gpu: no GPU"),
            (
                {"gateway_url": "http://localhost:1"},
                "missing",
                "gateway: unreachable from pods: http://localhost:1",
            ),
            ({"namespace": "other"}, "missing", "namespace: other not found"),
        ],
        3,
    ),
)
def test_a_setting_that_does_not_fit_the_cluster_is_reported(complete_cluster, configured, change, kind, words):
    lines = lines_of(configured(**ALL | change))
    assert any(line.startswith(words) for line in lines[kind]), lines


def test_a_cluster_without_the_metrics_api_is_only_noted(complete_cluster, configured):
    complete_cluster.measured, complete_cluster.denied = False, {("list", "pods.metrics.k8s.io")}
    lines = lines_of(configured(**ALL))
    assert "missing" not in lines
    permission, served = lines["note"]
    assert permission == "RBAC: cannot list pods.metrics.k8s.io in namespace mlp"
    assert served.startswith(
        "metrics: metrics.k8s.io not available; no resource usage of jobs: the cluster answered 404"
    )


def test_a_claim_for_one_node_is_noted(complete_cluster, configured):
    complete_cluster.store.patch("persistentvolumeclaims", "mlp", {"spec": {"accessModes": ["ReadWriteOnce"]}})
    assert (
        "storage: PersistentVolumeClaim mlp is ReadWriteOnce: pods must share a node"
        in lines_of(configured(**ALL))["note"]
    )


def test_an_unreachable_cluster_is_the_only_result(complete_cluster, configured, tmp_path):
    config = configured()
    complete_cluster.http.shutdown()
    complete_cluster.http.server_close()
    lines = lines_of(config)
    assert list(lines) == ["missing"]
    assert lines["missing"][0].startswith("cluster: the cluster does not answer: ")


def test_the_probe_runs_a_job(complete_cluster, configured, live_gateway):
    lines = lines_of(configured(**ALL | {"gateway_url": live_gateway}), probe=True)
    line = next(line for line in lines["ok"] if line.startswith("run: "))
    assert line.endswith("gateway 200")
    assert complete_cluster.store.list("jobs") == []


@pytest.mark.long
def test_each_image_of_jobs_is_listed_and_tried(complete_cluster, configured, live_gateway):
    images = {"cuda": "registry.test/cuda:1", "torch": f"registry.test/torch@sha256:{'a' * 64}"}
    complete_cluster.node.bad_images["registry.test/cuda:1"] = ("InvalidImageName", "no such image")
    lines = lines_of(configured(**ALL | {"gateway_url": live_gateway, "job_images": images}), probe=True)
    assert f"images: torch: {images['torch']}" in lines["ok"]
    (note,) = lines["note"]
    assert note.startswith("images: cuda: registry.test/cuda:1 has no digest")
    assert [line.split(": ")[0] for line in lines["ok"] if line.startswith("run")] == ["run", "run torch"]
    missing = next(line for line in lines["missing"] if line.startswith("run"))
    assert missing.startswith("run cuda: could not start: its image name is invalid (registry.test/cuda:1)")


def test_a_probe_that_cannot_reach_the_gateway_is_reported(complete_cluster, configured):
    lines = lines_of(configured(**ALL | {"gateway_url": "http://127.0.0.2:9"}), probe=True)
    assert any("Connection refused" in line for line in lines["missing"] if line.startswith("run: "))


@pytest.fixture
def live_gateway(cluster):
    """Yield the address of an HTTP server that answers 200 to every request."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_commands_exit_code_tells_whether_jobs_can_run(complete_cluster, configured, settings):
    fields = asdict(configured(**ALL))
    settings.MLP_ROOT, settings.RUN_GATEWAY_URL = fields.pop("storage_root"), fields.pop("gateway_url")
    fields.pop("ports")
    settings.MLP_K8S = fields
    out = StringIO()
    call_command("kubernetes", "check", stdout=out)
    assert out.getvalue().endswith("jobs can run\n")
    settings.MLP_K8S = fields | {"claim": "nope"}
    with pytest.raises(SystemExit) as end:
        call_command("kubernetes", "check", stdout=out)
    assert end.value.code == 1
    assert "MISSING  storage    PersistentVolumeClaim nope not found\n1 missing\n" not in out.getvalue()
    assert "MISSING  storage    PersistentVolumeClaim nope not found\n" in out.getvalue()


# --- manifests ------------------------------------------------------------------------------------------------
def test_the_manifests_are_valid():
    objects = manifests.manifests(ClusterConfig(Path("/mlp"), claim="mlp"))
    for body in objects:
        getattr(client, f"V1{body['kind']}").model_validate(body)
    kinds = [body["kind"] for body in objects]
    assert kinds.count("NetworkPolicy") == 6
    assert "PersistentVolumeClaim" in kinds
    without = manifests.manifests(ClusterConfig(Path("/mlp"), nfs="server:/mlp"))
    assert "PersistentVolumeClaim" not in [body["kind"] for body in without]


def test_only_the_platforms_pods_may_connect_to_applications():
    config = ClusterConfig(Path("/mlp"), claim="mlp")
    pods = {"podSelector": {"matchLabels": {"app": "mlp-platform"}}}
    outside = {"ipBlock": {"cidr": "10.0.0.7/32"}}
    for platform, sources in (((), [pods]), (["10.0.0.7/32"], [pods, outside])):
        objects = manifests.manifests(config, platform=platform)
        (policy,) = [
            manifest["spec"]
            for manifest in objects
            if manifest["kind"] == "NetworkPolicy"
            and manifest["spec"]["podSelector"].get("matchLabels", {}).get("mlp.platform/kind") == "service"
        ]
        assert policy["policyTypes"] == ["Ingress"]
        assert policy["ingress"] == [{"from": sources}]
    deployment = next(yaml.safe_load_all((Path(django_settings.BASE_DIR) / "deploy/platform.yaml").read_text()))
    assert deployment["spec"]["template"]["metadata"]["labels"]["app"] == "mlp-platform"


def test_the_manifests_in_the_repository_are_current():
    text = (Path(django_settings.BASE_DIR) / "deploy/kubernetes.yaml").read_text()
    assert text.split("\n", 2)[2] == manifests.text(ClusterConfig(Path("/mlp"), claim="mlp"))
    assert len(list(yaml.safe_load_all(text))) == 15


def test_the_platforms_own_manifest_is_valid_and_names_existing_settings():
    deploy = Path(django_settings.BASE_DIR) / "deploy"
    objects = list(yaml.safe_load_all((deploy / "platform.yaml").read_text()))
    assert [body["kind"] for body in objects] == ["Deployment", "Service", "Ingress"]
    for body in objects:
        getattr(client, f"V1{body['kind']}").model_validate(body)
    documented = (deploy.parent / "docs" / "settings.md").read_text()
    pod = objects[0]["spec"]["template"]["spec"]
    for each in pod["containers"][0]["env"]:
        assert f"`{each['name']}`" in documented
    assert pod["serviceAccountName"] == manifests.ACCOUNT


def test_the_images_have_the_versions_that_are_tested():
    base = Path(django_settings.BASE_DIR)
    pins = (base / "requirements-runs.txt").read_text()
    pinned = dict(re.findall(r"^([a-z-]+)(?:\[.*\])?==(\S+)$", pins, re.MULTILINE))
    images = list((base / "deploy/images").glob("*.Dockerfile"))
    assert {image.name.split(".")[0] for image in images} == {*RUNTIMES, "platform"}
    for image in images:
        for name, version in re.findall(r"\b([a-z-]+)==([0-9.]+)", image.read_text()):
            assert pinned.get(name, version) == version, image.name
        assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", image.read_text(), re.MULTILINE), image.name


def test_every_requested_permission_is_used(complete_cluster, configured, tmp_path, monkeypatch):
    """(The reverse holds too: in all tests the fake cluster refuses everything else.)"""
    at_once(monkeypatch)
    config = configured(**ALL, priority_classes={"all": "low"}, kueue_queue="lab")
    complete_cluster.store.create("localqueues", {"metadata": {"name": "lab"}, "spec": {"clusterQueue": "all"}})
    complete_cluster.store.create("priorityclasses", {"metadata": {"name": "low"}, "value": -5})
    runner = KubernetesRunner(config)
    lines_of(config)
    LostNodes(Cluster(config)).look()
    run = spec(tmp_path, "import signal; signal.pause()", name="app", kind="service", port=31999, owner=1)
    run = replace(run, labels={"user": "a", "app": "b"})
    complete_cluster.node.held = True
    with runner.watch(lambda: None):
        for _ in range(2):
            runner.start(run)
        runner.start(spec(tmp_path, "print(1)", workers=2))
        KubernetesRunner(config).poll("app")
        complete_cluster.node.held = False
        end_of(runner)
        eventually(lambda: runner.poll("app").started)
        runner.attach("app", Wanted(("true",))).close()
        assert runner.stop_all(0) == []
    later = replace(run, name="app-2")
    monkeypatch.setattr(runner, "_begin", lambda *_: None)
    workers = spec(tmp_path, "print(1)", workers=2, name="job-2-1")
    for each in (later, later, workers, workers):  # the second time it looks at what is there
        runner.start(each)
    for name in runner.names():
        runner.forget(name)
    complete_cluster.store.quota["pods"] = "exceeded quota"
    monkeypatch.undo()
    at_once(monkeypatch)
    runner.start(replace(run, name="app-3"))
    eventually(lambda: "quota" in runner.poll("app-3").reason)
    runner.stop("app-3", 0)
    end_of(runner, "app-3")
    assert GRANTED - complete_cluster.used == set()


# --- what there is --------------------------------------------------------------------------------------------
def test_the_capacity_is_that_of_schedulable_nodes(cluster, configured):
    store = cluster.store
    of_gpus = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    store.create("nodes", node("a", "7910m", "16Gi", "4", taints=of_gpus))
    store.create("nodes", node("b", "2", "8000000Ki"))
    store.create("nodes", node("drained", "64", "1Ti", unschedulable=True))
    store.create("nodes", node("down", "64", "1Ti", ready=[{"type": "Ready", "status": "Unknown"}]))
    taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]
    store.create("nodes", node("control", "64", "1Ti", taints=taints))
    runner = KubernetesRunner(configured())
    assert runner.capacity() == {"cpu": Decimal("9.910"), "ram": 16384 + 7812, "gpu": 4}


def test_gpus_are_listed_by_node_and_resource(cluster, configured):
    machine = node("a", "8", "16Gi", "4")
    machine["status"]["allocatable"] = machine["status"]["allocatable"] | {
        "nvidia.com/gpu": "3",
        "nvidia.com/gpu.shared": "8",
    }
    cluster.store.create("nodes", machine)
    cluster.store.create("nodes", node("b", "8", "16Gi"))
    assert KubernetesRunner(configured()).gpu_info() == [
        {"node": "a", "name": "nvidia.com/gpu", "capacity": "4", "allocatable": "3"},
        {"node": "a", "name": "nvidia.com/gpu.shared", "capacity": "0", "allocatable": "8"},
    ]
