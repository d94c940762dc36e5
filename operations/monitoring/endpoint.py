"""`GET /metrics`: everything that monitoring asks about the platform, in Prometheus' text format.

It joins what the processes have counted (kernel.telemetry) with what is looked up now (database, servers, machine).
Each of these is asked by itself: where one fails, the others are still there and `mlp_collector_up` says which
failed, since monitoring is needed most while something is broken.

The answer names tenants, users' applications and sizes, so it is for operators and for scrapers with the token only.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily

from accounts import auth
from accounts.models import Scope
from kernel.errors import Refused
from kernel.telemetry import files, meters

from . import applications, database, machine, parts, servers

log = logging.getLogger(__name__)

KEEP_S = 1.0  # several scrapers, or a page that is reloaded, cost one look
COLLECTORS: dict[str, Callable[[], Iterable[Metric]]] = {
    "processes": lambda: files.collect(meters.FOLDER),
    "database": database.collect,
    "servers": servers.collect,
    "parts": parts.collect,
    "machine": machine.collect,
    "applications": applications.collect,
}


def metrics(request: HttpRequest) -> HttpResponse:
    """Answer a scrape: 401 without credentials, 403 for a user who is no operator."""
    if request.method not in {"GET", "HEAD"}:
        return HttpResponseNotAllowed(["GET", "HEAD"])
    status = _may(request)
    if status != 200:
        words = "the metrics need the token of MLP_METRICS_TOKEN or of an operator: Authorization: Bearer {token}\n"
        response = HttpResponse(words, content_type="text/plain", status=status)
        if status == 401:
            response["WWW-Authenticate"] = "Bearer"
        return response
    return HttpResponse(_answer(), content_type=CONTENT_TYPE_LATEST, headers={"Cache-Control": "no-store"})


def _may(request: HttpRequest) -> int:
    """Return 200 where the caller may read the metrics, else the status of the refusal."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        user = request.user
        return 200 if user.is_active and user.is_administrator else 403 if user.is_authenticated else 401
    try:
        token = auth.bearer(header)
    except Refused:
        token = None
    if not token:
        return 401
    if hmac.compare_digest(token.encode(), settings.METRICS_TOKEN.encode()):
        return 200
    user = auth.user_of_token(token, Scope.READ)
    return 401 if user is None else 200 if user.is_administrator else 403


_lock = threading.Lock()
_last: tuple[float, bytes] = (float("-inf"), b"")


def _answer() -> bytes:
    """Return the whole text, at most KEEP_S old."""
    global _last
    with _lock:
        if time.monotonic() - _last[0] > KEEP_S:
            registry = CollectorRegistry()
            registry.register(_Everything())
            text = generate_latest(registry)
            _last = time.monotonic(), text
        return _last[1]


class _Everything:
    """All collectors as one of the library's, with what each took."""

    def describe(self) -> list[Metric]:
        return []  # so that registering it does not collect

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("mlp_collector_up", "Whether this part of the scrape succeeded.", labels=["collector"])
        took = GaugeMetricFamily(
            "mlp_collector_duration_seconds", "What this part of the scrape took.", labels=["collector"]
        )
        for name, collector in COLLECTORS.items():
            begun, metrics = time.perf_counter(), []
            try:
                metrics = list(collector())
                up.add_metric([name], 1)
            except Exception:  # of any kind: the others still answer
                log.warning("metrics: %s could not be collected", name, exc_info=True)
                up.add_metric([name], 0)
            took.add_metric([name], time.perf_counter() - begun)
            yield from metrics
        yield up
        yield took
