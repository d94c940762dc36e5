"""The Kubernetes runner: its objects, ownership, recovery and reasons."""

from __future__ import annotations

import json

import pytest
from kubernetes import client
from kubernetes.config import incluster_config

from runners import Mount, RunnerError, tail
from runners.kubernetes import ClusterConfig, KubernetesRunner, object_names, trouble
from runners.kubernetes.cluster import Cluster, connection

from .helpers import ENVIRONMENT, end_of, eventually, spec

WAITS = "import os; open(f'ready', 'w'); os.mkfifo('go'); open('go').read()"


def started(runner, tmp_path, code=WAITS, **fields):
    """Start a run of `code`."""
    run = spec(tmp_path, code, **fields)
    runner.start(run)
    eventually((tmp_path / "work/ready").exists)
    return run


def at_once(monkeypatch) -> None:
    """Make the runner read events at every poll."""
    monkeypatch.setattr(trouble, "QUIET_S", -2)
    monkeypatch.setattr(trouble, "ASK_AGAIN_S", -1)


def only(cluster, resource: str) -> dict:
    (obj,) = cluster.store.list(resource)
    return obj


# --- names ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["job-1-1", "A" * 100, "a.b_c", "-".join("x" * 20), "9", "x-0123456789", "a-"])
def test_an_object_has_a_legal_name(name):
    if name.endswith("-"):
        name += "b"
    short = object_names.object_name(name)
    assert len(short) <= 45
    assert object_names.PLAIN.fullmatch(short)


def test_two_runs_never_share_an_object():
    hashed = object_names.object_name("A.B").removeprefix("mlp-")
    given = ["A.B", "a.b", "a_b", "a-b", hashed, "a" * 41, "a" * 42, "a" * 40]
    assert len({object_names.object_name(name) for name in given}) == len(given)


# --- objects --------------------------------------------------------------------------------------------------
def test_a_pod_has_no_more_rights_than_it_needs(kubernetes, cluster, tmp_path):
    data = tmp_path / "datasets/digits"
    data.mkdir(parents=True)
    mount = Mount(data, "/datasets/digits")
    started(kubernetes, tmp_path, mounts=(mount,), owner=7, gpu=1, ram_mib=300, cpu=0.5, disk_mib=2000)
    pod = only(cluster, "pods")["spec"]
    container = pod["containers"][0]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 100_007,
        "runAsGroup": 100_007,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    assert container["resources"]["limits"] == {
        "cpu": "500m",
        "memory": "300Mi",
        "nvidia.com/gpu": "1",
        "ephemeral-storage": "2000Mi",
    }
    seen = {each["mountPath"]: (each.get("subPath"), each.get("readOnly", False)) for each in container["volumeMounts"]}
    assert seen == {
        "/workspace": ("work", False),
        "/datasets/digits": ("datasets/digits", True),
        "/tmp": (None, False),
        "/dev/shm": (None, False),
    }
    assert (tmp_path / "work").stat().st_uid == 100_007
    labels = only(cluster, "jobs")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "mlp-platform"
    assert labels["mlp.platform/owner"] == "7"


def test_secrets_are_in_the_secret_object_only(kubernetes, cluster, tmp_path):
    started(kubernetes, tmp_path, environment=ENVIRONMENT | {"MLP_TOKEN": "very-secret"})
    secret = only(cluster, "secrets")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == only(cluster, "jobs")["metadata"]["uid"]
    for resource in ("jobs", "pods"):
        assert "very-secret" not in json.dumps(cluster.store.list(resource))


def test_nothing_is_left_of_a_forgotten_run(kubernetes, cluster, tmp_path):
    kubernetes.start(spec(tmp_path, "print(1)", workers=2))
    kubernetes.start(spec(tmp_path, "import signal; signal.pause()", name="app-1", kind="service", port=31999, owner=3))
    end_of(kubernetes)
    kubernetes.forget("job-1-1")
    kubernetes.stop("app-1", 0)
    end_of(kubernetes, "app-1")
    kubernetes.forget("app-1")
    eventually(lambda: not cluster.store.objects, what="an empty cluster")
    assert list((tmp_path / "run/pods").iterdir()) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"runtime": "cobol"}, "runtime cobol: no image; set MLP_K8S_IMAGE_COBOL"),
        ({"image": "jax"}, "image jax: no longer offered; see MLP_K8S_IMAGES"),
        ({"environment": {"A B": "x"}}, "env: 'A B' cannot be a variable's name"),
        ({"environment": {"A": "x" * 2**20}}, "env: all variables together"),
    ],
)
def test_unsupported_specs_are_refused_with_a_reason(kubernetes, tmp_path, fields, words):
    with pytest.raises(ValueError, match=words.split("'")[0]):
        kubernetes.start(spec(tmp_path, "print(1)", owner=1, **fields))


