"""Applications created and deleted concurrently: no port is shared and all resources are released."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from apps import launching, lifecycle, reconcile
from apps.models import Application
from kernel import storage
from resources import tcc
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


def test_ports_are_unique_and_everything_is_released(adder, tasks, monkeypatch):
    monkeypatch.setattr("apps.ports.PORTS", range(31000, 31020))  # so few that all meet at the same ones

    def create(number: int) -> None:
        try:
            name = "app" + "abcdefghijklmnopqrst"[number]
            lifecycle.create_app(user=adder.user, name=name, model_name="adder", cpu=0.1, ram=100, by="test")
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(create, range(16)))
    ports = list(Application.objects.values_list("port", flat=True))
    assert len(ports) == len(set(ports)) == 16
    tasks.queue.clear()

    def delete(pk: int) -> None:
        try:
            lifecycle.fail(pk, "ended by the test", by="test")
            name = Application.objects.get(pk=pk).name
            lifecycle.delete_app(user=adder.user, name=name, by="test")
            launching.erase(pk)
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(delete, Application.objects.values_list("pk", flat=True)))
    assert not Application.objects.exists()
    tenant = Tenant.objects.get(name="default")
    assert set(tcc.allocated(tenant).values()) == {0}
    assert (float(tenant.cpu_inuse), tenant.ram_inuse) == (0, 0)


def test_a_slow_start_has_one_check_in_the_queue(as_alice, deploy, tasks):
    """Each reconcile round enqueues a check too; if each of them had a successor, their number would grow."""
    (storage.model_dir("alice", "adder") / "predictor.py").write_text("import time\ntime.sleep(600)")
    app = deploy()
    assert tasks.waiting_after(reconcile.run) == [1] * 6
    lifecycle.fail(app.pk, "ended by the test", by="test")
    as_alice.call("delete", "users/alice/apps/calc")
    sizes = []
    while not sizes or tasks.queue:
        sizes += tasks.waiting_after(reconcile.run, 1)
    assert max(sizes) <= 3  # the worker's last look, its erase, and what reconcile sends each round
    assert not Application.objects.exists()
