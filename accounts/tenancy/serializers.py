"""The bodies of the REST calls for members of tenants."""

from __future__ import annotations

from rest_framework import serializers

from accounts.models import Role
from kernel.fields import StrictChoice, StrictSerializer


class MemberIn(StrictSerializer):
    role = StrictChoice(choices=Role.values, help_text="`viewer` looks, `member` submits, `admin` manages the tenant")


class MemberOut(serializers.Serializer):
    tenant = serializers.CharField(source="tenant.name")
    user = serializers.CharField(source="user.username")
    role = serializers.ChoiceField(choices=Role.choices)
    default = serializers.SerializerMethodField(help_text="whether what the user submits belongs to it by default")
    by_groups = serializers.BooleanField(
        help_text="given by the groups of the user's sign-in, and taken back with them"
    )
    created = serializers.DateTimeField()

    def get_default(self, row) -> bool:
        return row.user.tenant_id == row.tenant_id
