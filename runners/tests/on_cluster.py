"""The whole platform on the fake cluster, for the tests of jobs and applications on Kubernetes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import runners

from .cluster import FakeCluster


@contextmanager
def platform_on_cluster(settings, folder: Path, **more) -> Iterator[FakeCluster]:
    """Run the platform on the fake cluster, with `more` fields of MLP_K8S; the kubeconfig is written to `folder`."""
    cluster = FakeCluster(settings.MLP_ROOT)
    settings.MLP_RUNNER = "kubernetes"
    access = {"kubeconfig": cluster.kubeconfig(folder / "kubeconfig"), "claim": "mlp"}
    settings.MLP_K8S = access | {"python": sys.executable} | more
    runners._runner.cache_clear()
    try:
        yield cluster
        runners.get().stop_all(0)
    finally:
        runners._runner.cache_clear()
        settings.MLP_RUNNER = "local"
        cluster.stop()
