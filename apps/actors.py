"""The background tasks of applications. A message may come twice or late; the verb that it calls decides."""

from __future__ import annotations

import contextlib

import dramatiq

from kernel.broker import broker
from kernel.locking import Missing

from . import launching, scaling, sleeping, switching
from .drift import evaluating
from .shadows import copying


@dramatiq.actor(actor_name="apps.launch", broker=broker(), max_retries=3, min_backoff=1000)
def launch(pk: int, follow: bool = True) -> None:
    launching.launch(pk, follow)


@dramatiq.actor(actor_name="apps.stop", broker=broker(), max_retries=3, min_backoff=1000)
def stop(pk: int, run_name: str) -> None:
    launching.stop(pk, run_name)


@dramatiq.actor(actor_name="apps.erase", broker=broker(), max_retries=3, min_backoff=1000)
def erase(pk: int, follow: bool = True) -> None:
    launching.erase(pk, follow)


@dramatiq.actor(actor_name="apps.scale", broker=broker(), max_retries=3, min_backoff=1000)
def scale(pk: int, follow: bool = True) -> None:
    scaling.step(pk, follow)


@dramatiq.actor(actor_name="apps.wake", broker=broker(), max_retries=3, min_backoff=1000)
def wake(pk: int) -> None:
    with contextlib.suppress(Missing):
        sleeping.wake(pk, scaling.BY)


@dramatiq.actor(actor_name="apps.follow", broker=broker(), max_retries=3, min_backoff=1000)
def follow(registered: int) -> None:
    switching.follow_registered(registered)


@dramatiq.actor(actor_name="apps.rollout", broker=broker(), max_retries=3, min_backoff=1000)
def rollout(pk: int, follow: bool = True) -> None:
    switching.step(pk, follow)


@dramatiq.actor(actor_name="apps.drift", broker=broker(), max_retries=1, min_backoff=60_000)
def drift(pk: int) -> None:
    evaluating.look(pk)


@dramatiq.actor(actor_name="apps.shadow", broker=broker(), max_retries=0)
def shadow(pk: int) -> None:
    copying.look(pk)
