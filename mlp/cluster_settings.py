"""MLP_K8S: the cluster settings of a platform with MLP_RUNNER=kubernetes. Read once by settings.py, used by
`runners.kubernetes`; docs/kubernetes.md explains each variable.
"""

from __future__ import annotations

import re

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Section

CLUSTER = Section("Kubernetes")
# As container registries name images: host and port, path, tag, digest. Capital letters are in the host and tag only.
IMAGE = re.compile(
    r"([A-Za-z0-9.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
PURPOSES = ("job", "check", "application", "workspace", "training", "all")  # runners.base has them, too
TOLERATION = re.compile(
    r"(?P<purpose>[a-z]+):(?P<key>([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)"
    r"(=(?P<value>([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?))?"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?"
)
CLASS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
IMAGE_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


def images() -> dict[str, str]:
    """Return the images by runtime. Runs whose image is not set fail with a reason that names the variable."""
    configured = {
        "python": CLUSTER.text("MLP_K8S_IMAGE_PYTHON", help="the image of jobs of the runtime `python`"),
        "torch": CLUSTER.text("MLP_K8S_IMAGE_TORCH", help="the image of jobs of the runtime `torch`"),
        "tf": CLUSTER.text("MLP_K8S_IMAGE_TF", help="the image of jobs of the runtime `tf`"),
        "serve": CLUSTER.text("MLP_K8S_IMAGE_SERVE", help="the image of model checks and applications"),
    }
    return {runtime: image for runtime, image in configured.items() if image}


def job_images() -> dict[str, str]:
    """Return the images that jobs may name, by name. A wrong one is refused here: its jobs would only ever wait."""
    setting = "MLP_K8S_IMAGES"
    listed = CLUSTER.items(
        setting,
        help="the images that jobs may name in place of their runtime's: `name=image,…`, best with a digest "
        "([kubernetes.md](kubernetes.md#an-image-for-a-job))",
    )
    named = pairs(setting, listed)
    if len(named) < len(listed):
        raise ImproperlyConfigured(f"{setting} has a name twice")
    for name, image in named.items():
        if not IMAGE_NAME.fullmatch(name):
            raise ImproperlyConfigured(f"{setting}: a name is like torch-2.8 (a-z, 0-9, '.', '_', '-'), not {name!r}")
        if not IMAGE.fullmatch(image):
            raise ImproperlyConfigured(f"{setting}: {name} must be like registry/path:tag@sha256:…, not {image!r}")
    return named


def pairs(name: str, values: list[str]) -> dict[str, str]:
    """Return `key=value` parts as a dictionary."""
    if bad := [value for value in values if not re.fullmatch(r"[^=\s]+=[^=\s]*", value)]:
        raise ImproperlyConfigured(f"{name} must be like key=value,key=value, not {bad[0]!r}")
    return dict(value.split("=", 1) for value in values)


def bucket_claims() -> dict[str, str]:
    """Return the claims through which pods read buckets, by the name of the bucket."""
    setting = "MLP_K8S_BUCKET_CLAIMS"
    claims = pairs(
        setting,
        CLUSTER.items(
            setting,
            help="`bucket=claim,…`: volume claims through which the pods of jobs read buckets in place, each with the "
            "whole bucket ([kubernetes.md](kubernetes.md#buckets-in-place))",
        ),
    )
    for claim in claims.values():
        if not CLASS_NAME.fullmatch(claim):
            raise ImproperlyConfigured(f"{setting} must be like photos=photos-claim, not with the claim {claim!r}")
    return claims


def bucket_folders(claims: dict[str, str]) -> dict[str, str]:
    """Return the folder by which each bucket's claim is named here, where it is not mounted."""
    return {bucket: f"/claims/{claim}" for bucket, claim in claims.items()}


def nfs(value: str) -> str:
    if value and not re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:/\s]+):/\S*", value):
        raise ImproperlyConfigured(f"MLP_K8S_NFS must be like server:/path, not {value!r}")
    return value


