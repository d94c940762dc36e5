"""What probes and operators see: the readiness of a process, the whole platform's health, an unusable root."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.test import Client

from kernel import broker
from kernel.environment import usable
from runners.tests.on_cluster import platform_on_cluster
from supervision import health

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(health, "KEEP_S", -1)


def test_a_process_is_ready_whatever_the_background_parts_do():
    """One stuck part must not take the whole gateway off."""
    answer = Client().get("/healthz/ready")
    assert (answer.status_code, answer.content) == (200, b"ok\n")
    assert Client().get("/healthz").status_code == 503  # no worker, no reconcile beside this test


def test_without_valkey_it_is_not_ready_and_says_so(monkeypatch):
    def away():
        raise ConnectionRefusedError

    monkeypatch.setattr(broker.broker().client, "ping", away)
    answer = Client().get("/healthz/ready")
    assert (answer.status_code, answer.content) == (503, b"valkey: does not answer (ConnectionRefusedError)\n")
    assert Client().get("/healthz/live").status_code == 200


def test_health_says_when_the_api_server_is_away(settings, tmp_path):
    with platform_on_cluster(settings, tmp_path) as cluster:
        assert health.report()["cluster"] == "ok"
        cluster.broken = True
        assert health.report()["cluster"].startswith("the cluster answered 503 ServiceUnavailable")
        cluster.broken = False
        assert health.report()["cluster"] == "ok"
    assert "cluster" not in health.report()


@pytest.mark.long
def test_runs_in_a_cluster_get_the_address_of_nats_there():
    code = "import django; django.setup(); from django.conf import settings; print(settings.RUN_NATS_URL)"
    given = {"MLP_HOST": "0.0.0.0", "MLP_RUNNER": "kubernetes", "MLP_RUN_URL": "http://mlp-platform.mlp.svc:30001"}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("MLP_", "NATS_"))}
    for more, expected in (
        ({}, "nats://mlp-platform.mlp.svc:30010"),
        ({"MLP_RUN_NATS_URL": "nats://x:1"}, "nats://x:1"),
    ):
        environment = kept | given | more | {"MLP_ROOT": os.environ["MLP_ROOT"]}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, cwd=settings.BASE_DIR, timeout=120
        )
        assert done.stdout.strip() == expected, done.stderr


def test_a_root_that_cannot_be_written_says_what_to_do(tmp_path, monkeypatch):
    volume = tmp_path / "volume"
    volume.mkdir(mode=0o755)
    usable(volume / "new")
    assert (volume / "new").is_dir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for another user than root
    with pytest.raises(ImproperlyConfigured) as problem:
        usable(volume)
    user, group = os.geteuid(), os.getegid()
    assert str(problem.value).endswith(
        f"{volume} belongs to user {user}, mode 755. As its owner or root run: chown {user}:{group} {volume}"
    )
