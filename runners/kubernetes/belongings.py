"""What the Job or Deployment of a run owns, created before its pods may start: Secret, Service, NetworkPolicy."""

from __future__ import annotations

import time
from collections.abc import Iterator

from runners.base import RunSpec
from runners.errors import RunnerError

from . import objects
from .cluster import Cluster, Forbidden

TRIES = 8


def ensure(cluster: Cluster, spec: RunSpec, record: dict) -> None:
    """Create what the run needs beside its record, unless it is there. Raises RunnerError."""
    for function, body in _belongings(spec, record):
        try:
            _ensure(cluster, function, body, record)
        except Forbidden:
            # Roles of an earlier release: their manifests let the workers of all jobs reach each other.
            if body["kind"] != "NetworkPolicy":
                raise


def _belongings(spec: RunSpec, record: dict) -> Iterator[tuple[str, dict]]:
    yield "core.{}_namespaced_secret", objects.secret(spec, record)
    if service := objects.service(spec, record):
        yield "core.{}_namespaced_service", service
    if policy := objects.policy(spec, record):
        yield "networking.{}_namespaced_network_policy", policy


def _ensure(cluster: Cluster, function: str, body: dict, record: dict) -> None:
    """Create the object unless it exists; one left by an earlier run of this name is removed first."""
    api, verb = function.split(".")
    calls = {each: getattr(getattr(cluster, api), verb.format(each)) for each in ("create", "read", "delete")}
    for _ in range(TRIES):
        if cluster.create(calls["create"], body):
            return
        existing = cluster.get(calls["read"], body["metadata"]["name"])
        owners = (existing or {}).get("metadata", {}).get("ownerReferences") or []
        if any(owner["uid"] == record["metadata"]["uid"] for owner in owners):
            return
        if existing:
            cluster.delete(calls["delete"], body["metadata"]["name"])
        time.sleep(0.1)
    name = record["metadata"]["name"]
    raise RunnerError("run %(run)s: an earlier one of this name is still being removed", run=name)
