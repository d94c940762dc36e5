"""Types of GPUs: which products a name means, which device a run gets, which nodes its pod may be on."""

from __future__ import annotations

import pytest

from runners import NoGpus, RunnerError, gpu_types
from runners.gpus import Device
from runners.kubernetes import KubernetesRunner
from runners.local import LocalRunner

from .helpers import end_of, eventually, spec
from .test_kubernetes_check import node

A100, V100, MIG = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-16GB", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"
LABEL, GKE = "nvidia.com/gpu.product", "cloud.google.com/gke-accelerator"
PRINT = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
WAIT = "import signal; signal.pause()"


@pytest.mark.parametrize(
    ("kind", "product", "meant"),
    [
        ("a100", A100, True),
        ("A100-80GB", A100, True),
        ("a100 80gb", A100, True),
        (A100, A100, True),
        ("a10", A100, False),  # another product
        ("a100-40gb", A100, False),
        ("l40", "NVIDIA-L40S", False),
        ("h100", "NVIDIA-GH100", False),
        ("rtx4090", "NVIDIA-GeForce-RTX-4090", True),
        ("RTX 4090", "NVIDIA-GeForce-RTX-4090", True),
        ("rtx-40", "NVIDIA-GeForce-RTX-4090", False),
        ("a100", "nvidia-tesla-a100", True),
        ("h100", "gpu-h100-sxm", True),  # of node.kubernetes.io/instance-type
        ("mi300x", "AMD_Instinct_MI300X_OAM", True),
        ("a100", MIG, False),  # a slice is no whole GPU
        ("a100-mig", MIG, True),
        ("1g.5gb", MIG, True),
        ("t4", "Tesla-T4-SHARED", False),
        ("t4-shared", "Tesla-T4-SHARED", True),
        (".", A100, False),
        ("-", A100, False),
    ],
)
def test_a_name_means_the_products_of_which_it_is_a_part_by_whole_words(kind, product, meant):
    assert (gpu_types.meant(kind, [product, "", V100], {}) == {product}) == meant


def test_a_name_of_the_administrator_means_what_it_lists():
    named = {"big": (A100, "NVIDIA H100 NVL"), "v100": (A100,)}
    products = [A100, V100, "NVIDIA-H100-NVL"]
    assert gpu_types.meant("BIG", products, named) == {A100, "NVIDIA-H100-NVL"}
    assert gpu_types.meant("v100", products, named) == {A100}


# --- one machine ------------------------------------------------------------------------------------------------
def devices() -> list[Device]:
    return [
        Device("GPU-a0", "NVIDIA A100-SXM4-80GB", 80_000, 0),
        Device("GPU-v0", "Tesla V100-SXM2-16GB", 16_000, 1),
        Device("GPU-v1", "Tesla V100-SXM2-16GB", 16_000, 2),
    ]


@pytest.fixture
def machine(tmp_path):
    local = LocalRunner(tmp_path / "runs", devices=devices)
    yield local
    assert local.stop_all(0) == []


def begun(machine, run) -> bool:
    """Start a run. The processes of an earlier one may still be releasing its GPU."""
    try:
        machine.start(run)
    except RunnerError:
        return False
    return True


def devices_of(machine, tmp_path, name: str, **fields) -> str:
    run = spec(tmp_path, PRINT, name=name, **fields)
    eventually(lambda: begun(machine, run))
    assert end_of(machine, name).succeeded
    return (tmp_path / f"{name}.log").read_text().strip()


def test_a_run_gets_devices_of_its_type(machine, tmp_path):
    assert machine.gpu_products() == {A100: 1, V100: 2}
    assert devices_of(machine, tmp_path, "one", gpu=1, gpu_type="a100") == "GPU-a0"
    assert devices_of(machine, tmp_path, "two", gpu=2, gpu_type="V100") == "GPU-v0,GPU-v1"


def test_a_run_without_a_type_leaves_the_rare_ones_to_others(machine, tmp_path):
    assert devices_of(machine, tmp_path, "any", gpu=1) == "GPU-v0"
    assert devices_of(machine, tmp_path, "all", gpu=3) == "GPU-v0,GPU-v1,GPU-a0"


