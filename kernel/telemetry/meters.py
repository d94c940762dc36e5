"""The counters that the platform's processes keep while they work; `/metrics` joins them (operations.monitoring).

Each process counts into files of its own below {root}/run/metrics, which prometheus-client maps into memory: counting
costs microseconds, no process waits for another, and a kill loses nothing. `files` names them, and keeps what a dead
process has counted.

What can be asked for when Prometheus scrapes, such as how many jobs wait, is not counted here.

Names follow Prometheus' rules: base units, `_total` for counters (the library adds it). A label's values are few: no
path, name of a user's object, or message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from time import perf_counter

from django.conf import settings
from prometheus_client import Counter, Gauge, Histogram, Summary, values

from . import files

FOLDER = settings.MLP_ROOT / "run" / "metrics"
FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(FOLDER)  # read by the library when a process opens its files
values.ValueClass = values.MultiProcessValue(files.Identity(FOLDER))

METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "MKCOL", "MOVE", "COPY", "LOCK"}
REQUEST_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
WORK_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
OF_REQUEST = ("part", "method", "route")

# None of them is in the library's registry, which has only what this process has counted.
REQUESTS = Counter("mlp_http_requests", "HTTP requests answered by Python.", (*OF_REQUEST, "status"), registry=None)
REQUEST_SECONDS = Histogram(
    "mlp_http_request_duration_seconds", "Time to the response of HTTP requests.", OF_REQUEST, registry=None,
    buckets=REQUEST_S,
)  # fmt: skip
CONNECTIONS = Gauge(
    "mlp_connections_open", "Open websockets and followed logs.", ("kind",), registry=None,
    multiprocess_mode="livesum",
)  # fmt: skip
TASKS = Counter("mlp_tasks", "Background tasks that a worker has run.", ("queue", "actor", "outcome"), registry=None)
TASK_SECONDS = Histogram(
    "mlp_task_duration_seconds", "Duration of background tasks.", ("actor",), registry=None, buckets=WORK_S
)
TASK_WAIT_SECONDS = Histogram(
    "mlp_task_wait_seconds", "Time from when a task was due until a worker began it.", ("queue",), registry=None,
    buckets=WORK_S,
)  # fmt: skip
STATE_CHANGES = Counter(
    "mlp_state_changes", "Changes of state of jobs, datasets, models and other objects.", ("kind", "state"),
    registry=None,
)  # fmt: skip
RECONCILE_SECONDS = Summary(
    "mlp_reconcile_step_duration_seconds", "Duration of one step of a round of reconcile.", ("step",), registry=None
)
RECONCILE_FAILURES = Counter(
    "mlp_reconcile_step_failures", "Steps of reconcile that have failed.", ("step",), registry=None
)
REPORT_LAG_SECONDS = Histogram(
    "mlp_ingest_lag_seconds", "Time from when a job's report was accepted until it was stored.", ("stream",),
    registry=None, buckets=WORK_S,
)  # fmt: skip
LOG_LINES = Counter("mlp_log_lines_received", "Log lines that were stored by AIOps.", ("type",), registry=None)
LOG_LINES_JUDGED = Counter("mlp_log_lines_judged", "Verdicts of AIOps on log lines.", ("model", "level"), registry=None)
DELIVERIES = Counter(
    "mlp_delivery_attempts", "Attempts to send a notice by e-mail or webhook.", ("channel", "outcome"), registry=None
)


def request(method: str, route: str, status: int | str, seconds: float) -> None:
    """Count an HTTP request and its time to the response."""
    method = method if method in METHODS else "OTHER"
    _requests(method, route, str(status)).inc()
    _request_seconds(method, route).observe(seconds)


@lru_cache(4096)
def _requests(method: str, route: str, status: str) -> Counter:
    return REQUESTS.labels(os.environ.get("MLP_PART", ""), method, route, status)


@lru_cache(1024)
def _request_seconds(method: str, route: str) -> Histogram:
    return REQUEST_SECONDS.labels(os.environ.get("MLP_PART", ""), method, route)


@lru_cache(1024)
def route_name(route: str) -> str:
    """Return Django's route as a path with its parameters in braces: `/api/v1/users/{user}/jobs/{name}`."""
    named = re.sub(r"<(?:[^:<>]+:)?(\w+)>", r"{\1}", _without_groups(route))
    return "/" + re.sub(r"[\^$]|\\Z", "", named).replace("\\", "").lstrip("/")


def _without_groups(route: str) -> str:
    """Return a route with `<name>` for each named group of a regular expression, and without its other groups."""
    result, at = "", 0
    while at < len(route):
        if route[at] != "(":
            result, at = result + route[at], at + 1
            continue
        end, depth = at + 1, 1
        while depth and end < len(route):
            depth += {"(": 1, ")": -1}.get(route[end], 0) if route[end - 1] != "\\" else 0
            end += 1
        inner = route[at + 1 : end - 1]
        name = re.match(r"\?P<(\w+)>", inner)
        result += f"<{name[1]}>" if name else _without_groups(inner) if "?P<" in inner else ""
        at = end + (1 if route[end : end + 1] in {"?", "*", "+"} else 0)
    return result


class CountRequests:
    """Middleware, the outermost: counts each request by the route that Django has found for it."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request_):
        begun = perf_counter()
        response = self.get_response(request_)
        match = getattr(request_, "resolver_match", None)
        if match is not None:
            route = route_name(match.route)
        else:
            route = "static" if request_.path_info.startswith(settings.STATIC_URL) else "unmatched"
        request(request_.method or "", route, response.status_code, perf_counter() - begun)
        return response


def counted(application: Callable, environ: dict, start_response: Callable) -> Iterable[bytes]:
    """Call a WSGI application that has one address, and count the request by it."""
    begun = perf_counter()

    def started(status: str, headers: list, *rest):
        request(environ["REQUEST_METHOD"], environ["PATH_INFO"], status[:3], perf_counter() - begun)
        return start_response(status, headers, *rest)

    return application(environ, started)
