"""The names, labels and annotations of a run's objects in the cluster. Pure.

A run's name may have a hundred letters, digits, dots and underscores; an object's name becomes part of host names and
label values, so it is short, lower case and begins with a letter. It is computed from the run's name, which an
annotation has.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from runners.base import check_name

MANAGED_BY = "app.kubernetes.io/managed-by"
PLATFORM = "mlp-platform"
DOMAIN = "mlp.platform"
RUN, KIND, OWNER = f"{DOMAIN}/run", f"{DOMAIN}/kind", f"{DOMAIN}/owner"
NETWORK = f"{DOMAIN}/network"
NAME = f"{DOMAIN}/name"
SPEC, STOP, END = f"{DOMAIN}/spec", f"{DOMAIN}/stop", f"{DOMAIN}/end"
RAN = f"{DOMAIN}/ran"  # of a Job in a queue of Kueue whose run has had a process
QUEUE = "kueue.x-k8s.io/queue-name"
SELECTOR = f"{MANAGED_BY}={PLATFORM}"

# A Deployment's pods add up to 17 characters, an Indexed Job's host names up to 6; a DNS label has 63 at most.
LONGEST = 40
PLAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
HASHED = re.compile(r".*-[0-9a-f]{10}")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def object_name(name: str) -> str:
    """Return `mlp-{name}` if that is legal, else a shortened form with a hash of the whole name. No two runs share one:
    a plain name that looks like a hashed one is hashed too.
    """
    check_name(name)
    if PLAIN.fullmatch(name) and len(name) <= LONGEST and not HASHED.fullmatch(name):
        return f"mlp-{name}"
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: LONGEST - 11].strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return f"mlp-{slug}-{digest}" if slug else f"mlp-{digest}"


def queue_of(record: dict) -> str:
    """Return the queue of Kueue that decides about a Job, empty for none."""
    return (record["metadata"].get("labels") or {}).get(QUEUE, "")


def route_name(user: str, app: str) -> str:
    """Return the name of an application's Ingress, which all its runs share."""
    slug = re.sub(r"[^a-z0-9]+", "-", app.lower()).strip("-")[: LONGEST - 17].strip("-")
    return f"mlp-route-{slug}-{hashlib.sha256(f'{user}/{app}'.encode()).hexdigest()[:10]}"


def labels(name: str, kind: str, owner: int | None, given: Mapping[str, str]) -> dict[str, str]:
    """Return the platform's own labels and those of the caller that are legal; labels serve filtering only."""
    extra = {f"{DOMAIN}/{key}": value for key, value in given.items() if legal(key, value)}
    return extra | {
        MANAGED_BY: PLATFORM,
        "app.kubernetes.io/component": "run",
        RUN: object_name(name),
        KIND: kind,
        OWNER: "platform" if owner is None else str(owner),
    }


def legal(key: str, value: str) -> bool:
    """Return whether Kubernetes accepts the label."""
    return bool(key) and LABEL_VALUE.fullmatch(key) is not None and LABEL_VALUE.fullmatch(value) is not None