def test_it_does_not_start_on_another_type_while_its_own_is_taken(machine, tmp_path):
    machine.need_gpus("a100", 1)
    machine.start(spec(tmp_path, WAIT, name="holder", gpu=1, gpu_type="a100"))
    words = "needs 1 × a100, 0 free on this machine now"
    with pytest.raises(NoGpus, match=words):
        machine.start(spec(tmp_path, PRINT, name="late", gpu=1, gpu_type="a100"))
    with pytest.raises(NoGpus, match=words):
        machine.need_gpus("a100", 1)
    with pytest.raises(NoGpus, match="needs 1 × h100"):
        machine.need_gpus("h100", 1)
    machine.stop("holder", 0)
    end_of(machine, "holder")
    assert devices_of(machine, tmp_path, "late", gpu=1, gpu_type="a100") == "GPU-a0"


# --- a cluster --------------------------------------------------------------------------------------------------
def labelled(name: str, gpu: str, label: str, product: str, **more) -> dict:
    return node(name, "8", "64Gi", gpu, labels={label: product}, **more)


def terms_of(cluster) -> list[dict]:
    [pod] = [each for each in cluster.store.list("pods") if each["metadata"]["namespace"] == "mlp"]
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [each for term in required["nodeSelectorTerms"] for each in term["matchExpressions"]]


def test_the_products_of_a_cluster_are_those_of_nodes_that_take_runs(cluster, configured):
    store = cluster.store
    store.create("nodes", labelled("a", "2", LABEL, A100))
    store.create("nodes", labelled("b", "4", GKE, "nvidia-tesla-v100"))
    store.create("nodes", node("c", "8", "64Gi", "1"))  # without GPU feature discovery
    store.create("nodes", labelled("d", "8", LABEL, A100, unschedulable=True))
    store.create("nodes", labelled("e", "0", LABEL, "NVIDIA-L4"))
    asked = {"resources": {"requests": {"nvidia.com/gpu": "1"}}, "name": "c", "image": "i"}
    other = {"metadata": {"name": "x", "namespace": "elsewhere"}, "status": {"phase": "Running"}}
    store.create("pods", other | {"spec": {"nodeName": "a", "containers": [asked]}})
    assert KubernetesRunner(configured()).gpu_products() == {A100: 1, "nvidia-tesla-v100": 4, "": 1}


def test_a_pod_is_bound_to_the_labels_of_its_type(cluster, kubernetes, tmp_path):
    cluster.store.create("nodes", labelled("node-1", "2", LABEL, A100))
    cluster.store.create("nodes", labelled("b", "2", GKE, "nvidia-tesla-a100"))
    cluster.store.create("nodes", labelled("c", "2", LABEL, V100))
    kubernetes.start(spec(tmp_path, "print('ran')", gpu=1, gpu_type="a100"))
    assert end_of(kubernetes).succeeded
    assert terms_of(cluster) == [
        {"key": LABEL, "operator": "In", "values": [A100]},
        {"key": GKE, "operator": "In", "values": ["nvidia-tesla-a100"]},
    ]


def test_a_pod_without_a_type_may_be_anywhere(cluster, kubernetes, tmp_path):
    cluster.store.create("nodes", labelled("node-1", "2", LABEL, A100))
    kubernetes.start(spec(tmp_path, "print('ran')", gpu=1))
    assert end_of(kubernetes).succeeded
    assert "affinity" not in cluster.store.list("pods")[0]["spec"]


def test_without_a_node_of_the_type_a_run_does_not_start(cluster, kubernetes, tmp_path):
    cluster.store.create("nodes", labelled("node-1", "2", LABEL, V100))
    with pytest.raises(NoGpus, match="no node has a GPU of the type a100 now"):
        kubernetes.start(spec(tmp_path, "print('ran')", gpu=1, gpu_type="a100"))
    assert kubernetes.poll("job-1-1").state == "unknown"
    assert cluster.store.list("jobs") == []


def test_nodes_of_a_named_type_may_come_later(cluster, configured, tmp_path):
    cluster.store.create("nodes", labelled("node-1", "2", LABEL, V100))
    runner = KubernetesRunner(configured(gpu_types={"a100": (A100,)}, autoscales=True))
    runner.start(spec(tmp_path, "print('ran')", gpu=1, gpu_type="A100"))
    eventually(lambda: "didn't match Pod's node affinity" in str(runner.poll("job-1-1").reason))
    assert runner.poll("job-1-1").waits
    cluster.store.patch("nodes", "node-1", {"metadata": {"labels": {LABEL: A100}}})
    assert end_of(runner).succeeded
    assert runner.stop_all(0) == []
