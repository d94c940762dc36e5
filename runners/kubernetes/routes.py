"""The Ingress of an application, which its runs share: while an application moves to another model it has two runs, and
two objects with one path are refused by most ingress controllers. Each run owns it, so the cluster removes it with the
last of them. Called by `runner`.
"""

from __future__ import annotations

import contextlib
import time

from runners.errors import RunnerError

from . import object_names, objects
from .cluster import Cluster, Conflict, Forbidden, NotFound

TRIES = 8


def hold(cluster: Cluster, body: dict, record: dict) -> None:
    """Make the run of `record` an owner of its application's Ingress, which is created where there is none.

    One that an earlier release has created under the name of a run is taken over.
    """
    for _ in range(TRIES):
        ingress = _of_application(cluster, body["metadata"])
        if ingress is None:
            if cluster.create(cluster.networking.create_namespaced_ingress, body):
                return
        elif record["metadata"]["uid"] in [owner["uid"] for owner in _owners(ingress)]:
            return
        else:
            owners = [*_owners(ingress), objects.reference(record)]
            change = {"ownerReferences": owners, "labels": body["metadata"]["labels"]}
            with contextlib.suppress(Conflict, NotFound):  # changed or removed since it was read
                try:
                    _patch(cluster, ingress, {"metadata": change, "spec": body["spec"]})
                except Forbidden:  # the roles of an earlier release: requests by this way fail for a moment
                    cluster.delete(cluster.networking.delete_namespaced_ingress, ingress["metadata"]["name"])
                    continue
                return
        time.sleep(0.1)
    raise RunnerError("run %(run)s: its Ingress is changed by others again and again", run=_run(record))


def release(cluster: Cluster, record: dict) -> None:
    """End the ownership of a run; the Ingress is deleted with the last one."""
    for _ in range(TRIES):
        ingress = _of_application(cluster, record["metadata"])
        uid = record["metadata"]["uid"]
        if ingress is None or uid not in [owner["uid"] for owner in _owners(ingress)]:
            return
        left = [owner for owner in _owners(ingress) if owner["uid"] != uid]
        if not left:
            cluster.delete(cluster.networking.delete_namespaced_ingress, ingress["metadata"]["name"])
            return
        with contextlib.suppress(Conflict, NotFound):
            with contextlib.suppress(Forbidden):  # the cluster itself forgets owners that are gone
                _patch(cluster, ingress, {"metadata": {"ownerReferences": left}})
            return


def _of_application(cluster: Cluster, metadata: dict) -> dict | None:
    """Return the Ingress of the application whose user and name are in these labels."""
    labels = metadata["labels"]
    user, app = (labels.get(f"{object_names.DOMAIN}/{key}", "") for key in ("user", "app"))
    if not (user and app):
        return None
    ingress = cluster.get(cluster.networking.read_namespaced_ingress, object_names.route_name(user, app))
    if ingress is not None:
        return ingress
    selector = f"{object_names.SELECTOR},{object_names.DOMAIN}/user={user},{object_names.DOMAIN}/app={app}"
    with contextlib.suppress(Forbidden):  # the roles of an earlier release
        return next(iter(cluster.list(cluster.networking.list_namespaced_ingress, selector)["items"]), None)
    return None


def _owners(ingress: dict) -> list[dict]:
    return ingress["metadata"].get("ownerReferences") or []


def _patch(cluster: Cluster, ingress: dict, body: dict) -> None:
    body["metadata"]["resourceVersion"] = ingress["metadata"]["resourceVersion"]
    cluster.patch(cluster.networking.patch_namespaced_ingress, ingress["metadata"]["name"], body)


def _run(record: dict) -> str:
    return record["metadata"]["annotations"][object_names.NAME]
