"""The Helm chart and the kustomize base: current, valid, with no more rights than needed; by helm where it is there."""

from __future__ import annotations

import subprocess
from functools import cache

import pytest
import yaml
from django.conf import settings
from kubernetes import client

from mlp import cluster_settings
from supervision import single
from tools import chart

KINDS = {
    "Deployment": client.V1Deployment,
    "StatefulSet": client.V1StatefulSet,
    "Job": client.V1Job,
    "Service": client.V1Service,
    "Ingress": client.V1Ingress,
    "NetworkPolicy": client.V1NetworkPolicy,
    "ServiceAccount": client.V1ServiceAccount,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "ClusterRole": client.V1ClusterRole,
    "ClusterRoleBinding": client.V1ClusterRoleBinding,
    "PersistentVolumeClaim": client.V1PersistentVolumeClaim,
    "PodDisruptionBudget": client.V1PodDisruptionBudget,
    "HorizontalPodAutoscaler": client.V2HorizontalPodAutoscaler,
    "PriorityClass": client.V1PriorityClass,
    "ConfigMap": client.V1ConfigMap,
}
with_helm = pytest.mark.skipif(
    chart.helm() is None, reason="helm is not here: only the base that it has written is tested"
)


@cache
def objects(text: str = "") -> list[dict]:
    return [manifest for manifest in yaml.safe_load_all(text or chart.BASE.read_text()) if manifest]


def pods(text: str = "") -> dict[str, dict]:
    """Return the pod templates by the name of their owner."""
    manifests = objects(text)
    return {
        manifest["metadata"]["name"]: manifest["spec"]["template"]
        for manifest in manifests
        if "template" in manifest.get("spec", {})
    }


def test_what_the_code_decides_is_current():
    for path, text in chart.of_code().items():
        assert path.read_text() == text, f"{path.name} is old: python tools/chart.py"


@with_helm
def test_the_base_is_what_helm_renders():
    assert chart.BASE.read_text() == chart.rendered()


def test_every_object_is_valid():
    for manifest in objects():
        KINDS[manifest["kind"]].model_validate(manifest)
    names = [(manifest["kind"], manifest["metadata"]["name"]) for manifest in objects()]
    assert len(names) == len(set(names))


def test_each_part_has_a_deployment_of_its_own_with_two_replicas_or_more():
    started = {
        pod["spec"]["containers"][0]["command"][-1]
        for pod in pods().values()
        if "command" in pod["spec"]["containers"][0]
    }
    assert set(single.names()) <= started
    for manifest in objects():
        if manifest["kind"] == "Deployment":
            scaled = {
                each["spec"]["scaleTargetRef"]["name"] for each in objects() if each["kind"].startswith("Horizontal")
            }
            assert manifest["spec"].get("replicas", 0) >= 2 or manifest["metadata"]["name"] in scaled


def test_pods_are_restricted():
    for name, template in pods().items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "memory" in container["resources"]["limits"]
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])


def test_only_parts_that_call_the_api_server_have_its_token():
    with_token = {
        name for name, manifest in pods().items() if manifest["spec"].get("automountServiceAccountToken", True)
    }
    calling = {
        "mlp-web", "mlp-websockets", "mlp-worker", "mlp-worker-gpu", "mlp-reconcile", "mlp-aiops", "mlp-setup-1",
    }  # fmt: skip
    assert with_token == calling  # websockets: programs in running jobs; aiops: its trainings, and the GPUs


def test_parts_find_each_other_and_no_secret_is_written_down():
    for name, template in pods().items():
        for container in template["spec"]["containers"]:
            values = {each["name"]: each for each in container["env"]}
            if "MLP_ROOT" not in values:
                continue
            secret = {key for key, each in values.items() if "valueFrom" in each}
            assert secret == {
                "MLP_SECRET_KEY", "MLP_ADMIN_PASSWORD", "MLP_METRICS_TOKEN", "DATABASE_URL", "REDIS_URL", "NATS_URL",
            }  # fmt: skip
            services = {
                manifest["metadata"]["name"]: manifest["spec"]["ports"][0]["port"]
                for manifest in objects()
                if manifest["kind"] == "Service"
            }
            for part in ("WEB", "WEBSOCKET", "DATA", "GATEWAY", "APP_GATEWAY"):
                host, _, port = values[f"MLP_{part}_ADDRESS"]["value"].partition(":")
                assert host == "0.0.0.0" or services[host] == int(port), name
    assert not any(manifest["kind"] == "Secret" for manifest in objects())


