"""The request and response bodies of the Model-manager."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from datasets.buckets import rows as buckets
from jobs.packages.fields import RequirementsField
from jobs.packages.named.serializers import EnvironmentField
from kernel.copying import parse
from kernel.errors import Refused
from kernel.fields import Invalid, NameField, StrictSerializer, StrictString, TitleField
from kernel.names import FILE_PART

from .models import State

SOURCE = rf"^(home/{FILE_PART}|jobs/[a-z]{{1,50}}|{buckets.KIND}:?/?/{buckets.NAME})(/{FILE_PART})*$"


@extend_schema_field({"type": "string", "pattern": SOURCE, "maxLength": 500})
class SourceField(StrictString):
    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        try:
            value = buckets.spelled(value)
            (buckets.parse if buckets.is_source(value) else parse)(value)
        except Refused as refused:
            raise Invalid(refused.problem)
        return value


class ModelIn(StrictSerializer):
    name = NameField()
    title = TitleField()
    src = SourceField(max_length=500, help_text="jobs/{job}[/{path}], home/{path} or s3/{bucket}[/{path}]")
    tenant = NameField(required=False)
    requirements = RequirementsField(
        "packages to load it with, as in a requirements file; without any those of its job, or of the requirements.txt "
        "beside it"
    )
    environment = EnvironmentField(
        help_text="a named environment of the tenant to load it with, torch-cpu@3 or torch-cpu, in place of packages"
    )


class ModelOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    size = serializers.IntegerField()
    src = serializers.CharField()
    state = serializers.ChoiceField(choices=State.choices)
    reason = serializers.CharField(allow_blank=True)
    format = serializers.CharField(allow_blank=True)
    signature = serializers.JSONField()
    checksums = serializers.JSONField(help_text="size and sha256 by path")
    lineage = serializers.JSONField()
    requirements = serializers.CharField(
        source="shown_requirements",
        allow_blank=True,
        help_text="packages that it is loaded with, beside those that the platform has",
    )
    environment = serializers.CharField(allow_blank=True, help_text="the named environment that it is loaded with")
    notes = serializers.CharField(allow_blank=True, help_text="Markdown")
    created = serializers.DateTimeField()
    trashed = serializers.DateTimeField(allow_null=True, help_text="since when it is in the trash")
