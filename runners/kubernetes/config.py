"""How the platform uses its cluster, read from Django's MLP_K8S (docs/kubernetes.md explains each). Used by this
package's other modules, which take a ClusterConfig and never the settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings

RUNTIMES = ("python", "torch", "tf", "serve")


@dataclass(frozen=True)
class ClusterConfig:
    """`images` by runtime; `storage_root` is the folder that the claim or the NFS export holds, where this process
    sees it. `uid_base` + the owner's number is the user of a run when the platform is root; else a run has the
    platform's own user, for nobody else could read or remove what it writes.
    """

    storage_root: Path
    namespace: str = "mlp"
    context: str = ""
    kubeconfig: str = ""
    claim: str = ""
    nfs: str = ""
    images: Mapping[str, str] = field(default_factory=dict)
    pull_policy: str = "IfNotPresent"
    pull_secrets: tuple[str, ...] = ()
    python: str = "python3"
    uid_base: int = 100_000
    gpu_resource: str = "nvidia.com/gpu"
    ingress_class: str = ""
    ingress_host: str = ""
    ingress_gateway: str = ""
    ingress_auth_url: str = ""
    cluster_domain: str = "cluster.local"
    node_selector: Mapping[str, str] = field(default_factory=dict)
    start_timeout_s: int = 600
    deadline_s: int = 0
    shm_mib: int = 0
    gateway_url: str = ""

    def user_of(self, owner: int | None) -> tuple[int, int]:
        """(uid, gid) of a run, never root's."""
        if os.geteuid():
            return os.geteuid(), os.getegid()
        number = self.uid_base + (owner or 0)
        return number, number

    def image(self, runtime: str) -> str:
        """Raises ValueError when there is none for the runtime: the run can never start."""
        image = self.images.get(runtime, "")
        if not image:
            raise ValueError(f"runtime {runtime}: no image; set MLP_K8S_IMAGE_{runtime.upper()}")
        return image

    @property
    def nfs_parts(self) -> tuple[str, str]:
        """(server, path) of `nfs`; an IPv6 address stands in brackets."""
        server, _, path = self.nfs.partition(":/")
        return server.strip("[]"), f"/{path}"


def from_settings() -> ClusterConfig:
    return ClusterConfig(storage_root=Path(settings.MLP_ROOT), gateway_url=settings.RUN_GATEWAY_URL, **settings.MLP_K8S)
