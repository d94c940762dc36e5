"""The request and response bodies of the registry's REST calls."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.errors import Refused
from kernel.fields import Invalid, StrictBool, StrictChoice, StrictSerializer, StrictString, TitleField
from models_app.models import ModelVersion, Stage, Status

from . import checks

NAME = r"^(?!\.{1,2}$)[^/:\x00-\x1f\x7f]{1,256}$"


@extend_schema_field({"type": "string", "pattern": NAME, "maxLength": 256})
class RegisteredField(StrictString):
    """The name of a registered model: a line without / and :."""

    def to_internal_value(self, data):
        try:
            return checks.name(super().to_internal_value(data))
        except Refused as refused:
            raise Invalid(refused.problem)


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class RegistryTagsField(serializers.Field):
    """Tags as one object of strings."""

    def to_internal_value(self, data):
        try:
            return checks.tags(data)
        except Refused as refused:
            raise Invalid(refused.problem)

    def to_representation(self, value):
        return value


def _description():
    return StrictString(required=False, allow_blank=True, max_length=checks.MAX_DESCRIPTION, help_text="Markdown")


class RegisteredIn(StrictSerializer):
    name = RegisteredField()
    title = TitleField()
    description = _description()
    tags = RegistryTagsField(required=False)


class RegisteredEditIn(StrictSerializer):
    name = RegisteredField(required=False)
    title = TitleField()
    description = _description()
    tags = RegistryTagsField(required=False)


class VersionIn(StrictSerializer):
    source = StrictString(
        max_length=2000, help_text="jobs/{job}/{path}, home/{path}, models/{model}, or an MLflow URI such as runs:/…"
    )
    description = _description()
    tags = RegistryTagsField(required=False)


class VersionEditIn(StrictSerializer):
    description = _description()
    tags = RegistryTagsField(required=False)
    stage = StrictChoice(choices=Stage.values, required=False)
    archive = StrictBool(required=False, help_text="move the other versions of that stage to Archived")


class AliasIn(StrictSerializer):
    version = serializers.IntegerField(min_value=1, max_value=2**31 - 1)


class ModelVersionOut(serializers.Serializer):
    name = serializers.CharField(source="registered.name", help_text="of the registered model")
    version = serializers.IntegerField(source="number")
    source = serializers.CharField(allow_blank=True)
    job = serializers.CharField(source="job.name", default=None, allow_null=True, help_text="the run that made it")
    run_id = serializers.CharField(allow_blank=True)
    model = serializers.CharField(
        source="model.name", default=None, allow_null=True, help_text="the model with its files; null: files elsewhere"
    )
    stage = serializers.ChoiceField(choices=Stage.choices)
    status = serializers.ChoiceField(choices=Status.choices)
    reason = serializers.CharField(source="status_message", allow_blank=True)
    description = serializers.CharField(allow_blank=True, help_text="Markdown")
    tags = RegistryTagsField()
    aliases = serializers.SerializerMethodField()
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()

    @extend_schema_field({"type": "array", "items": {"type": "string"}})
    def get_aliases(self, version: ModelVersion) -> list[str]:
        return sorted(alias.name for alias in version.aliases.all())


class RegisteredOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    description = serializers.CharField(allow_blank=True, help_text="Markdown")
    tags = RegistryTagsField()
    aliases = serializers.SerializerMethodField(help_text="the version of each alias")
    latest = serializers.IntegerField(source="newest", allow_null=True, help_text="number of the newest version")
    created = serializers.DateTimeField()
    updated = serializers.DateTimeField()

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "integer"}})
    def get_aliases(self, row) -> dict[str, int]:
        return {alias.name: alias.version.number for alias in row.aliases.all()}
