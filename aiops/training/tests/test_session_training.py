"""Sessions from the watchlist to an unusual one: the real trainer learns them, the service judges them."""

from __future__ import annotations

import time

import pytest
from django.utils import timezone

from aiops.intake import accept
from aiops.judging.sessions import Judge
from aiops.models import ModelVersion, SessionAnomaly, WatchedWorkload
from aiops.services.gpu_controller import GpuController
from aiops.services.training_controller import TrainingController
from aiops.training import requests, versions
from aiops.training.tests.test_training import no_gpu, settled, working
from opnilog import learned_sessions

__all__ = ["no_gpu"]

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("no_run_left")]

TINY = {"width": 16, "inner": 32, "heads": 2, "layers": 1, "least_steps": 60, "most_steps": 60}
TEXTS = {"open": "request req-{0} opened", "work": "req-{0} reads row 17 of {0}", "close": "answered req-{0} in 5 ms"}
BAD = "req-{0} failed: connection refused"


def send(number: int, ago_s: int, texts: list[str]) -> None:
    now = int(time.time() * 1000)
    accept.store(
        [
            accept.line(
                text.format(number), id=f"{number}-{place}", cluster="local", namespace="alice", deployment="shop",
                at_ms=now - ago_s * 1000 + place * 1000,
            )
            for place, text in enumerate(texts)
        ]
    )  # fmt: skip


@pytest.mark.long
def test_a_training_learns_the_sessions_that_the_service_judges(served, tasks, alice, settings):
    settings.AIOPS_TRAINING_PARAMETERS = TINY
    settings.AIOPS_SESSION_QUIET_S = 60
    WatchedWorkload.objects.create(namespace="alice", deployment="shop", by=alice)
    usual = list(TEXTS.values())
    for number in range(200):
        send(number, 3600 - 10 * number, [*usual, BAD] if number == 150 else usual)
    work = working(tasks)
    served(TrainingController(), GpuController())
    assert requests.request_training({"local": {"alice": ["shop"]}}) == "training job submitted"
    run = work(settled)
    assert run.state == "completed", run.reason
    version = ModelVersion.objects.get(serving=True)
    assert version.manifest["judged_sessions"] == 1
    known = learned_sessions.load(versions.files().folder_of(version.version))["local/alice/shop"]
    assert (known.quiet_ms, known.key.values("is req-7 there?")) == (60_000, ["req-7"])
    send(900, 600, usual[:2])
    send(901, 590, usual)
    judge = Judge()
    judge.advance(timezone.now())
    reasons = {session.value: [reason[0] for reason in session.reasons] for session in SessionAnomaly.objects.all()}
    assert reasons == {"req-150": ["extra"], "req-900": ["missing"]}
