"""Traces from a request to the start of a process, received as a collector receives them."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys

import pytest
import requests

from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import free_port
from mlp.tests.tiers import later
from supervision.tests.shared import Shared

pytestmark = pytest.mark.begins(0)

SCRIPT = b"import os\nprint('TRACE', os.environ.get('TRACEPARENT', 'none'), flush=True)\n"
SERVER, PRODUCER, CONSUMER = 2, 4, 5
USER = "tracy"


class User:
    """A user of a platform that sends traces."""

    def __init__(self, platform: Shared):
        self.gateway = f"http://127.0.0.1:{platform.base + 1}"
        self.api = f"{self.gateway}/api/v1/users/{USER}"
        who = {"username": USER, "password": "correct horse battery"}
        requests.post(f"{self.gateway}/api/v1/users", json=who, timeout=LIMIT_S)
        token = requests.get(f"{self.api}/token", auth=tuple(who.values()), timeout=LIMIT_S).json()
        self.headers = {"Authorization": f"Bearer {token}"}
        self.put("fast.py", SCRIPT)

    def put(self, name: str, script: bytes) -> None:
        address = f"{self.gateway}/data/{USER}/.home/{name}"
        assert requests.put(address, script, headers=self.headers, timeout=LIMIT_S).status_code in {201, 204}

    def submit(self, name: str, header: str = "", **options) -> None:
        headers = self.headers | ({"traceparent": header} if header else {})
        body = {"name": name, "entry": "fast.py", "cpu": 0.1, "ram": 100, **options}
        answer = requests.post(f"{self.api}/jobs", json=body, headers=headers, timeout=LIMIT_S)
        assert answer.status_code == 201, answer.text

    def job(self, name: str) -> dict:
        return requests.get(f"{self.api}/jobs/{name}", headers=self.headers, timeout=LIMIT_S).json()

    def trace_of(self, name: str) -> str:
        """Return what the job's script has printed of its trace, once it has ended."""
        until(lambda: self.job(name)["state"] in {"finished", "error"})
        log = requests.get(f"{self.api}/jobs/{name}/log", headers=self.headers, timeout=LIMIT_S).text
        return next(line.split()[-1] for line in log.splitlines() if "TRACE " in line)


def ids() -> tuple[str, str, str]:
    """Return a new trace, a span, and the header with both."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return trace, span, f"00-{trace}-{span}-01"


@pytest.fixture(scope="module")
def user(shared):
    user = User(shared.running())
    yield user
    shared.leave(USER, user.headers)


@pytest.fixture
def receiver(shared):
    return shared.receiver


@pytest.mark.e2e
def test_a_trace_leads_from_the_request_to_the_process(user, receiver):
    trace, caller, header = ids()
    user.submit("traced", header)
    _version, seen, last, _flags = user.trace_of("traced").split("-")
    assert seen == trace
    until(lambda: {"run.start", "jobs.launch process", "POST /api/v1/users/{user}/jobs"} <= receiver.of(trace).keys())
    spans = receiver.of(trace)
    request, publish = spans["POST /api/v1/users/{user}/jobs"], spans["jobs.launch publish"]
    process, start = spans["jobs.launch process"], spans["run.start"]
    assert (request.kind, publish.kind, process.kind) == (SERVER, PRODUCER, CONSUMER)
    assert (request.parent, publish.parent, process.parent) == (caller, request.id, publish.id)
    assert (start.parent, start.id) == (request.id, last)  # what the script continues is the start of its process
    assert request.attributes["http.response.status_code"] == "201"
    assert request.attributes["http.route"] == "/api/v1/users/{user}/jobs"
    assert (request.resource["service.name"], request.resource["mlp.part"]) == ("mlp", "web")
    assert process.resource["mlp.part"] == "worker"
    assert spans["job.queued"].attributes["mlp.job"] == "traced"


@pytest.mark.e2e
def test_a_job_that_waits_belongs_to_the_request_that_submitted_it(user, receiver):
    capacity = requests.get(f"{user.gateway}/api/v1/tenants/default", headers=user.headers, timeout=LIMIT_S)
    cores = capacity.json()["cpu"] - capacity.json()["cpu_inuse"]
    user.put("wait.py", b"import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n")
    user.submit("first", entry="wait.py", cpu=cores)
    until(lambda: user.job("first")["state"] == "running")
    trace, _caller, header = ids()
    user.submit("second", header, cpu=cores)
    freeing, _caller, freed = ids()
    requests.put(f"{user.api}/jobs/first:cancel", headers=user.headers | {"traceparent": freed}, timeout=LIMIT_S)
    assert user.trace_of("second").split("-")[1] == trace
    until(lambda: {"run.start", "job.queued"} <= receiver.of(trace).keys() and receiver.of(freeing))
    spans, [cancel] = receiver.of(trace), [span for span in receiver.of(freeing).values() if span.kind == SERVER]
    request, queued, start = spans["POST /api/v1/users/{user}/jobs"], spans["job.queued"], spans["run.start"]
    assert start.parent == request.id
    assert request.began <= queued.began <= request.ended <= cancel.began <= queued.ended <= start.ended


@pytest.mark.e2e
def test_the_users_own_trace_and_a_broken_one(user):
    own = ids()[2]
    user.submit("own", ids()[2], env={"TRACEPARENT": own})
    user.submit("broken", "00-" + "x" * 2000)
    assert user.trace_of("own") == own
    assert user.trace_of("broken").startswith("00-")  # a new trace


@pytest.mark.e2e
def test_what_is_asked_all_the_time_has_no_spans(user, receiver):
    for path in ("/healthz", "/healthz/live", "/metrics"):
        requests.get(user.gateway + path, timeout=LIMIT_S)
    trace, _caller, header = ids()
    requests.get(f"{user.api}/jobs", headers=user.headers | {"traceparent": header}, timeout=LIMIT_S)
    until(lambda: receiver.of(trace))
    assert not [span.name for span in receiver.spans if "/healthz" in span.name or span.name.endswith(" /metrics")]


# --- without a platform ----------------------------------------------------------------------------------------------
LOADED = """
import sys
import django
django.setup()
import mlp.urls, mlp.worker
from kernel.telemetry import tracing
with tracing.span("nothing") as span:
    assert span is None
assert tracing.traceparent() == "" and tracing.environment() == {}
# The metrics of the SDK are imported by redis-py wherever they are installed; what traces need is not.
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk.trace", "opentelemetry.exporter"))])
"""
AWAY = """
import os, sys
import django
django.setup()
from django.test import Client
assert Client().get("/regist_login").status_code == 200
assert "opentelemetry.sdk.trace" in sys.modules
print("answered", flush=True)
os._exit(0)
"""


def run(code: str, **environment: str) -> str:
    settings = {"DJANGO_SETTINGS_MODULE": "mlp.settings", "PYTHONPATH": os.getcwd()}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    command = [sys.executable, "-c", code]
    given = kept | settings | environment
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


DISABLED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_SDK_DISABLED": "true"}


@pytest.mark.long
@pytest.mark.parametrize("given", [later({}), DISABLED], ids=["not set", "disabled"])
def test_nothing_is_loaded_while_traces_are_off(given):
    assert run(LOADED, **given) == "[]"


@pytest.mark.long
def test_a_receiver_that_is_away_is_no_failure_of_a_request():
    assert run(AWAY, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}") == "answered"


@pytest.mark.long
def test_a_receiver_that_hangs_delays_nothing():
    """It never answers, and may take a day for it: who waited for it would not come back."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        assert run(AWAY, MLP_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_TIMEOUT="86400") == "answered"
