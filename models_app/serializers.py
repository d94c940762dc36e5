"""The request and response bodies of the Model-manager."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from datasets.buckets import rows as buckets
from jobs.packages.fields import RequirementsField
from jobs.packages.named.serializers import EnvironmentField
from kernel.copying import parse
from kernel.errors import Refused
from kernel.fields import Invalid, NameField, StrictBool, StrictSerializer, StrictString, TitleField
from kernel.names import FILE_PART, name

from . import external
from .models import State

SOURCES = "jobs/{job}[/{path}], home/{path}, s3/{bucket}[/{path}], or models/{model}: a copy of an external model"

SOURCE = (
    rf"^((home/{FILE_PART}|jobs/[a-z]{{1,50}}|{buckets.KIND}:?/?/{buckets.NAME})(/{FILE_PART})*"
    rf"|{external.COPY}/[a-z]{{1,50}})$"
)


@extend_schema_field({"type": "string", "pattern": SOURCE, "maxLength": 500})
class SourceField(StrictString):
    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        try:
            value = buckets.spelled(value)
            _parse(value)
        except Refused as refused:
            raise Invalid(refused.problem)
        return value


def _parse(src: str) -> None:
    """Raise Refused for what is no source of a model."""
    if buckets.is_source(src):
        buckets.parse(src)
    elif external.is_copy(src):
        name(src.removeprefix(f"{external.COPY}/"), "src")
    else:
        parse(src)


class ModelIn(StrictSerializer):
    name = NameField()
    title = TitleField()
    src = SourceField(max_length=500, help_text=SOURCES)
    external = StrictBool(required=False, help_text="with an s3 source: the files stay in the bucket")
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
    external = serializers.BooleanField(help_text="whether its files stay in the bucket of its source")
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


class ModelFileOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="bytes")
    tag = serializers.CharField(allow_blank=True, help_text="its ETag when it was listed; empty where there is none")


class ModelBucketOut(serializers.Serializer):
    same = serializers.BooleanField(help_text="whether the bucket has exactly the objects that were listed")
    changed = serializers.ListField(child=serializers.CharField(), help_text="paths of other content or size")
    missing = serializers.ListField(
        child=serializers.CharField(), help_text="paths that are not in the bucket any more"
    )
    added = serializers.ListField(
        child=serializers.CharField(), help_text="paths that are not part of the model; shown to its owner only"
    )


class ModelAddressOut(serializers.Serializer):
    address = serializers.CharField(allow_blank=True, help_text="GET: the file; empty for a file without bytes")
    expires = serializers.IntegerField(help_text="seconds for which the address is good")
