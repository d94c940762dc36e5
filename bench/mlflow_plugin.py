"""A pytest plugin with which MLflow's own tests speak to a running platform instead of servers that they start.

It runs in an environment with MLflow, started by bench/mlflow_tests.py. Each test has a user of its own.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit

import mlflow.tracking._tracking_service.utils as tracking
import pytest
import requests

ADDRESS = os.environ["MLFLOW_TESTS_ADDRESS"]
TOKENS = Path(os.environ["MLFLOW_TESTS_TOKENS"]).read_text().split()
NOT_SERVED = Path(__file__).with_name("mlflow_not_served.txt")
TOKEN = "MLFLOW_TRACKING_TOKEN"


@contextlib.contextmanager
def platform(*_arguments, **_options):
    """Yield the platform's address, with the token of a user who has nothing yet."""
    before = os.environ.get(TOKEN)
    os.environ[TOKEN] = TOKENS.pop()
    try:
        yield f"{ADDRESS}/mlflow"
    finally:
        os.environ.pop(TOKEN, None)
        if before is not None:
            os.environ[TOKEN] = before


def _authorize() -> None:
    """Send the user's token also with the requests that tests make without MLflow's client."""
    send = requests.Session.request

    def request(self, method, url, *arguments, headers=None, auth=None, **options):
        if urlsplit(str(url)).netloc == urlsplit(ADDRESS).netloc and "/mlflow" in str(url) and auth is None:
            headers = dict(headers or {})
            if not any(name.lower() == "authorization" for name in headers) and TOKEN in os.environ:
                headers["Authorization"] = f"Bearer {os.environ[TOKEN]}"
        return send(self, method, url, *arguments, headers=headers, auth=auth, **options)

    requests.Session.request = request


def _use_platform() -> None:
    """Let the tests that use a database of their own use the platform."""
    use = tracking._use_tracking_uri

    @contextlib.contextmanager
    def used(uri=None, *arguments):
        if not str(uri).startswith("sqlite"):
            with use(uri, *arguments):
                yield
            return
        with platform() as address, use(address):
            yield

    tracking._use_tracking_uri = used


_use_platform()  # before tests/conftest.py imports it


def pytest_configure(config):
    os.environ.update(
        MLFLOW_HTTP_REQUEST_MAX_RETRIES="1", MLFLOW_DISABLE_TELEMETRY="true", GIT_PYTHON_REFRESH="quiet",
        MLFLOW_ENABLE_ASYNC_TRACE_LOGGING="false",
    )  # fmt: skip
    _authorize()
    with contextlib.suppress(ImportError, AttributeError):
        handlers = importlib.import_module("mlflow.server.handlers")
        handlers.initialize_backend_stores = lambda *arguments, **options: None


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session):
    servers = importlib.import_module("tests.tracking.integration_test_utils")
    servers._init_server = servers.ServerThread = platform


def _rules() -> list[tuple[str, str]]:
    rules = []
    for line in NOT_SERVED.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            reason, patterns = line.split(":", 1)
            rules += [(pattern, reason) for pattern in patterns.split()]
    return rules


def pytest_collection_modifyitems(config, items):
    """Drop the tests of MLflow's file store, and skip those of what the platform does not serve."""
    rules, kept, left = _rules(), [], []
    for item in items:
        given = getattr(item, "callspec", None)
        file = given is not None and any(
            given.params.get(name) == "file" for name in ("store_type", "client", "mlflow_client")
        )
        (left if file else kept).append(item)
        name = re.sub(r"\[.*", "", item.nodeid.split("::", 1)[-1])
        reason = next((reason for pattern, reason in rules if fnmatch(name, pattern)), None)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_terminal_summary(terminalreporter):
    """Write a table: how many tests of each file passed, failed, and are about what is not served."""
    table: dict[str, dict[str, int]] = {}
    reasons: dict[str, int] = {}
    for kind in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(kind, []):
            row = table.setdefault(report.nodeid.split("::")[0], {})
            row[kind] = row.get(kind, 0) + 1
            if kind == "skipped":
                reason = report.longrepr[2].removeprefix("Skipped: ")
                reasons[reason] = reasons.get(reason, 0) + 1
    terminalreporter.section("on the platform")
    for name, row in sorted(table.items()):
        shown = ", ".join(f"{row[kind]} {kind}" for kind in ("passed", "failed", "error", "skipped") if kind in row)
        terminalreporter.write_line(f"{name:60} {shown}")
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped, {reason}: {count}")
