"""Background tasks of jobs. A message may arrive twice or late; the verb it calls decides. Each takes seconds."""

from __future__ import annotations

import dramatiq

from kernel import after_commit
from kernel.broker import broker

from . import launching, lifecycle
from .doctor import diagnose as doctor
from .packages.named import installing


# Before other tasks: whatever else is queued, a job with its resources starts.
@dramatiq.actor(
    actor_name="jobs.launch", queue_name="launches", priority=-1, broker=broker(), max_retries=3, min_backoff=1000
)
def launch(pk: int) -> None:
    launching.launch(pk)


@dramatiq.actor(actor_name="jobs.clean", broker=broker(), max_retries=3, min_backoff=1000)
def clean(pk: int, follow: bool = True) -> None:
    launching.clean(pk, follow)


@dramatiq.actor(actor_name="jobs.step_back", broker=broker(), max_retries=3, min_backoff=1000)
def step_back(pk: int, follow: bool = True) -> None:
    launching.step_back(pk, follow)


@dramatiq.actor(actor_name="jobs.admit", broker=broker(), max_retries=0)
def admit() -> None:
    after_commit.taken("jobs.admit")
    lifecycle.reserve_next()


@dramatiq.actor(actor_name="jobs.erase", queue_name="files", broker=broker(), max_retries=5)
def erase(pk: int, follow: bool = True) -> None:
    launching.erase(pk, follow)


@dramatiq.actor(actor_name="jobs.diagnose", broker=broker(), max_retries=0)
def diagnose(pk: int) -> None:
    doctor.diagnose(pk)


@dramatiq.actor(actor_name="jobs.build_environment", broker=broker(), max_retries=3, min_backoff=1000)
def build_environment(pk: int, follow: bool = True) -> None:
    installing.build(pk, follow)


@dramatiq.actor(actor_name="jobs.erase_environment", queue_name="files", broker=broker(), max_retries=5)
def erase_environment(pk: int, follow: bool = True) -> None:
    installing.erase(pk, follow)
