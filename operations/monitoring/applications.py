"""Requests, errors and latency of each application that is up, as its own process counts them (apps.request_rates).

The counts are the application's word about itself: they begin at 0 with each of its starts.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric

from apps import request_rates
from apps.models import Application, State

from .families import counter, gauge

MAX = 1000
LABELS = ("user", "application")


def collect() -> Iterator[Metric]:
    """Yield the metrics of the first MAX applications by their age."""
    applications = Application.objects.filter(state=State.READY).select_related("user").order_by("pk")[:MAX]
    traffic = [((app.user.username, app.name), request_rates.read(app)) for app in applications]
    known = [(labels, counts) for labels, counts in traffic if counts is not None]
    requests = [(labels, counts.requests) for labels, counts in known]
    errors = [(labels, counts.errors) for labels, counts in known]
    yield counter("mlp_application_requests", "Requests that the application has answered.", LABELS, requests)
    yield counter("mlp_application_errors", "Of those, the ones with an error.", LABELS, errors)
    times = [
        ((*labels, percentile), value / 1000)
        for labels, counts in known
        if counts.fresh
        for percentile, value in (("50", counts.median), ("95", counts.slow))
        if value is not None
    ]
    yield gauge(
        "mlp_application_latency_seconds", "Latency of the latest two seconds with requests.", (*LABELS, "percentile"),
        times,
    )  # fmt: skip
