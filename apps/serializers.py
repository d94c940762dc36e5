"""The request and response bodies of the APP-manager (contract 6)."""

from __future__ import annotations

from rest_framework import serializers

from kernel.errors import Refused
from kernel.fields import NameField, StrictBool, StrictInt, StrictNumber, StrictSerializer, StrictString

from .models import Rollout, State


class AppIn(StrictSerializer):
    name = NameField()
    model_name = NameField(required=False)
    follows = StrictString(
        required=False, max_length=520, help_text="an alias such as models:/churn@champion, instead of model_name"
    )
    may_restart = StrictBool(
        required=False, help_text="when the alias moves and there is no room for two runs: restart instead of waiting"
    )
    tenant = NameField(required=False)
    gpu = StrictInt(required=False, min_value=0, max_value=16)
    cpu = StrictNumber(required=False, min_value=0.1, max_value=10)
    ram = StrictInt(required=False, min_value=100, max_value=10000, help_text="MiB")
    public = StrictBool(required=False, help_text="Public (no token required)")

    def validate(self, values: dict) -> dict:
        if not values.get("model_name") and not values.get("follows"):
            raise Refused("give a model, or an alias in follows", field="model_name")
        if values.get("model_name") and values.get("follows"):
            raise Refused("give either model_name or follows", field="follows")
        return values


class RolloutOut(serializers.Serializer):
    model_name = serializers.CharField(source="model.name")
    phase = serializers.ChoiceField(choices=Rollout.Phase.choices)
    reason = serializers.CharField(allow_blank=True)


class AppOut(serializers.Serializer):
    name = serializers.CharField()
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    gpu = serializers.IntegerField()
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    model_name = serializers.CharField(source="model.name")
    port = serializers.IntegerField()
    state = serializers.ChoiceField(choices=State.choices)
    public = serializers.BooleanField()
    reason = serializers.CharField(allow_blank=True)
    failures = serializers.IntegerField()
    created = serializers.DateTimeField()
    follows = serializers.CharField(allow_blank=True, help_text="the alias that it follows; empty without one")
    may_restart = serializers.BooleanField(
        help_text="whether it restarts, instead of waiting, when the alias moves and there is no room for two runs"
    )
    rollout = RolloutOut(default=None, allow_null=True, help_text="its move to another model, while there is one")
