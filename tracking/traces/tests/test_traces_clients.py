"""MLflow 3's own client: traces, feedback, searches and prompts. `make mlflow` runs it, as test_clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounts import lifecycle as accounts
from jobs.models import Project, Trace
from tracking.mlflow.tests.test_clients import PYTHONS, run

SCRIPT = Path(__file__).with_name("client_script.py")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHONS, reason="MLP_MLFLOW is not given: make mlflow"),
]


@pytest.mark.parametrize("part", ["traces", "evaluation", "prompts"])
@pytest.mark.parametrize("python", PYTHONS[:1])  # the earlier release has neither
def test_an_unmodified_client_traces_and_keeps_prompts(live_server, alice, python, part, tmp_path):
    run(python, SCRIPT, live_server.url, tmp_path, MLFLOW_TRACKING_TOKEN=accounts.token_of(alice), PARTS=part)
    if part == "traces":
        assert Trace.objects.count() == 2
        assert set(Project.objects.filter(traces__isnull=False).values_list("name", flat=True)) == {"chat"}
