"""The configuration of the cluster, read from the setting MLP_K8S (docs/kubernetes.md explains each entry).

The other modules of this package take a ClusterConfig and never the settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

from kernel.messages import Message

CLAIMS = Path("/claims")  # below it, claims of buckets have their names in the paths of mounts; nothing is mounted here
RUNTIMES = ("python", "torch", "tf", "serve")


@dataclass(frozen=True)
class ClusterConfig:
    """How runs use the cluster. `images` is by runtime, `job_images` by the name that jobs give; `storage_root` is the
    path of the shared storage (the claim or the NFS export) in this process. Runs have the user `uid_base` + the
    owner's number when the platform is root, else the platform's own user, since it could not read or remove the files
    of another.
    """

    storage_root: Path
    namespace: str = "mlp"
    context: str = ""
    kubeconfig: str = ""
    claim: str = ""
    bucket_claims: Mapping[str, str] = field(default_factory=dict)  # by the name of the bucket
    nfs: str = ""
    images: Mapping[str, str] = field(default_factory=dict)
    job_images: Mapping[str, str] = field(default_factory=dict)
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    python: str = "python3"
    uid_base: int = 100_000
    gpu_resource: str = "nvidia.com/gpu"
    gpu_labels: tuple[str, ...] = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator")
    gpu_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # products by the name that jobs give
    autoscales: bool = False
    ingress_class: str = ""
    ingress_host: str = ""
    ingress_gateway: str = ""
    cluster_domain: str = "cluster.local"
    service_address: str = "name"  # how applications are reached: by the name of their Service, or its "ip"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: Mapping[str, tuple[dict, ...]] = field(default_factory=dict)  # by RunSpec.purpose, "all" of each
    priority_classes: Mapping[str, str] = field(default_factory=dict)  # the same; "all" of those without their own
    kueue_queue: str = ""  # the LocalQueue of Kueue that decides about jobs, where their tenant has none
    kueue_queues: Mapping[str, str] = field(default_factory=dict)  # by tenant
    start_timeout_s: int = 600
    deadline_s: int = 0
    shm_mib: int = 0
    gateway_url: str = ""
    ports: tuple[int, ...] = (30001, 30002, 30010)  # of the gateways and NATS

    def tolerations_of(self, purpose: str) -> list[dict]:
        """Return the taints that the pods of runs for that purpose tolerate, as Kubernetes writes them."""
        return [*self.tolerations.get("all", ()), *self.tolerations.get(purpose, ())]

    def priority_class_of(self, purpose: str) -> str:
        """Return the PriorityClass of the pods of runs for that purpose, empty for the cluster's default."""
        return self.priority_classes.get(purpose) or self.priority_classes.get("all", "")

    def user_of(self, owner: int | None) -> tuple[int, int]:
        """Return (uid, gid) of a run, never root's."""
        if os.geteuid():
            return os.geteuid(), os.getegid()
        number = self.uid_base + (owner or 0)
        return number, number

    def image(self, runtime: str, name: str = "") -> str:
        """Return the image of that name, or without one the runtime's. Raises ValueError when there is none: the run
        can never start.
        """
        if name:
            if name in self.job_images:
                return self.job_images[name]
            raise ValueError(Message("image %(name)s: no longer offered; see MLP_K8S_IMAGES", name=name))
        image = self.images.get(runtime, "")
        if not image:
            variable = f"MLP_K8S_IMAGE_{runtime.upper()}"
            raise ValueError(
                Message("runtime %(runtime)s: no image; set %(variable)s", runtime=runtime, variable=variable)
            )
        return image

    def volume_of(self, source: Path) -> tuple[str, Path]:
        """Return the claim of the bucket with that path, "" for the shared storage, and the path in it. Raises
        ValueError for a path in neither.
        """
        for claim in self.bucket_claims.values():
            if source.is_relative_to(CLAIMS / claim):
                return claim, source.relative_to(CLAIMS / claim)
        return "", source.relative_to(self.storage_root)

    @property
    def nfs_parts(self) -> tuple[str, str]:
        """Return (server, path) of `nfs`, where an IPv6 address is in brackets."""
        server, _, path = self.nfs.partition(":/")
        return server.strip("[]"), f"/{path}"


def from_settings() -> ClusterConfig:
    """Return the configuration that Django's settings give."""
    return ClusterConfig(
        storage_root=Path(settings.MLP_ROOT),
        gateway_url=settings.RUN_GATEWAY_URL,
        ports=(settings.GATEWAY_PORT, settings.APP_GATEWAY_PORT, settings.NATS_PORT),
        **{"gpu_types": settings.GPU_TYPES} | settings.MLP_K8S,
    )
