"""Who trains: one lease for the whole platform in the key-value store, taken and ended by compare-and-swap.

It stands in for the counter of the original, which a restart made wrong. Ended exactly once: whoever ends it sends
JobEnd, nobody else. Times are seconds since 1970; machines whose clocks differ by a few seconds do no harm.
"""

from __future__ import annotations

import time

from kernel import keyvalue

from .subjects import OWN_BUCKET, OWN_GPU

LEASE_S = 120.0  # renewed by every sign of life of the trainer
FOREIGN_S = 900.0  # a trainer that is not ours reports only while it trains, not while it fetches


def current() -> dict:
    """{"uuid", "owner", "state": "training" | "ended", "since", "until"}; empty when nobody ever trained."""
    found, _ = keyvalue.get_json(OWN_BUCKET, OWN_GPU)
    return found if isinstance(found, dict) else {}


def is_live(lease: dict) -> bool:
    return lease.get("state") == "training"


def is_overdue(lease: dict) -> bool:
    return is_live(lease) and float(lease.get("until") or 0) < time.time()


def take(uuid: str, owner: str, seconds: float = LEASE_S) -> bool:
    """False while somebody trains, also for the same request a second time. An overdue one must be ended first."""

    def decide(old):
        if isinstance(old, dict) and is_live(old):
            return None
        now = time.time()
        return {"uuid": uuid, "owner": owner, "state": "training", "since": now, "until": now + seconds}

    return keyvalue.change(OWN_BUCKET, OWN_GPU, decide) is not None


def renew(uuid: str, owner: str = "", seconds: float = LEASE_S) -> None:
    """A sign of life. Written only when a good part of the time has passed. An ended lease stays ended."""

    def decide(old):
        if not isinstance(old, dict) or not is_live(old) or (uuid and old.get("uuid") != uuid):
            return None
        until = time.time() + seconds
        same = not owner or old.get("owner") == owner
        if same and until - float(old.get("until") or 0) < seconds / 6:
            return None
        return {**old, "until": until, **({"owner": owner} if owner else {})}

    keyvalue.change(OWN_BUCKET, OWN_GPU, decide)


def end(uuid: str = "") -> bool:
    """Ends the lease of that request ("": whoever has it). True for the one caller who ended it: JobEnd is theirs."""

    def decide(old):
        if not isinstance(old, dict) or not is_live(old) or (uuid and old.get("uuid") != uuid):
            return None
        return {**old, "state": "ended", "until": time.time()}

    return keyvalue.change(OWN_BUCKET, OWN_GPU, decide) is not None
