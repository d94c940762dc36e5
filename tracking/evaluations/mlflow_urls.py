"""The addresses of evaluation datasets and scorers in the MLflow protocol, below /mlflow/."""

from __future__ import annotations

from mlflow_protocol.protocol import BASES_3, Routes, direct, patterns

from . import mlflow_datasets, mlflow_scorers

ROUTES_3: Routes = {**mlflow_datasets.ROUTES_3, **mlflow_scorers.ROUTES_3}

urlpatterns = patterns(ROUTES_3, BASES_3)
DIRECT = direct(ROUTES_3, BASES_3)