def service(value: str) -> str:
    if value and not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?:[1-9]\d{0,4}", value):
        raise ImproperlyConfigured(f"MLP_K8S_INGRESS_GATEWAY must be like service:port, not {value!r}")
    return value


def ingress() -> dict:
    """Return the fields of ClusterConfig that publish applications by an Ingress."""
    return {
        "ingress_class": CLUSTER.text(
            "MLP_K8S_INGRESS_CLASS", help="the class of the Ingress that publishes applications at `/{user}/{app}/`"
        ),
        "ingress_host": CLUSTER.text("MLP_K8S_INGRESS_HOST", help="the host name of that Ingress"),
        "ingress_gateway": service(
            CLUSTER.text(
                "MLP_K8S_INGRESS_GATEWAY",
                help="`service:port` of the platform's application gateway, to which the Ingress leads; without it "
                "there is none",
            )
        ),
    }


def tolerations() -> dict[str, tuple[dict, ...]]:
    """Return the tolerations of pods by the purpose of their run. A wrong one is refused here: no pod would have it."""
    setting, found = "MLP_K8S_TOLERATIONS", {}
    listed = CLUSTER.items(
        setting,
        help="taints that the pods of runs tolerate: `purpose:key=value:effect,…` with the purpose `job`, `check`, "
        "`application`, `workspace`, `training` or `all`, then as `kubectl taint` has it; without a value any value, "
        "without an effect any effect ([kubernetes.md](kubernetes.md#tolerations-and-priority))",
    )
    for part in listed:
        match = TOLERATION.fullmatch(part)
        if not match or match["purpose"] not in PURPOSES:
            raise ImproperlyConfigured(
                f"{setting} must be like job:dedicated=ml:NoSchedule, with one of {', '.join(PURPOSES)} in front, not "
                f"{part!r}"
            )
        matching = {"operator": "Equal", "value": match["value"]} if match["value"] is not None else {}
        toleration = {"key": match["key"], **(matching or {"operator": "Exists"})}
        toleration |= {"effect": match["effect"]} if match["effect"] else {}
        found[match["purpose"]] = (*found.get(match["purpose"], ()), toleration)
    return found


def priority_classes() -> dict[str, str]:
    """Return the priority classes of pods by the purpose of their run."""
    setting = "MLP_K8S_PRIORITY_CLASSES"
    listed = CLUSTER.items(
        setting,
        help="the PriorityClass of the pods of runs: `purpose=class,…` with the purposes of `MLP_K8S_TOLERATIONS`; "
        "`all` counts for those that are not named",
    )
    named = pairs(setting, listed)
    if len(named) < len(listed):
        raise ImproperlyConfigured(f"{setting} has a purpose twice")
    for purpose, name in named.items():
        if purpose not in PURPOSES or not CLASS_NAME.fullmatch(name):
            raise ImproperlyConfigured(
                f"{setting} must be like application=high,all=low, with one of {', '.join(PURPOSES)}, not "
                f"{purpose}={name}"
            )
    return named


def placing() -> dict:
    """Return the fields of ClusterConfig that say which nodes take runs, and with which priority."""
    return {
        "node_selector": pairs(
            "MLP_K8S_NODE_SELECTOR",
            CLUSTER.items("MLP_K8S_NODE_SELECTOR", help="`key=value,…`: only nodes with these labels take runs"),
        ),
        "tolerations": tolerations(),
        "priority_classes": priority_classes(),
        "kueue_queue": CLUSTER.text(
            "MLP_K8S_KUEUE_QUEUE",
            help="the LocalQueue of Kueue that decides when the pods of jobs start "
            "([kubernetes.md](kubernetes.md#kueue)); without one they start at once",
        ),
        "kueue_queues": pairs(
            "MLP_K8S_KUEUE_QUEUES",
            CLUSTER.items("MLP_K8S_KUEUE_QUEUES", help="`tenant=queue,…`: the LocalQueues of tenants with their own"),
        ),
    }


