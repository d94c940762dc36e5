"""Each check of the doctor: what it finds where something is wrong, with its remedy, and that it is quiet otherwise."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
from collections import namedtuple
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from kernel import bus
from kernel.errors import Fault
from mlp.management.commands.doctor import CHECKS, THOROUGH
from operations.checkup import findings, isolation, machine, secrecy, state
from operations.checkup.findings import Check, Finding
from resources import inventory, products
from resources.models import Tenant
from runners.confine import Confinement
from supervision import ports, tls
from supervision import root as roots
from supervision.tests.certificates import DAY, Authority
from tracking.metrics.recording import STREAM

Usage = namedtuple("Usage", "total used free")


def only(results) -> Finding:
    (finding,) = list(results)
    return finding


@pytest.fixture
def root(tmp_path, settings):
    settings.MLP_ROOT = tmp_path / "root"
    (settings.MLP_ROOT / "run").mkdir(parents=True, mode=0o700)
    return settings.MLP_ROOT


# --- the report ------------------------------------------------------------------------------------------------------
def test_a_check_that_fails_hides_no_other():
    def breaks():
        yield Finding("first", "ok", "fine")
        raise ValueError("broken\nwith details")

    results = list(
        findings.run([Check("a", breaks), Check("b", lambda: [Finding("b", "problem", "bad", "mend it")])], ())
    )
    assert [finding.level for finding in results] == ["ok", "warning", "problem"]
    assert results[1].what == "could not be checked: broken"
    assert findings.worst(results) == "problem"


def test_what_needs_a_missing_server_is_left_out():
    checks = [Check("a", lambda: [Finding("a", "ok", "")], frozenset({"nats"}))]
    assert list(findings.run(checks, ["nats"])) == []
    assert len(list(findings.run(checks, ["valkey"]))) == 1


@pytest.mark.parametrize(("level", "code"), [("ok", 0), ("note", 0), ("warning", 1), ("problem", 2)])
def test_the_exit_code_is_that_of_the_worst_finding(monkeypatch, capsys, level, code):
    monkeypatch.setattr(
        "mlp.management.commands.doctor.CHECKS", (Check("a", lambda: [Finding("a", level, "what", "see {root}/log")]),)
    )
    monkeypatch.setattr("mlp.management.commands.doctor.SERVERS", {})
    with pytest.raises(SystemExit) as end:
        call_command("doctor", "--json")
    report = json.loads(capsys.readouterr().out)
    assert (end.value.code, report["level"]) == (code, level)
    assert logging.getLogger("kernel").level == logging.NOTSET, "the process logs as before"
    assert report["findings"] == [
        {"about": "a", "level": level, "what": "what", "remedy": f"see {settings.MLP_ROOT}/log"}
    ]


# --- the machine -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("free_mib", "level", "what"),
    [
        (100, "problem", "nothing is stored"),
        (500, "problem", "no run starts"),
        (2000, "warning", ""),
        (50_000, "ok", ""),
    ],
)
def test_a_full_disk(root, monkeypatch, free_mib, level, what):
    usage = Usage(100_000 << 20, 0, free_mib << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    finding = next(iter(machine.disk()))
    assert (finding.level, bool(finding.remedy)) == (level, level != "ok")
    assert what in finding.what


def test_a_taken_port_is_named_with_what_to_change(root, monkeypatch):
    def taken(parts):
        raise ports.Taken("port 1 on 127.0.0.1, needed for nats, is taken by another program. Choose another one.")

    monkeypatch.setattr(ports, "check", taken)
    finding = only(machine.free_ports())
    assert (finding.level, finding.remedy) == ("problem", "Choose another one.")
    assert finding.what.endswith("is taken by another program")


def test_the_ports_of_a_running_platform_are_not_tried(root):
    with roots.lock() as held:
        assert held
        assert list(machine.free_ports()) == []


@pytest.mark.parametrize(("off_s", "level"), [(0, "ok"), (-3, "warning"), (3, "warning"), (600, "problem")])
def test_a_clock_that_differs(off_s, level):
    finding = machine._compared("somebody", lambda: time.time() + off_s)
    assert finding.level == level
    assert ("NTP" in finding.remedy) == (level != "ok")


@pytest.mark.django_db
def test_the_clocks_of_the_servers_are_this_machines(root):
    for ask in (machine.clock_of_database, machine.clock_of_files):
        assert only(ask()).level == "ok"


@pytest.mark.django_db
def test_the_clock_of_nats_is_asked():
    bus.ensure_streams([STREAM])
    assert only(machine.clock_of_nats()).level == "ok"


def test_a_database_of_a_missing_version_is_told(root, monkeypatch):
    monkeypatch.setitem(settings.EMBEDDED, "database", True)
    (root / "database").mkdir()
    (root / "database" / "PG_VERSION").write_text("11\n")
    finding = next(version for version in machine.versions() if version.level == "problem")
    assert "of version 11" in finding.what
    assert "DATABASE_URL" in finding.remedy


# --- secrets and addresses -------------------------------------------------------------------------------------------
def test_a_secret_that_others_can_read(root):
    path = root / "secret-key"
    path.write_text("secret")
    path.chmod(0o600)
    assert only(secrecy.permissions()).level == "ok"
    path.chmod(0o640)
    finding = only(secrecy.permissions())
    assert finding.level == "problem"
    assert f"chmod 600 {path}" in finding.remedy


def test_an_open_run_folder(root):
    (root / "run").chmod(0o755)
    assert f"chmod 700 {root / 'run'}" in only(secrecy.permissions()).remedy


@pytest.mark.parametrize(
    ("host", "url", "proxies", "level"),
    [
        ("127.0.0.1", "http://127.0.0.1:30001", [], "ok"),
        ("localhost", "http://127.0.0.1:30001", [], "ok"),
        ("0.0.0.0", "http://ml.example.org", [], "problem"),
        ("0.0.0.0", "https://ml.example.org", [], "warning"),
        ("0.0.0.0", "https://ml.example.org", ["10.0.0.1/32"], "ok"),
    ],
)
def test_who_reaches_the_gateways(settings, host, url, proxies, level):
    settings.MLP_HOST, settings.GATEWAY_URL, settings.TRUSTED_PROXIES = host, url, proxies
    settings.INNER_PORTS = False
    finding = only(secrecy.addresses())
    assert (finding.level, bool(finding.remedy)) == (level, level != "ok")


def test_servers_on_ports_are_told(settings):
    settings.INNER_PORTS = True
    assert "MLP_INNER_PORTS" in next(iter(secrecy.addresses())).remedy


def test_e_mails_without_an_address_of_the_platform_are_told(settings):
    settings.EMAIL_HOST, settings.INNER_PORTS = "mail.example", False
    assert "MLP_URL" in next(iter(secrecy.addresses())).remedy
    settings.GATEWAY_URL_GIVEN = True
    assert only(secrecy.addresses()).level == "ok"


def test_certificates(root, settings, tmp_path):
    assert list(secrecy.certificates()) == []
    authority = Authority(tmp_path)
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    settings.TLS = settings.TLS._replace(cert=cert, key=key)
    for days, level in ((90, "ok"), (3, "warning")):
        authority.write(begins=-300 * DAY, ends=days * DAY)
        tls.install()
        assert only(secrecy.certificates()).level == level
    key.write_text("broken")
    finding = next(iter(secrecy.certificates()))
    assert (finding.level, "MLP_TLS_KEY" in finding.what) == ("problem", True)


# --- runs ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def confined(monkeypatch, settings):
    def confine(**values):
        runner = namedtuple("Runner", "confinement")(Confinement(**values))
        monkeypatch.setattr("runners.get", lambda: runner)

    settings.MLP_RUNNER = "local"
    return confine


def test_runs_that_are_not_isolated(confined):
    confined(isolation="none", why_not=("bwrap is not installed",))
    finding = only(isolation.isolation())
    assert (finding.level, "bwrap is not installed" in finding.remedy) == ("problem", True)
    confined(isolation="landlock", why_not=("bwrap is not installed",))
    assert [finding.level for finding in isolation.isolation()] == ["ok", "note"]


def test_open_ports_matter_to_runs_without_a_network_of_their_own(confined):
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_server(("", 0)) as everywhere:
        ours = {listener.getsockname()[1], everywhere.getsockname()[1]}
        assert ours <= isolation.listening()
        confined(isolation="bwrap", network="bwrap")
        assert only(isolation.loopback()).level == "ok"
        confined(isolation="bwrap", network="")
        finding = only(isolation.loopback())
    assert (finding.level, "MLP_RUN_NETWORK" in finding.remedy) == ("warning", True)
    assert not ours & isolation.listening()


# --- the state -------------------------------------------------------------------------------------------------------
def test_a_stopped_platform_and_a_half_restored_root(root):
    assert only(state.parts()).level == "note"
    (root / "restore.json").write_text("{}")
    assert [part.level for part in state.parts()] == ["problem", "note"]


def test_a_platform_that_holds_its_lock_and_does_not_answer(root, monkeypatch):
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        monkeypatch.setattr("supervision.health.plain_gateway", lambda: probe.getsockname())
        with roots.lock():
            finding = only(state.parts())
    assert finding.level == "problem"
    assert "does not answer" in finding.what


@pytest.mark.django_db
def test_migrations():
    assert only(state.migrations()).level == "ok"
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'jobs' AND name LIKE '0001%%'")
    assert only(state.migrations()).level == "warning"
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO django_migrations (app, name, applied) VALUES ('jobs', '9999_future', now())")
    assert only(state.migrations()).level == "problem"


@pytest.mark.django_db(transaction=True)
def test_books_that_do_not_add_up(default_tenant):
    assert only(state.resources()).level == "ok"
    Tenant.objects.filter(pk=default_tenant.pk).update(cpu_inuse=3)
    finding = next(iter(state.resources()))
    assert (finding.level, finding.remedy) == ("problem", "manage.py books --repair")
    assert "default" in finding.what


@pytest.mark.parametrize(("cpu", "level"), [(4, "ok"), (3, "warning")])
def test_tenants_with_more_than_the_machine_has(default_tenant, monkeypatch, cpu, level):
    monkeypatch.setattr(inventory, "measured", lambda: {"cpu": cpu, "gpu": 2})
    Tenant.objects.filter(pk=default_tenant.pk).update(cpu=1)
    Tenant.objects.create(name="research", cpu=3)
    finding = only(state.capacities())
    assert finding.level == level
    assert level == "ok" or "4 of 3 cpu" in finding.what


@pytest.mark.parametrize(("most", "level"), [(10, "note"), (64, "ok")])
def test_a_machine_with_more_than_one_run_may_request(monkeypatch, settings, most, level):
    monkeypatch.setattr(inventory, "measured", lambda: {"cpu": 64, "gpu": 2, "ram": 5000})
    settings.MAX_CPU = most
    finding = only(state.requests())
    assert finding.level == level
    assert level == "ok" or "MLP_MAX_CPU" in finding.remedy


@pytest.mark.parametrize(("age_s", "level"), [(0, "ok"), (100, "warning"), (1000, "problem")])
def test_reports_that_wait(monkeypatch, age_s, level):
    backlog = namedtuple("Backlog", "messages age_s size")(5, age_s, 10)
    monkeypatch.setattr("kernel.consuming.backlog", lambda *arguments: backlog)
    assert only(state.stream()).level == level


def test_a_bus_that_fails_is_a_finding_of_its_own(monkeypatch):
    def fails(*arguments):
        raise Fault("the message bus is not available")

    monkeypatch.setattr("kernel.consuming.backlog", fails)
    results = list(findings.run([Check("stream", state.stream)], ()))
    assert results[0].what.startswith("could not be checked")


@pytest.mark.parametrize(
    ("note", "level"),
    [
        (None, "warning"),
        (timedelta(hours=1), "ok"),
        (timedelta(hours=30), "warning"),
    ],
)
def test_old_backups(root, note, level):
    if note is not None:
        completed = (datetime.now(UTC) - note).isoformat()
        (root / "run" / "backup.json").write_text(json.dumps({"completed": completed, "bytes": 1}))
    assert only(state.backups()).level == level


@pytest.mark.django_db
def test_connections_and_tasks_of_the_tests_are_no_problem():
    assert [session.level for session in state.sessions()] == ["ok"]
    assert only(state.tasks()).level == "ok"


@pytest.mark.django_db
def test_a_run_without_an_owner(monkeypatch, root):
    folder = root / "run" / "runs" / "job-1-1"
    folder.mkdir(parents=True)
    runner = namedtuple("Runner", "names")(lambda: ["job-1-1"])
    monkeypatch.setattr("runners.get", lambda: runner)
    assert only(state.runs()).level == "ok"  # it may just have been started
    past = time.time() - 100
    os.utime(folder, (past, past))
    finding = only(state.runs())
    assert finding.level == "warning"
    assert "job-1-1" in finding.what


def test_every_check_is_documented():
    text = (Path(settings.BASE_DIR) / "docs" / "doctor.md").read_text()
    for check in CHECKS + THOROUGH:
        assert check.about in text


def test_named_types_of_gpus_that_are_not_here_are_noted(db, settings):
    assert list(state.gpu_types()) == []
    products.follow({"NVIDIA-L4": 2})
    assert only(state.gpu_types()).what == "jobs can name those of NVIDIA-L4 (2)"
    settings.GPU_TYPES = {"l4": ("NVIDIA-L4",), "a100": ("NVIDIA-A100-SXM4-80GB",)}
    finding = only(state.gpu_types())
    assert finding.level == "note"
    assert "no GPU here is of the types a100 of MLP_GPU_TYPES" in finding.what
