"""The default tenant follows the size of the cluster on which runs are (MLP_RUNNER=kubernetes)."""

from __future__ import annotations

import pytest

from resources import reconcile
from resources.models import Tenant
from runners.tests.on_cluster import platform_on_cluster
from runners.tests.test_kubernetes_check import node

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster(default_tenant, settings, tmp_path, monkeypatch):
    monkeypatch.setattr(reconcile, "SAMPLE_EVERY_S", 0)
    with platform_on_cluster(settings, tmp_path) as fake:
        yield fake


def capacity() -> tuple:
    reconcile.run()
    tenant = Tenant.objects.get(name="default")
    return float(tenant.cpu), tenant.ram, tenant.gpu


def test_nodes_that_come_and_go_change_the_capacity(cluster):
    cluster.store.create("nodes", node("a", "8", "16Gi", "2"))
    assert capacity() == (8, 16 << 10, 2)
    cluster.store.create("nodes", node("b", "4", "8Gi"))
    assert capacity() == (12, 24 << 10, 2)
    cluster.store.remove("nodes", "a")
    assert capacity() == (4, 8 << 10, 0)


def test_the_last_capacity_stays_while_the_cluster_is_away(cluster):
    cluster.store.create("nodes", node("a", "8", "16Gi"))
    assert capacity() == (8, 16 << 10, 0)
    cluster.broken = True
    assert capacity() == (8, 16 << 10, 0)
    cluster.broken = False


def test_what_an_administrator_has_set_stays(cluster):
    cluster.store.create("nodes", node("a", "8", "16Gi"))
    Tenant.objects.filter(name="default").update(source=Tenant.Source.SET, cpu=3)
    assert capacity()[0] == 3


def test_what_is_in_use_stays_when_nodes_are_gone(cluster):
    cluster.store.create("nodes", node("a", "8", "16Gi"))
    Tenant.objects.filter(name="default").update(cpu=8, cpu_inuse=6)
    cluster.store.remove("nodes", "a")
    assert capacity()[0] == 6
