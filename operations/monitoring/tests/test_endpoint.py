"""`/metrics`: who may read it, and that it says what is so."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from accounts import delivery
from accounts import lifecycle as accounts
from accounts.models import Delivery, Notice, Preference
from apps import launching
from apps.models import Application
from datasets.models import Dataset
from jobs.models import Job
from kernel import broker
from kernel.telemetry import meters
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from operations.monitoring import endpoint, machine
from resources.models import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """An answer of an earlier test is not used again."""
    monkeypatch.setattr(endpoint, "_last", (float("-inf"), b""))


def ask(client=None, token: str = settings.METRICS_TOKEN, **headers):
    if token:
        headers["HTTP_AUTHORIZATION"] = f"Bearer {token}"
    return (client or visitor()).get("/metrics", **headers)


def samples() -> dict[tuple, float]:
    """Return the value of each sample of a scrape by its name and labels."""
    response = ask()
    assert response.status_code == 200
    values = {}
    for family in text_string_to_metric_families(response.content.decode()):
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in values, f"twice: {key}"
            values[key] = sample.value
    return values


def test_a_scraper_and_operators_may_read_the_metrics_and_nobody_else(alice, staff):
    assert ask(token="").status_code == 401
    assert ask(token="")["WWW-Authenticate"] == "Bearer"
    assert ask(token="wrong").status_code == 401
    assert ask(token="two words").status_code == 401
    assert ask(token="", HTTP_AUTHORIZATION="Basic b3NjYXI6cGFzcw==").status_code == 401
    assert ask(token=accounts.token_of(alice)).status_code == 403
    assert ask(token=accounts.token_of(staff)).status_code == 200
    assert ask(visitor(alice), token="").status_code == 403
    assert ask(visitor(staff), token="").status_code == 200
    response = ask()
    assert response.status_code == 200
    assert response["Content-Type"].startswith("text/plain; version=")
    assert visitor().post("/metrics", HTTP_AUTHORIZATION=f"Bearer {settings.METRICS_TOKEN}").status_code == 405


def test_an_operator_who_is_deactivated_may_no_longer_read_them(staff):
    token = accounts.token_of(staff)
    accounts.deregister(username=staff.username, by="test")
    assert ask(token=token).status_code == 401


def test_jobs_are_counted_by_state_and_the_queue_has_an_age(alice):
    for name, state in (("a", "creating"), ("b", "creating"), ("c", "running"), ("d", "finished")):
        put(Job, alice, name, state)
    begun = time.monotonic()
    Job.objects.filter(name="a").update(created=timezone.now() - timedelta(hours=2), gpu=2)
    Job.objects.filter(name="b").update(gpu=1, workers=3)
    values = samples()
    assert values["mlp_jobs", ("origin", "job"), ("state", "queued")] == 2
    assert values["mlp_jobs", ("origin", "job"), ("state", "starting")] == 0
    assert values["mlp_jobs", ("origin", "job"), ("state", "running")] == 1
    assert not any(key[0] == "mlp_jobs" and ("state", "finished") in key for key in values)
    assert 7200 <= values[("mlp_job_queue_age_seconds",)] <= 7200 + time.monotonic() - begun
    assert values["mlp_job_queue_requested", ("resource", "gpu_devices")] == 5


def test_each_change_of_state_is_counted_once_it_is_committed(alice, django_capture_on_commit_callbacks):
    key = ("mlp_state_changes_total", ("kind", "dataset"), ("state", "ready"))
    before = samples().get(key, 0)
    with django_capture_on_commit_callbacks(execute=False):
        put(Dataset, alice, "rolled", "ready")
    with django_capture_on_commit_callbacks(execute=True):
        put(Dataset, alice, "kept", "ready")
    endpoint._last = (float("-inf"), b"")
    assert samples()[key] == before + 1


def test_resources_are_given_by_tenant_in_base_units(alice):
    Tenant.objects.filter(name="default").update(ram=4096, ram_inuse=1024, cpu="8.5", cpu_inuse="2.5")
    values = samples()

    def of(what: str, resource: str) -> float:
        return values[f"mlp_tenant_resources_{what}", ("resource", resource), ("tenant", "default")]

    assert (of("capacity", "memory_bytes"), of("in_use", "memory_bytes")) == (4096 << 20, 1024 << 20)
    assert (of("capacity", "cpu_cores"), of("free", "cpu_cores")) == (8.5, 6)


def test_loans_between_tenants(alice):
    Tenant.objects.create(name="north", cpu=1, cpu_inuse=3, cpu_borrowed=2)
    Tenant.objects.filter(name="default").update(cpu=8, cpu_inuse=1, cpu_lent=2)
    values = samples()

    def of(what: str, tenant: str) -> float:
        return values[f"mlp_tenant_resources_{what}", ("resource", "cpu_cores"), ("tenant", tenant)]

    assert (of("lent", "default"), of("borrowed", "default"), of("free", "default")) == (2, 0, 5)
    assert (of("lent", "north"), of("borrowed", "north"), of("free", "north")) == (0, 2, 0)


def test_deliveries_and_tasks_that_wait_have_an_age(alice):
    notice = Notice.objects.create(user=alice, kind="job", name="fit", event="error")
    begun = time.monotonic()
    for minutes in (5, 10):
        due = timezone.now() - timedelta(minutes=minutes)
        Delivery.objects.create(notice=notice, channel="webhook", not_before=due)
    queue = broker.broker()
    message = {"message_timestamp": (timezone.now().timestamp() - 90) * 1000}
    queue.client.hset("dramatiq:files.msgs", "late", json.dumps(message))
    queue.client.rpush("dramatiq:files", "late")
    try:
        values = samples()
    finally:
        queue.client.delete("dramatiq:files", "dramatiq:files.msgs")
    passed = time.monotonic() - begun
    assert values["mlp_deliveries_waiting", ("kind", "notice")] == 2
    assert 600 <= values["mlp_delivery_delay_seconds", ("kind", "notice")] <= 600 + passed
    assert values["mlp_deliveries_waiting", ("kind", "registry_webhook")] == 0
    assert values["mlp_tasks_queued", ("queue", "files"), ("state", "due")] == 1
    assert 90 <= values["mlp_task_queue_age_seconds", ("queue", "files")] <= 90 + passed


def test_requests_are_counted_by_route_and_no_path_is_shown(as_alice, home):
    as_alice.call("get", "users/alice/jobs/veryownname")
    visitor().get("/nowhere/secretpath")
    visitor().generic("BREW", "/healthz/live")
    text = ask().content.decode()
    assert "veryownname" not in text
    assert "secretpath" not in text
    assert "BREW" not in text
    assert 'route="/api/v1/users/{user}/jobs/{name}"' in text
    assert 'route="unmatched"' in text or 'route="/{path}"' in text
    assert 'method="OTHER"' in text


@pytest.mark.parametrize(
    ("route", "shown"),
    [
        ("api/v1/users/<seg:user>/jobs/<seg:name>", "/api/v1/users/{user}/jobs/{name}"),
        (r"api/v1/^(?P<path>.*)$", "/api/v1/{path}"),
        (r"^mlflow(/(?P<path>[\s\S]*))?$", "/mlflow/{path}"),
        (r"^files/(?P<name>[a-z]{1,3}(x|y)\))/$", "/files/{name}/"),
        ("", "/"),
    ],
)
def test_a_route_is_shown_as_a_path_with_its_parameters(route, shown):
    assert meters.route_name(route) == shown


def test_the_last_backup_is_known_and_a_broken_note_is_none():
    note = settings.MLP_ROOT / "run" / "backup.json"
    try:
        note.write_text(json.dumps({"completed": "2026-01-02T03:04:05+00:00", "bytes": 1234}))
        values = samples()
        assert values[("mlp_backup_last_success_timestamp_seconds",)] == 1767323045
        assert values[("mlp_backup_last_size_bytes",)] == 1234
        note.write_text('{"completed": 7}')
        endpoint._last = (float("-inf"), b"")
        assert ("mlp_backup_last_success_timestamp_seconds",) not in samples()
    finally:
        note.unlink()


def test_an_application_shows_its_requests_errors_and_latency(alice):
    app = put(Application, alice, "calc", "ready")
    put(Application, alice, "silent", "ready")
    path = launching.folder(app) / launching.traffic_name(app)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"requests": 40, "errors": 3, "series": [[2.0, 12.0, 250.0]]}))
    values = samples()
    mine = ("application", "calc"), ("user", "alice")
    assert values["mlp_application_requests_total", *mine] == 40
    assert values["mlp_application_errors_total", *mine] == 3
    assert values["mlp_application_latency_seconds", mine[0], ("percentile", "95"), mine[1]] == 0.25
    assert not any(("application", "silent") in key for key in values)


def test_a_collector_that_fails_leaves_the_others(monkeypatch):
    def broken():
        raise RuntimeError("no driver")

    monkeypatch.setitem(endpoint.COLLECTORS, "machine", broken)
    values = samples()
    assert values["mlp_collector_up", ("collector", "machine")] == 0
    assert values["mlp_collector_up", ("collector", "database")] == 1
    assert any(key[0] == "mlp_jobs" for key in values)


def test_a_scrape_asks_the_database_a_fixed_number_of_questions(alice, django_assert_max_num_queries):
    for number in range(30):
        put(Job, alice, f"job{chr(97 + number % 26)}{'x' * (number // 26)}", "running")
    samples()  # the first one composes its queries
    endpoint._last = (float("-inf"), b"")
    with django_assert_max_num_queries(14):
        samples()


class Driver:
    """NVML with two GPUs, the second of which does not measure its power."""

    NVMLError = machine.pynvml.NVMLError
    NVML_TEMPERATURE_GPU = 0

    def __getattr__(self, name: str):
        def answer(handle=None, _kind=None):
            if name == "nvmlDeviceGetPowerUsage" and handle == 1:
                raise machine.pynvml.NVMLError(machine.pynvml.NVML_ERROR_NOT_SUPPORTED)
            return {
                "nvmlDeviceGetCount": 2,
                "nvmlDeviceGetHandleByIndex": handle,
                "nvmlDeviceGetUUID": f"GPU-{handle}".encode(),
                "nvmlDeviceGetName": "H200",
                "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=75),
                "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=3 << 30, total=140 << 30),
                "nvmlDeviceGetTemperature": 61,
                "nvmlDeviceGetPowerUsage": 350_500,
            }.get(name)

        return answer


def test_gpus_show_what_they_measure_in_base_units(monkeypatch):
    monkeypatch.setattr(machine, "pynvml", Driver())
    monkeypatch.setattr(machine, "_gpus", (float("-inf"), []))
    values = samples()
    monkeypatch.setattr(machine, "_gpus", (float("-inf"), []))

    def of(name: str, gpu: int) -> float | None:
        return values.get((f"mlp_gpu_{name}", ("gpu", str(gpu)), ("model", "H200"), ("uuid", f"GPU-{gpu}")))

    assert (of("utilization_ratio", 0), of("memory_used_bytes", 1)) == (0.75, 3 << 30)
    assert (of("memory_size_bytes", 0), of("temperature_celsius", 1)) == (140 << 30, 61)
    assert (of("power_watts", 0), of("power_watts", 1)) == (350.5, None)


@pytest.mark.long
def test_a_delivery_is_counted_by_its_outcome(alice):
    notice = Notice.objects.create(user=alice, kind="job", name="fit", event="error")
    key = ("mlp_delivery_attempts_total", ("channel", "webhook"), ("outcome", "failed"))
    before = samples().get(key, 0)
    Preference.objects.create(user=alice, webhook="http://127.0.0.1:1/")  # not a public address
    row = Delivery.objects.create(notice=notice, channel="webhook", not_before=timezone.now())
    delivery.deliver(row.pk)
    endpoint._last = (float("-inf"), b"")
    assert samples()[key] == before + 1
