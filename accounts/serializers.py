"""Request and response bodies of the User-manager's REST calls (contract 2)."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import NameField, StrictSerializer, StrictString

from .models import State


class UserIn(StrictSerializer):
    username = NameField()
    password = StrictString(write_only=True, allow_blank=True, help_text="8 to 128 characters")


class UserOut(serializers.Serializer):
    username = serializers.CharField()
    state = serializers.ChoiceField(choices=State.choices)
    is_staff = serializers.BooleanField()
    created = serializers.DateTimeField()
