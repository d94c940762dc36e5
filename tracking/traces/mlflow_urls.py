"""The addresses of traces in the MLflow protocol, below /mlflow/, and of the intake of spans."""

from __future__ import annotations

from mlflow_protocol.protocol import BASES, BASES_3, Routes, direct, patterns

from . import intake, mlflow_assessments, mlflow_calls, mlflow_metrics

ROUTES_3: Routes = {**mlflow_metrics.ROUTES_3, **mlflow_calls.ROUTES_3, **mlflow_assessments.ROUTES_3}
ROUTES_2: Routes = mlflow_calls.ROUTES_2

urlpatterns = [*patterns(ROUTES_3, BASES_3), *patterns(ROUTES_2, BASES)]
DIRECT = {**direct(ROUTES_3, BASES_3), **direct(ROUTES_2, BASES), **intake.DIRECT}