def test_the_variables_are_settings_of_the_platform():
    known = {name for section in settings.SECTIONS for name in section.settings}
    for template in pods().values():
        names = {each["name"] for each in template["spec"]["containers"][0]["env"]}
        if "MLP_ROOT" in names:
            assert names - {"HOME", "PYTHONDONTWRITEBYTECODE"} <= known


@with_helm
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("url=mlp.example.org", "url"),
        ("image.digest=latest", "digest"),
        ("parts.web.replicas=0", "replicas"),
        ("imagee.tag=2", "imagee"),
        ("runs.tolerations.jobs={spot}", "jobs"),
        ("runs.tolerations.job={spot:Never}", "tolerations"),
        ("runs.tolerations.job={spot-=true}", "tolerations"),  # as the platform's setting would
        ("runs.tolerations.job={team/a/b}", "tolerations"),
        ("runs.priorityClasses.job=High", "priorityClasses"),
        ("kueue.queues.vision=Lab", "queues"),
        ("kueue.queues.lab-1=lab", "lab-1"),  # not the name of a tenant
    ],
)
def test_wrong_values_are_refused(wrong, words):
    with pytest.raises(subprocess.CalledProcessError) as refused:
        chart.rendered("--set", wrong)
    assert words in refused.value.stderr


@with_helm
def test_servers_of_ones_own_replace_ours():
    off = [word for name in ("postgresql", "nats", "valkey") for word in ("--set", f"{name}.enabled=false")]
    text = chart.rendered(*off, "--set", "image.digest=sha256:" + "a" * 64)
    assert not any(manifest["kind"] == "StatefulSet" for manifest in objects(text))
    assert "registry.example.org/mlp-platform@sha256:aaa" in text


@with_helm
def test_workspaces_have_an_address_where_they_are_given_one():
    assert "30013" not in chart.rendered()
    text = chart.rendered("--set", "workspaceUrl=https://*.lab.example.org")
    by_kind = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in objects(text) if "spec" in each}
    ingress = by_kind["Ingress", "mlp-platform"]
    assert "*.lab.example.org" in ingress["tls"][0]["hosts"]
    rule = next(rule for rule in ingress["rules"] if rule["host"] == "*.lab.example.org")
    target = rule["http"]["paths"][0]["backend"]["service"]
    ports = {port["name"]: port["port"] for port in by_kind["Service", target["name"]]["ports"]}
    assert ports[target["port"]["name"]] == 30013
    admitted = by_kind["NetworkPolicy", "mlp-gateways"]["ingress"][0]["ports"]
    assert {"protocol": "TCP", "port": 30013} in admitted


