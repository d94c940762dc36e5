"""The client's verbs for the administrators of a tenant that approves rollouts, and for shadows."""

from __future__ import annotations

import pytest

from accounts.tenancy import members
from apps import canaries, lifecycle
from apps.models import Rollout, Shadow
from apps.tests.test_approvals import begun
from models_app.models import Model
from resources.models import Tenant

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def waiting(alice, bob) -> Rollout:
    """A rollout of Alice's application that waits for bob."""
    Tenant.objects.update(approves_rollouts=True)
    members.put(tenant="default", user="bob", role="admin", by="test")
    own = {"user": alice, "tenant": alice.tenant, "src": "x", "size": 1, "state": "ready"}
    _adder, other = (Model.objects.create(name=name, **own) for name in ("adder", "other"))
    app = lifecycle.create_app(user=alice, name="calc", model_name="adder", cpu=0.1, by="test")
    lifecycle.note_order(app.pk)
    lifecycle.up(app.pk, f"app-{app.pk}-1", "127.0.0.1:1", by="runner")
    app.refresh_from_db()
    app.other = other
    return begun(app)


def test_an_administrator_lists_and_approves(client_of, service, alice_data, bob_data, waiting):
    his, hers = (client_of(service.url, data.token) for data in (bob_data, alice_data))
    _heading, row = his.run("rollout", "ls").stdout.splitlines()
    assert row.split() == ["alice/calc", "default", "adder", "other", "0", "%", "100", "%"]
    assert "no rollout of alice/none waits" in his.refused("rollout", "approve", "alice/none", code=2)
    assert "is to 100 %" in his.refused("rollout", "approve", "alice/calc", "--percent", "10", code=2)
    assert hers.json("rollout", "ls") == []
    assert "administrators" in hers.refused("rollout", "ls", "--tenant", "default", code=4)
    assert "100 % of the requests of alice/calc are approved" in his.run("rollout", "approve", "alice/calc").stderr
    assert his.json("rollout", "ls") == []


@pytest.fixture
def calc(alice):
    """Alice's application, up, and her other model."""
    own = {"user": alice, "tenant": alice.tenant, "src": "x", "size": 1, "state": "ready"}
    for name in ("adder", "other"):
        Model.objects.create(name=name, **own)
    app = lifecycle.create_app(user=alice, name="calc", model_name="adder", cpu=0.1, by="test")
    lifecycle.note_order(app.pk)
    lifecycle.up(app.pk, f"app-{app.pk}-1", "127.0.0.1:1", by="runner")
    return app


@pytest.mark.long  # what the calls do: apps/shadows/tests/test_shadow_rules.py
def test_a_shadow_is_started_compared_and_promoted(client_of, service, alice_data, calc):
    hers = client_of(service.url, alice_data.token)
    assert "other is up" in hers.run("rollout", "shadow", "calc", "other", "--percent", "20", "--ignore", "at").stderr
    rollout = Rollout.objects.get()
    canaries.begin(rollout.pk, rollout.run_name, "127.0.0.1:2", alias="alias")
    Shadow.objects.update(equal=3, different=1, base_ms={"0": 4}, shadow_ms={"8": 4})
    shown = hers.run("rollout", "compared", "calc").stdout
    assert "adder > other: 20 %, running" in shown
    assert "compared 4, equal 3, different 1" in shown
    assert "other: p50 2.248 ms" in shown
    assert hers.json("rollout", "compared", "calc")["ignore"] == ["at"]
    assert "calc serves other" in hers.run("rollout", "promote", "calc").stderr
    assert "no shadow that is up" in hers.refused("rollout", "promote", "calc", code=4)
    hers.run("rollout", "end", "calc")
