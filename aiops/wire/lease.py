"""The lease of the trainer: one for the whole platform in the key-value store, taken and ended by compare-and-swap.

It replaces the original's counter, which a restart made wrong. It is ended exactly once, and the process that ends it
sends JobEnd. Times are seconds since 1970; clocks that differ by a few seconds do no harm.
"""

from __future__ import annotations

import time

from kernel import keyvalue

from .subjects import OWN_BUCKET, OWN_GPU

LEASE_S = 120.0  # renewed by the trainer's progress
FOREIGN_S = 900.0  # other trainers report only while they train, not while they fetch
FOREIGN = "another trainer"  # the owner that took an order of ours
FETCH_MAX_S = 7200.0  # that it answers keeps its lease for this long, in which it must begin to report


def current() -> dict:
    """Return {"uuid", "owner", "state": "training" | "ended", "since", "until"}; empty when nobody ever trained."""
    value, _ = keyvalue.get_json(OWN_BUCKET, OWN_GPU)
    return value if isinstance(value, dict) else {}


def is_live(lease: dict) -> bool:
    return lease.get("state") == "training"


def is_overdue(lease: dict) -> bool:
    return is_live(lease) and float(lease.get("until") or 0) < time.time()


def acquire(uuid: str, owner: str, seconds: float = LEASE_S) -> bool:
    """Take the lease; return False while there is a trainer, also the same one. An expired lease
    must be ended first.
    """

    def decide(old):
        if isinstance(old, dict) and is_live(old):
            return None
        now = time.time()
        return {"uuid": uuid, "owner": owner, "state": "training", "since": now, "until": now + seconds}

    return keyvalue.change(OWN_BUCKET, OWN_GPU, decide) is not None


def renew(uuid: str, owner: str = "", seconds: float = LEASE_S) -> None:
    """Renew the lease. Written only when a good part of its time has passed. An ended lease stays ended."""

    def decide(old):
        if not isinstance(old, dict) or not is_live(old) or (uuid and old.get("uuid") != uuid):
            return None
        until = time.time() + seconds
        same = not owner or old.get("owner") == owner
        if same and until - float(old.get("until") or 0) < seconds / 6:
            return None
        return {**old, "until": until, **({"owner": owner} if owner else {})}

    keyvalue.change(OWN_BUCKET, OWN_GPU, decide)


def is_fetching(lease: dict) -> bool:
    """Return whether another trainer may still fetch its lines."""
    young = time.time() - float(lease.get("since") or 0) < FETCH_MAX_S
    return is_live(lease) and lease.get("owner") == FOREIGN and young


def end(uuid: str = "") -> bool:
    """End the lease of that request ("": of any). Return True to the one caller who ended it, who sends JobEnd."""

    def decide(old):
        if not isinstance(old, dict) or not is_live(old) or (uuid and old.get("uuid") != uuid):
            return None
        return {**old, "state": "ended", "until": time.time()}

    return keyvalue.change(OWN_BUCKET, OWN_GPU, decide) is not None