@with_helm
def test_runs_are_placed_by_values(monkeypatch):
    chosen = [
        "runs.tolerations.job={spot=true:NoSchedule,gpu}",
        "runs.tolerations.all={team=ml}",
        "runs.priorityClasses.all=batch",
        "runs.priorityClasses.job=low",
        "kueue.queue=lab",
        "kueue.queues.vision=lab-vision",
        "bucketClaims.photos=photos-claim",
    ]
    text = chart.rendered(*(word for value in chosen for word in ("--set", value)))
    environment = pods(text)["mlp-worker"]["spec"]["containers"][0]["env"]
    for each in environment:
        if each["name"].startswith(("MLP_K8S_TOLERATIONS", "MLP_K8S_PRIORITY", "MLP_K8S_KUEUE", "MLP_K8S_BUCKET")):
            monkeypatch.setenv(each["name"], each["value"])
    placing = cluster_settings.placing()
    assert placing["tolerations"] == {
        "all": ({"key": "team", "operator": "Equal", "value": "ml"},),
        "job": (
            {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
            {"key": "gpu", "operator": "Exists"},
        ),
    }
    assert placing["priority_classes"] == {"all": "batch", "job": "low"}
    assert (placing["kueue_queue"], placing["kueue_queues"]) == ("lab", {"vision": "lab-vision"})
    assert cluster_settings.bucket_claims() == {"photos": "photos-claim"}


@with_helm
def test_settings_replace_variables_of_the_chart():
    """A variable twice is refused where the API server applies. Earlier releases had these as settings only."""
    given = {
        "MLP_K8S_PRIORITY_CLASSES": "all=low",
        "MLP_URL": "https://a",
        "MLP_SECRET_KEY": "x",
        "MLP_LOG_LEVEL": "DEBUG",
    }
    words = ["runs.priorityClasses.all=batch", *(f"settings.{name}={value}" for name, value in given.items())]
    text = chart.rendered(*(word for value in words for word in ("--set", value)))
    plain = {each["name"] for each in pods()["mlp-worker"]["spec"]["containers"][0]["env"]}
    environment = pods(text)["mlp-worker"]["spec"]["containers"][0]["env"]
    names = [each["name"] for each in environment]
    assert sorted(names) == sorted(plain | given.keys())
    assert given.items() <= {each["name"]: each.get("value") for each in environment}.items()


@with_helm
def test_values_of_an_earlier_release_may_be_reused():
    """With `helm upgrade --reuse-values` those of this release are missing."""
    assert chart.rendered("--set", "runs=null", "--set", "kueue=null") == chart.rendered()


@with_helm
def test_the_secret_is_made_once():
    command = [chart.helm(), "template", "mlp", str(chart.CHART), "--namespace", "mlp"]
    (secret,) = (
        manifest
        for manifest in objects(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if manifest["kind"] == "Secret"
    )
    values = secret["stringData"]
    assert values["database-url"] == f"postgresql://platform:{values['database-password']}@mlp-postgresql:5432/mlp"
    assert len(values["secret-key"]) == 64
    assert secret["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_every_part_proves_that_it_works_before_it_replaces_another():
    for name, pod in pods().items():
        if name.startswith("mlp-setup"):
            continue
        (container,) = pod["spec"]["containers"]
        assert "startupProbe" in container, name
        assert "livenessProbe" in container, name


def test_a_pod_that_ends_is_asked_by_nobody_any_more():
    """The nodes hear of it while it still listens; nginx then answers what it has begun."""
    before_the_end = {
        name: pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1]
        for name, pod in pods().items()
        if "lifecycle" in pod["spec"]["containers"][0]
    }
    assert set(before_the_end) == {"mlp-web", "mlp-websockets", "mlp-data", "mlp-gateway", "mlp-app-gateway"}
    assert all(words.startswith("sleep ") for words in before_the_end.values())
    nginx = {name for name, words in before_the_end.items() if "kill -QUIT 1" in words}
    assert nginx == {"mlp-gateway", "mlp-app-gateway"}


def test_the_replicas_of_a_release_are_spread_over_the_nodes():
    deployments = [manifest for manifest in objects() if manifest["kind"] == "Deployment"]
    assert len(deployments) >= 10
    for manifest in deployments:
        template = manifest["spec"]["template"]
        (spread,) = template["spec"]["topologySpreadConstraints"]
        assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert spread["matchLabelKeys"] == ["pod-template-hash"]


@with_helm
def test_hosts_of_the_ingress_have_no_port():
    words = ["--set", "url=https://mlp.example.org:8443", "--set", "appUrl=https://apps.example.org:8443"]
    rendered = objects(chart.rendered(*words))
    (ingress,) = [manifest for manifest in rendered if manifest["kind"] == "Ingress"]
    hosts = {rule["host"] for rule in ingress["spec"]["rules"]}
    assert hosts == {"mlp.example.org", "apps.example.org"}
    assert set(ingress["spec"]["tls"][0]["hosts"]) == hosts


@with_helm
def test_prometheus_asks_one_pod_for_all():
    """Each pod answers with what all have counted: Prometheus takes targets with the same labels for one."""
    text = chart.rendered("--set", "serviceMonitor.enabled=true")
    (monitor,) = [manifest for manifest in objects(text) if manifest["kind"] == "ServiceMonitor"]
    (endpoint,) = monitor["spec"]["endpoints"]
    changed = {rule.get("targetLabel"): rule for rule in endpoint["relabelings"]}
    assert changed["__address__"]["replacement"].startswith("mlp-gateway.")
    assert {"pod", "container"} <= set(changed[None]["regex"].split("|"))
