"""The request and response bodies of the APP-manager (contract 6)."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import NameField, StrictBool, StrictInt, StrictNumber, StrictSerializer

from .models import State


class AppIn(StrictSerializer):
    name = NameField()
    model_name = NameField()
    tenant = NameField(required=False)
    gpu = StrictInt(required=False, min_value=0, max_value=16)
    cpu = StrictNumber(required=False, min_value=0.1, max_value=10)
    ram = StrictInt(required=False, min_value=100, max_value=10000, help_text="MiB")
    public = StrictBool(required=False, help_text="Public (no token required)")


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
