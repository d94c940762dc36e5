"""The background tasks of workspaces. A message may come twice or late; the verb that it calls decides."""

from __future__ import annotations

import dramatiq

from kernel.broker import broker

from . import launching


@dramatiq.actor(actor_name="workspaces.launch", broker=broker(), max_retries=3, min_backoff=1000)
def launch(pk: int, follow: bool = True) -> None:
    launching.launch(pk, follow)


@dramatiq.actor(actor_name="workspaces.stop", broker=broker(), max_retries=3, min_backoff=1000)
def stop(pk: int, run_name: str) -> None:
    launching.stop(pk, run_name)


@dramatiq.actor(actor_name="workspaces.close_ended", broker=broker(), max_retries=3, min_backoff=1000)
def close_ended(owner: int) -> None:
    launching.close_ended(owner)


@dramatiq.actor(actor_name="workspaces.erase", broker=broker(), max_retries=3, min_backoff=1000)
def erase(pk: int, follow: bool = True) -> None:
    launching.erase(pk, follow)
