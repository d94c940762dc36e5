"""The bodies of the REST calls for shares."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from accounts.models import Share
from kernel.fields import NameField, PatternField, StrictChoice, StrictSerializer, StrictString

from . import access, grants
from .kinds import KINDS

SHARED_KINDS = ("job", "project", "comparison", "dataset", "model", "application", "registeredmodel")


class EndField(PatternField):
    """The end of a share, as text; empty is the default."""

    pattern = grants.MOMENT

    @staticmethod
    def check(value: str, field: str) -> str:
        grants.moment(value)
        return value


class ShareIn(StrictSerializer):
    kind = StrictChoice(choices=SHARED_KINDS)
    name = StrictString(max_length=500, help_text="of the object, which must be the user's own")
    audience = StrictChoice(choices=Share.Audience.values)
    user = NameField(required=False, help_text="the username, if `audience` is `user`")
    tenant = NameField(required=False, help_text="if `audience` is `tenant`; default: the object's, else the user's")
    right = StrictChoice(choices=Share.Right.values, required=False, help_text="`read` by default")
    expires = EndField(
        required=False, max_length=40, help_text="a date, or a time with its zone; a link ends after 7 days by default"
    )


class ShareOut(serializers.Serializer):
    id = serializers.IntegerField()
    owner = serializers.CharField(source="owner.username")
    kind = serializers.ChoiceField(choices=SHARED_KINDS)
    name = serializers.CharField()
    address = serializers.SerializerMethodField(help_text="of the object's page, below the platform's address")
    audience = serializers.ChoiceField(choices=Share.Audience.values)
    shared_with = serializers.SerializerMethodField(help_text="the user or tenant; `link` for a link")
    right = serializers.ChoiceField(choices=Share.Right.values)
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField(allow_null=True)
    used = serializers.DateTimeField(allow_null=True)

    @extend_schema_field({"type": "string"})
    def get_address(self, share: Share) -> str:
        return access.address_of(share.owner.username, KINDS[share.kind].page, share.name)

    @extend_schema_field({"type": "string"})
    def get_shared_with(self, share: Share) -> str:
        return grants.whom(share)


class NewShareOut(ShareOut):
    link = serializers.CharField(allow_blank=True, help_text="of a link: its address, which is returned only once")
