"""The watchlist: which workloads are watched, in the form of the wire, and what a change of it means.

`workloads` is always {cluster: {namespace: [deployment, …]}}. Used by the gateway, the training controller and the
preprocessing; knows neither NATS nor the database.
"""

from __future__ import annotations

from collections.abc import Iterable

from kernel.messages import Message, under

Triple = tuple[str, str, str]
MAX_NAME = 253
TRAIN, UPDATE, RESET, NOTHING = "train", "update", "reset", "nothing"


def check(data) -> dict[str, dict[str, list[str]]]:
    """Return the workloads, sorted, without duplicates and empty branches. Raises ValueError naming what is wrong."""
    workloads: set[Triple] = set()
    for cluster, namespaces in _items(data, "workloads"):
        for namespace, deployments in _items(namespaces, f"workloads.{cluster}"):
            if not isinstance(deployments, list):
                raise ValueError(under(f"workloads.{cluster}.{namespace}", Message("must be a list of deployments")))
            for deployment in deployments:
                workloads.add((cluster, namespace, _name(deployment, f"workloads.{cluster}.{namespace}")))
    return tree(workloads)


def tree(triples: Iterable[Triple]) -> dict[str, dict[str, list[str]]]:
    names: dict[str, dict[str, list[str]]] = {}
    for cluster, namespace, deployment in sorted(set(triples)):
        names.setdefault(cluster, {}).setdefault(namespace, []).append(deployment)
    return names


def triples(workloads: dict | None) -> set[Triple]:
    return {
        (cluster, namespace, deployment)
        for cluster, namespaces in (workloads or {}).items()
        for namespace, deployments in namespaces.items()
        for deployment in deployments
    }


def decide(current: dict, last: dict) -> str:
    """Return what a new watchlist needs.

    `train` when something was added to what the last model saw, `update` when something was only removed, `reset` when
    nothing is left.
    """
    wanted = triples(current)
    if not wanted:
        return RESET
    return UPDATE if wanted <= triples(last) else TRAIN


def _items(data, where: str):
    if not isinstance(data, dict):
        raise ValueError(under(where, Message("must be an object")))
    for name, value in data.items():
        yield _name(name, where), value


def _name(value, where: str) -> str:
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
        raise ValueError(under(where, Message("%(value)s is not a valid name", value=repr(value))))
    return value