def test_a_folder_of_the_platforms_own_code_is_copied_into_the_storage(kubernetes, tmp_path, tmp_path_factory):
    code = tmp_path_factory.mktemp("code")
    (code / "tool.py").write_text("print('from the tool')")
    run = spec(
        tmp_path, "", mounts=(Mount(code, "/opt/mlp"),), owner=1, command=[kubernetes.python, "/opt/mlp/tool.py"]
    )
    kubernetes.start(run)
    assert end_of(kubernetes).succeeded
    assert tail(run.log) == "from the tool"


# --- recovery ------------------------------------------------------------------------------------------------
def test_an_interrupted_start_is_completed(kubernetes, cluster, tmp_path, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(KubernetesRunner, "_begin", lambda *_: (_ for _ in ()).throw(RunnerError("killed")))
        with pytest.raises(RunnerError):
            kubernetes.start(spec(tmp_path, "print('once')"))
    assert kubernetes.poll("job-1-1").state == "unknown"
    assert kubernetes.names() == ["job-1-1"]
    assert cluster.store.list("pods") == []
    kubernetes.start(spec(tmp_path, "print('once')"))
    assert end_of(kubernetes).succeeded
    assert tail(tmp_path / "job-1-1.log") == "once"


def test_another_process_finds_the_run(kubernetes, configured, tmp_path):
    started(kubernetes, tmp_path)
    other = KubernetesRunner(configured())
    assert other.poll("job-1-1").state == "running"
    (tmp_path / "work/go").write_text("")
    assert end_of(other).succeeded
    assert kubernetes.poll("job-1-1") == other.poll("job-1-1")


def test_the_end_is_kept_when_the_pod_is_deleted(kubernetes, cluster, tmp_path):
    kubernetes.start(spec(tmp_path, "raise SystemExit(7)"))
    first = end_of(kubernetes)
    cluster.store.remove("pods", only(cluster, "pods")["metadata"]["name"])
    assert kubernetes.poll("job-1-1") == first
    assert first.exit_code == 7


def test_an_unobserved_end_is_a_lost_run(kubernetes, cluster, tmp_path):
    cluster.node.held = True
    kubernetes.start(spec(tmp_path, ""))
    pod = eventually(lambda: cluster.store.list("pods"))[0]["metadata"]["name"]
    with cluster.store.changed:  # failed and gone before anybody looked
        cluster.store.set_status("pods", pod, phase="Failed")
        cluster.controllers.job(only(cluster, "jobs"))
        cluster.store.remove("pods", pod)
    status = end_of(kubernetes)
    assert status.state == "lost"
    assert status.reason.startswith("its pod was removed before its end was recorded (BackoffLimitExceeded")


def test_an_unreachable_cluster_is_a_fault(kubernetes, cluster, tmp_path):
    cluster.broken = True
    for verb in (kubernetes.poll, kubernetes.stop, kubernetes.forget):
        with pytest.raises(RunnerError, match="503 ServiceUnavailable: etcdserver"):
            verb("job-1-1")
    cluster.broken = False
    assert kubernetes.poll("job-1-1").state == "unknown"


# --- what keeps a run from beginning ----------------------------------------------------------------------------
def test_an_image_that_cannot_be_pulled_is_reported_and_finally_fails_the_run(cluster, configured, tmp_path):
    runner = KubernetesRunner(configured())
    cluster.node.bad_images["registry.test/image:1"] = ("ImagePullBackOff", "Back-off pulling image: 401 Unauthorized")
    runner.start(spec(tmp_path, ""))
    words = "its image cannot be pulled (registry.test/image:1): Back-off pulling image: 401 Unauthorized"
    assert eventually(lambda: runner.poll("job-1-1").reason) == words
    assert runner.poll("job-1-1").state == "running"
    status = end_of(KubernetesRunner(configured(start_timeout_s=1)))  # one that has no more patience
    assert (status.state, status.exit_code, status.signal) == ("exited", None, None)
    assert status.reason == f"could not start: {words}"
    assert not (tmp_path / "job-1-1.log").exists()


def test_permanent_problems_fail_the_run_at_once(kubernetes, cluster, tmp_path):
    cluster.node.bad_images["registry.test/image:1"] = ("InvalidImageName", "invalid reference format")
    kubernetes.start(spec(tmp_path, ""))
    assert end_of(kubernetes).reason.startswith("could not start: its image name is invalid")


def test_it_reports_that_no_node_has_room(kubernetes, tmp_path):
    kubernetes.start(spec(tmp_path, "", gpu=9))
    words = "no node has room for it: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert eventually(lambda: kubernetes.poll("job-1-1").reason) == words
    kubernetes.stop("job-1-1", 0)
    assert end_of(kubernetes).reason == "stopped before it started"


def test_a_quota_on_pods_is_reported(kubernetes, cluster, tmp_path, monkeypatch):
    at_once(monkeypatch)
    cluster.store.quota["pods"] = 'pods "x" is forbidden: exceeded quota: team, requested: cpu=1, used: cpu=8'
    kubernetes.start(spec(tmp_path, ""))
    assert "a quota is exceeded: " in eventually(lambda: kubernetes.poll("job-1-1").reason)
    assert "exceeded quota: team" in kubernetes.poll("job-1-1").reason


def test_a_quota_on_jobs_refuses_the_start(kubernetes, cluster, tmp_path):
    cluster.store.quota["jobs"] = 'jobs.batch "x" is forbidden: exceeded quota: team'
    with pytest.raises(RunnerError, match=r"403 Forbidden: .*exceeded quota: team"):
        kubernetes.start(spec(tmp_path, ""))
    assert kubernetes.names() == []


def test_storage_that_cannot_be_mounted_is_reported(kubernetes, cluster, tmp_path, monkeypatch):
    at_once(monkeypatch)
    cluster.node.held = True
    kubernetes.start(spec(tmp_path, ""))
    pod = eventually(lambda: cluster.store.list("pods"))[0]
    cluster.controllers.event(pod, "FailedMount", "MountVolume.SetUp failed: mount.nfs: access denied")
    words = "its storage cannot be mounted: MountVolume.SetUp failed: mount.nfs: access denied"
    assert kubernetes.poll("job-1-1").reason == words


def test_a_job_past_its_deadline_has_that_reason(cluster, configured, tmp_path):
    runner = KubernetesRunner(configured(deadline_s=1))
    runner.start(spec(tmp_path, WAITS))  # a cluster counts from a whole second on: it may not come to its first line
    status = end_of(runner)
    assert status.state == "exited"
    assert "longer than 1 s" in status.reason or status.signal


# --- several workers --------------------------------------------------------------------------------------------
RANKS = """
import os
names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")
print(*(os.environ[name] for name in names))
"""


def test_workers_find_each_other(kubernetes, cluster, tmp_path):
    kubernetes.start(spec(tmp_path, RANKS, workers=3))
    job, service = only(cluster, "jobs")["spec"], only(cluster, "services")["spec"]
    assert (job["completionMode"], job["completions"], job["parallelism"]) == ("Indexed", 3, 3)
    assert job["template"]["spec"]["subdomain"] == "mlp-job-1-1"
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    variables = {each["name"]: each.get("value") for each in job["template"]["spec"]["containers"][0]["env"]}
    assert variables["MASTER_ADDR"] == "mlp-job-1-1-0.mlp-job-1-1.mlp.svc.cluster.local"
    assert end_of(kubernetes).succeeded
    assert tail(tmp_path / "job-1-1.log") == "0 3 127.0.0.1 29500 0"
    for rank in (1, 2):
        assert tail(tmp_path / f"job-1-1.worker-{rank}.log") == f"{rank} 3 127.0.0.1 29500 0"


def test_one_worker_that_fails_ends_all(kubernetes, cluster, tmp_path):
    code = "import os, signal\nif os.environ['RANK'] == '2': raise SystemExit(5)\nsignal.pause()"
    kubernetes.start(spec(tmp_path, code, workers=3))
    status = end_of(kubernetes)
    assert (status.exit_code, status.reason) == (5, "worker 2: exit code 5")
    assert not cluster.node.processes


# --- the API client ---------------------------------------------------------------------------------------------
def test_a_long_list_comes_in_pages(cluster, configured):
    for number in range(1203):
        cluster.store.create("events", {"metadata": {"name": f"e{number:04}"}})
    api = Cluster(configured())
    assert len(api.list(api.core.list_namespaced_event)["items"]) == 1203


def test_an_invalid_token_is_reported(cluster, configured, tmp_path):
    settings = configured()
    text = (tmp_path / "kubeconfig").read_text().replace("the-test-token", "another")
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(RunnerError, match="401 Unauthorized"):
        KubernetesRunner(settings).names()


def test_a_pod_of_the_cluster_uses_its_own_account(tmp_path, monkeypatch):
    """And reads its token again when the file has changed: a pod's token is valid for an hour."""
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "ca.crt").write_text("-----BEGIN CERTIFICATE-----\n")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(client, "ApiClient", lambda given: given)
    configuration = connection(ClusterConfig(tmp_path))
    assert configuration.host == "https://10.96.0.1:443"
    assert configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert configuration.auth_settings()["BearerToken"]["value"] == "bearer of-the-pod"
    assert callable(configuration.refresh_api_key_hook)


def test_without_configuration_the_error_names_the_settings(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(RunnerError, match=r"no way to the cluster: .*MLP_K8S_KUBECONFIG"):
        KubernetesRunner(ClusterConfig(tmp_path, kubeconfig=str(tmp_path / "nowhere"))).names()
