"""Webhooks of the registry by REST and page: secrets are encrypted; they are tested, paused, changed and deleted."""

from __future__ import annotations

import importlib

import pytest
from django.apps import apps as django_apps
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from kernel import sealing
from mlp.tests.page_world import visitor
from mlp.tests.tiers import few
from models_app import reconcile
from models_app.models import RegistryDelivery, RegistryWebhook
from models_app.models.webhook import PURPOSE
from models_app.registry import registered

from .receiver import Receiver

pytestmark = pytest.mark.django_db(transaction=True)

BASE = "users/alice/registry-webhooks"
ALIAS = "model_version_alias.created"
SECRET = "correct horse"


@pytest.fixture
def call(as_alice, tasks, default_tenant):
    def call(method: str, path: str = "", body: dict | None = None, status: int = 200):
        response = as_alice.call(method, BASE + path, body)
        assert response.status_code == status, response.content
        return response.json()

    return call


@pytest.fixture
def hook(call, receiver) -> dict:
    body = {"name": "deploy", "url": receiver, "events": [ALIAS, "registered_model.created"], "secret": SECRET}
    return call("post", body=body, status=201)


def stored() -> str:
    """Return the column as it is in the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT secret FROM registry_webhook")
        return cursor.fetchone()[0]


def test_a_secret_is_encrypted_and_never_shown(call, hook, alice):
    assert (hook["signing"], hook["active"]) == ("set", True)
    assert stored().startswith(sealing.PREFIX)
    page = visitor(alice).get("/webhooks").content.decode()
    for text in (stored(), str(call("get")), str(call("get", f"/{hook['id']}")), page):
        assert SECRET not in text
    assert stored() not in page
    assert call("post", f"/{hook['id']}/test", {}) == {"success": True, "status": 200, "body": "thanks", "problem": ""}
    (headers, body) = Receiver.got[0]
    assert Receiver.signed(headers, body, SECRET)
    assert call("put", f"/{hook['id']}", {"secret": ""})["signing"] == "none"
    call("post", f"/{hook['id']}/test", {"event": "model_version_tag.set"})
    headers, body = Receiver.got[1]
    assert "X-MLflow-Signature" not in headers
    assert Receiver.data(body) == {
        "name": "example_model", "version": "1", "key": "example_key", "value": "example_value",
    }  # fmt: skip


def test_secrets_of_an_earlier_release_are_encrypted_by_the_migration(call, hook):
    RegistryWebhook.objects.update(secret=SECRET)
    migration = importlib.import_module("models_app.migrations.0006_sealed_webhooks")
    for _again in range(2):
        migration.seal(django_apps, None)
        assert SECRET not in stored()
        call("post", f"/{hook['id']}/test", {})
        assert Receiver.signed(*Receiver.got[-1], SECRET)
    migration.unseal(django_apps, None)
    assert stored() == SECRET


def test_another_key_is_said_and_nothing_else_breaks(call, hook, alice, tasks):
    with override_settings(SECRET_KEY="another"):
        RegistryWebhook.objects.update(secret=sealing.seal(SECRET, PURPOSE))
    assert call("get", f"/{hook['id']}")["signing"] == "unreadable"
    result = call("post", f"/{hook['id']}/test", {})
    assert "MLP_SECRET_KEY has changed" in result["problem"]
    registered.create(alice, name="churn", by="alice")
    tasks.run()
    (sent,) = call("get", f"/{hook['id']}/deliveries")
    assert (sent["state"], sent["attempts"]) == ("sending", 1)
    assert sent["problem"] == "secret: cannot be decrypted, because MLP_SECRET_KEY has changed; set it again"
    assert Receiver.got == []
    browser = visitor(alice)
    assert "cannot be decrypted" in browser.get("/webhooks").content.decode()
    assert call("put", f"/{hook['id']}", {"secret": "new"})["signing"] == "set"
    call("put", f"/{hook['id']}/deliveries/{sent['id']}")
    tasks.run()
    (sent,) = call("get", f"/{hook['id']}/deliveries")
    assert (sent["state"], sent["problem"]) == ("delivered", "")
    assert Receiver.signed(*Receiver.got[0], "new")


def test_a_webhook_is_paused_resumed_and_deleted_on_its_page(receiver, alice, tasks, default_tenant):
    browser = visitor(alice)
    fields = {"name": "deploy", "url": receiver, "events": ["registered_model.created"], "secret": SECRET}
    refused = browser.post("/webhooks", {**fields, "url": "ftp://x", "events": []})
    assert refused.status_code == 403
    assert "http:// or https://" in refused.content.decode()
    assert browser.post("/webhooks", fields).status_code == 302
    hook = RegistryWebhook.objects.get()

    def do(what: str, **more) -> None:
        assert browser.post(f"/webhooks/{hook.key}/change", {"do": what, **more}).status_code == 302

    Receiver.answers = [503]
    registered.create(alice, name="churn", by="alice")
    tasks.run()
    do("pause")
    registered.create(alice, name="quiet", by="alice")
    RegistryDelivery.objects.update(not_before=timezone.now())
    reconcile.run()
    tasks.run()
    assert [delivery.problem for delivery in RegistryDelivery.objects.all()] == ["the webhook is paused"]
    assert "the webhook is paused" in browser.get("/webhooks").content.decode()
    do("resume")
    tasks.run()
    assert [delivery.state for delivery in RegistryDelivery.objects.all()] == ["delivered"]
    assert len(Receiver.got) == 2
    do("edit", name="notify", url=receiver, events=["model_version.created"])
    do("test")
    assert "answered 200. thanks" in browser.get("/webhooks").content.decode()
    hook.refresh_from_db()
    assert (hook.name, hook.events, hook.signing) == ("notify", ["model_version.created"], "set")
    assert browser.post(f"/webhooks/{hook.key}/change", {"do": "explode"}).status_code == 404
    do("delete")
    assert not RegistryWebhook.objects.exists()


@pytest.mark.parametrize(
    ("change", "problem"),
    few(
        [
            ({"events": []}, "events: must be one or more of"),
            ({"events": ["model_version.exceeded"]}, "events"),
            ({"url": "http://localhost:25/"}, "url: the port must be"),
            ({"secret": "x" * 501}, "secret"),
            ({"name": " "}, "name: must not be empty"),
            ({}, "body: give at least one field"),
        ],
        2,
    ),
)
def test_what_a_webhook_cannot_be(call, hook, as_alice, as_bob, change, problem):
    assert problem in as_alice.refused("put", f"{BASE}/{hook['id']}", change)
    for method, path in (("get", ""), ("get", f"/{hook['id']}"), ("post", f"/{hook['id']}/test")):
        body = {} if method == "post" else None
        assert as_bob.call(method, BASE + path, body).status_code == 403
