"""MLflow 3's own client: evaluation datasets, scorers, and evaluations with them. `make mlflow` runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounts import lifecycle as accounts
from jobs.models import EvaluationDataset, ScorerVersion
from tracking.mlflow.tests.test_clients import PYTHONS, run

SCRIPT = Path(__file__).with_name("client_script.py")

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHONS, reason="MLP_MLFLOW is not given: make mlflow"),
]


@pytest.mark.parametrize("python", PYTHONS[:1])  # the earlier release has none of it
def test_an_unmodified_client_keeps_datasets_and_scorers_and_evaluates(live_server, alice, python, tmp_path):
    run(python, SCRIPT, live_server.url, tmp_path, MLFLOW_TRACKING_TOKEN=accounts.token_of(alice))
    assert EvaluationDataset.objects.get().records_kept == 3
    assert ScorerVersion.objects.count() == 1
