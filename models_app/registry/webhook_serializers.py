"""The request and response bodies of the REST calls about webhooks of the registry."""

from __future__ import annotations

from rest_framework import serializers

from jobs.serializers import StrictList
from kernel.errors import Refused
from kernel.fields import StrictBool, StrictChoice, StrictSerializer, StrictString

from . import checks, events, webhooks

SIGNING = ("none", "set", "unreadable")
STATES = ("sending", "delivered", "failed")


def _events(**more):
    return StrictList(child=StrictChoice(choices=events.EVENTS), max_length=len(events.EVENTS), **more)


def _secret():
    return StrictString(
        required=False, allow_blank=True, max_length=webhooks.MAX_SECRET, write_only=True,
        help_text="signs what is sent; it is stored encrypted and never returned; empty: not signed",
    )  # fmt: skip


class WebhookIn(StrictSerializer):
    name = StrictString(max_length=256)
    url = StrictString(max_length=500, help_text="a public address that begins with http:// or https://")
    events = _events()
    secret = _secret()
    description = StrictString(required=False, allow_blank=True, max_length=checks.MAX_DESCRIPTION)
    active = StrictBool(required=False, help_text="false: paused, nothing is sent")


class WebhookEditIn(StrictSerializer):
    name = StrictString(required=False, max_length=256)
    url = StrictString(required=False, max_length=500)
    events = _events(required=False)
    secret = _secret()
    description = StrictString(required=False, allow_blank=True, max_length=checks.MAX_DESCRIPTION)
    active = StrictBool(required=False, help_text="false: paused, nothing is sent")

    def validate(self, values: dict) -> dict:
        if not values:
            raise Refused("give at least one field", field="body")
        return values


class WebhookOut(serializers.Serializer):
    id = serializers.UUIDField(source="key")
    name = serializers.CharField()
    description = serializers.CharField(allow_blank=True)
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.ChoiceField(choices=events.EVENTS))
    active = serializers.BooleanField()
    signing = serializers.ChoiceField(
        choices=SIGNING, help_text="set: deliveries are signed; unreadable: MLP_SECRET_KEY has changed, set it again"
    )
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()


class WebhookTestIn(StrictSerializer):
    event = StrictChoice(choices=events.EVENTS, required=False, help_text="default: the first of the webhook's events")


class WebhookTestOut(serializers.Serializer):
    success = serializers.BooleanField(help_text="whether the answer was 2xx")
    status = serializers.IntegerField(allow_null=True, help_text="of the answer; null without one")
    body = serializers.CharField(allow_blank=True, help_text="the beginning of the answer")
    problem = serializers.CharField(allow_blank=True, help_text="why there was no answer")


class DeliveryOut(serializers.Serializer):
    id = serializers.UUIDField(source="key", help_text="X-MLflow-Delivery-Id of every attempt")
    event = serializers.CharField()
    data = serializers.JSONField()
    state = serializers.ChoiceField(choices=STATES)
    attempts = serializers.IntegerField()
    not_before = serializers.DateTimeField(help_text="of the next attempt, while it is being sent")
    problem = serializers.CharField(allow_blank=True)
    created = serializers.DateTimeField()