def gpus() -> dict:
    """Return the fields of ClusterConfig that are about GPUs."""
    return {
        "gpu_resource": CLUSTER.text("MLP_K8S_GPU_RESOURCE", "nvidia.com/gpu", help="the resource name of a GPU"),
        "gpu_labels": tuple(
            CLUSTER.items(
                "MLP_K8S_GPU_LABELS",
                default="nvidia.com/gpu.product,cloud.google.com/gke-accelerator",
                help="the labels of a node that have the product of its GPUs; the first that it has counts",
            )
        ),
        "autoscales": CLUSTER.flag(
            "MLP_K8S_AUTOSCALES",
            False,
            help="whether nodes are added for pods that wait: jobs then wait for a type of `MLP_GPU_TYPES` that no "
            "node has",
        ),
    }


def read() -> dict:
    """Return the fields of ClusterConfig that come from the environment."""
    claim = CLUSTER.text("MLP_K8S_PVC", help="the volume claim (ReadWriteMany) through which pods share `MLP_ROOT`")
    share = nfs(CLUSTER.text("MLP_K8S_NFS", help="instead of a claim, the NFS share with `MLP_ROOT`: `server:/path`"))
    if claim and share:
        raise ImproperlyConfigured("MLP_K8S_PVC and MLP_K8S_NFS: set one of them, not both")
    return {
        **ingress(),
        **gpus(),
        **placing(),
        "claim": claim,
        "bucket_claims": bucket_claims(),
        "nfs": share,
        "namespace": CLUSTER.text("MLP_K8S_NAMESPACE", "mlp", help="the namespace of the runs"),
        "kubeconfig": CLUSTER.text(
            "MLP_K8S_KUBECONFIG",
            shown="the pod's service account, else `~/.kube/config`",
            help="the file that says how to reach the cluster",
        ),
        "context": CLUSTER.text("MLP_K8S_CONTEXT", shown="the current context", help="the context of that file to use"),
        "images": images(),
        "job_images": job_images(),
        "pull_policy": CLUSTER.text("MLP_K8S_PULL_POLICY", "IfNotPresent", help="the pods' `imagePullPolicy`"),
        "pull_secrets": tuple(
            CLUSTER.items("MLP_K8S_PULL_SECRETS", help="names of the secrets to pull images with, separated by commas")
        ),
        "python": CLUSTER.text("MLP_K8S_PYTHON", "python3", help="the Python program of the images"),
        "uid_base": CLUSTER.integer(
            "MLP_K8S_UID_BASE",
            100_000,
            1,
            2**31 - 1 - 10**8,
            help="a run's user id is this plus its owner's number where the platform runs as root; otherwise it is the "
            "platform's own",
        ),
        "cluster_domain": CLUSTER.text(
            "MLP_K8S_CLUSTER_DOMAIN", "cluster.local", help="the domain of the cluster's own names"
        ),
        "service_address": CLUSTER.choice(
            "MLP_K8S_SERVICE_ADDRESS",
            "name",
            ["name", "ip"],
            help="how the platform reaches applications: by the `name` of their Service, which needs the "
            "cluster's DNS, or by its `ip`, for a platform on a node outside of it",
        ),
        "start_timeout_s": CLUSTER.integer(
            "MLP_K8S_START_TIMEOUT_S",
            600,
            10,
            unit="s",
            help="how long a run may wait for its image, its storage, a quota or a node of its size before it fails; "
            "for others to leave a node that is large enough it waits however long",
        ),
        "deadline_s": CLUSTER.integer("MLP_K8S_DEADLINE_S", 0, unit="s", help="how long a job may run; 0 for no limit"),
        "shm_mib": CLUSTER.integer(
            "MLP_K8S_SHM_MIB", 0, shown="half the memory", unit="MiB", help="the size of a run's `/dev/shm`"
        ),
    }
