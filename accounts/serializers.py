"""Request and response bodies of the User-manager's REST calls."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.fields import NameField, StrictInt, StrictSerializer, StrictString
from kernel.registering import RegistryIn, RegistryOut

from .models import Scope, State


@extend_schema_field({"type": "string", "pattern": r"^[\s\S]{8,128}$", "format": "password"})
class PasswordField(StrictString):
    """A password; its length and strength are checked where it is set (accounts.lifecycle)."""

    def run_validation(self, data=serializers.empty):
        # Without CharField's own refusal of an empty text: it is refused for its length.
        return super(serializers.CharField, self).run_validation(data)


class UserIn(StrictSerializer):
    username = NameField()
    password = PasswordField(write_only=True, help_text="8 to 128 characters; the platform may require more than 8")


class UserOut(serializers.Serializer):
    username = serializers.CharField()
    state = serializers.ChoiceField(choices=State.choices)
    is_staff = serializers.BooleanField()
    created = serializers.DateTimeField()


class TokenIn(RegistryIn):
    name = StrictString(help_text="1 to 50 letters, digits and . _ -")
    scope = serializers.ChoiceField(choices=Scope.choices, default=Scope.FULL)
    target = StrictString(required=False, default="", allow_blank=True,
                          help_text="the dataset's or application's name, for these two scopes")  # fmt: skip
    days = StrictInt(required=False, allow_null=True, default=None, help_text="when it ends; never by default")


class TokenOut(RegistryOut):
    name = serializers.CharField()
    scope = serializers.ChoiceField(choices=Scope.choices)
    target = serializers.CharField(allow_blank=True)
    created = serializers.DateTimeField()
    expires = serializers.DateTimeField(allow_null=True)
    used = serializers.DateTimeField(allow_null=True)
    address = serializers.IPAddressField(allow_null=True)


class ProgramLoginIn(StrictSerializer):
    program = StrictString(help_text="what the user is shown, such as mlp-laptop: letters, digits and . _ -")


class ProgramLoginOut(serializers.Serializer):
    code = serializers.CharField(source="shown_code", help_text="what the user types on the page")
    secret = serializers.CharField(help_text="the token is fetched with it")
    url = serializers.CharField(help_text="the page")
    expires_s = serializers.IntegerField()
    poll_s = serializers.IntegerField(help_text="seconds between two requests for the token")


class ProgramTokenIn(StrictSerializer):
    secret = StrictString()


class ProgramTokenOut(serializers.Serializer):
    state = serializers.ChoiceField(choices=["waiting", "allowed", "denied"])
    user = serializers.CharField(allow_blank=True)
    token = serializers.CharField(allow_blank=True, help_text="once it is allowed")


class ServiceAccountIn(StrictSerializer):
    name = NameField()


class ServiceAccountOut(serializers.Serializer):
    name = serializers.CharField(source="username")
    state = serializers.CharField(help_text="Actived or NotActive")
    created = serializers.DateTimeField()


class TokenMade(TokenOut):
    token = serializers.CharField(help_text="shown this once")
