"""The REST calls of webhooks on events of a user's registry."""

from __future__ import annotations

from kernel.effects import DESTROY, READ
from kernel.locking import Missing
from kernel.names import NAME as USER
from kernel.views import Call, ContractView
from models_app.models import RegistryDelivery, RegistryWebhook

from . import webhooks
from .webhook_serializers import DeliveryOut, WebhookEditIn, WebhookIn, WebhookOut, WebhookTestIn, WebhookTestOut

KEY = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"


class WebhookView(ContractView):
    """A call about the webhooks of one user, which nobody else sees."""

    kind = "webhook"
    segments = {"user": USER, "key": KEY, "delivery": KEY}

    def webhook(self, key: str) -> RegistryWebhook:
        """Return the owner's webhook. Raises Missing."""
        return webhooks.find(self.owner, key)


class WebhookList(WebhookView):
    calls = {
        "POST": Call("Add a webhook on events of the registry", body=WebhookIn, out=WebhookOut, status=201),
        "GET": Call("List the user's webhooks of the registry, newest first", READ, out=WebhookOut, many=True),
    }

    def post(self, request, user):
        return self.answer(webhooks.save(self.owner, **self.body()))

    def get(self, request, user):
        return self.page(RegistryWebhook.objects.filter(user=self.owner))


class WebhookDetail(WebhookView):
    calls = {
        "GET": Call("Get a webhook, without its secret", READ, out=WebhookOut),
        "PUT": Call(
            "Change the fields that are given; active pauses and resumes it", body=WebhookEditIn, out=WebhookOut
        ),
        "DELETE": Call("Delete a webhook and what was still to be sent to it", DESTROY),
    }

    def get(self, request, user, key):
        return self.answer(self.webhook(key))

    def put(self, request, user, key):
        return self.answer(webhooks.save(self.owner, self.webhook(key), **self.body()))

    def delete(self, request, user, key):
        webhooks.delete(self.webhook(key))
        return self.answer()


class WebhookTest(WebhookView):
    """Takes up to ten seconds. A paused webhook can be tested, too."""

    calls = {"POST": Call("Send an example of an event at once", body=WebhookTestIn, out=WebhookTestOut)}

    def post(self, request, user, key):
        return self.answer(webhooks.try_out(self.webhook(key), self.body().get("event", "")))


class DeliveryList(WebhookView):
    """Those of the last seven days."""

    calls = {"GET": Call("List what was sent to a webhook, newest first", READ, out=DeliveryOut, many=True)}

    def get(self, request, user, key):
        return self.page(RegistryDelivery.objects.filter(webhook=self.webhook(key)))


class DeliveryAgain(WebhookView):
    calls = {"PUT": Call("Send a delivery again, with the same id", out=DeliveryOut)}

    def put(self, request, user, key, delivery):
        row = webhooks.find_delivery(self.webhook(key), delivery)
        if row is None:
            raise Missing("delivery")
        webhooks.again(row)
        row.refresh_from_db()
        return self.answer(row)
