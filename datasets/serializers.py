"""What the data manager's REST calls accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel import notes
from kernel.errors import Refused
from kernel.fields import (
    DatasetNameField,
    NameField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictSerializer,
    StrictString,
    TitleField,
)

from .models import Bucket, State
from .uses import KINDS

BIG = 2**63 - 1


class DatasetIn(StrictSerializer):
    name = DatasetNameField()
    title = TitleField()
    size = StrictInt(
        min_value=0,
        max_value=BIG,
        required=False,
        help_text="total size of all files in bytes, which are uploaded next",
    )
    src = StrictString(
        required=False,
        max_length=500,
        help_text="in place of a size, what is copied: jobs/{job}[/{path}], home/{path} or s3/{bucket}[/{path}]",
    )
    external = StrictBool(required=False, help_text="leave the files in the bucket of the source: only list them")
    user = NameField(required=False, help_text="if given, must be the user in the path")
    tenant = NameField(required=False)

    def to_internal_value(self, data):
        self.fields["size"].required = not (isinstance(data, dict) and "src" in data)
        fields = super().to_internal_value(data)
        if "src" in fields and "size" in fields:
            raise Refused("give either a size or a source", field="src")
        if "src" not in fields and fields.pop("external", False):
            raise Refused("needs a source (s3/{bucket}[/{path}])", field="external")
        return fields


class DatasetHeartbeatIn(StrictSerializer):
    state = StrictChoice(choices=["creating", "ready", "error"])
    progress = StrictInt(min_value=0, max_value=100)


class DatasetVersionIn(StrictSerializer):
    source = DatasetNameField(help_text="a ready dataset whose files become the next version; it is gone then")
    notes = StrictString(required=False, allow_blank=True, max_length=notes.MAX, help_text="Markdown")


class DatasetVersionOut(serializers.Serializer):
    number = serializers.IntegerField()
    current = serializers.SerializerMethodField()
    sha256 = serializers.CharField(
        allow_blank=True, help_text="of its files' paths, sizes and checksums; empty until computed"
    )
    files = serializers.IntegerField(allow_null=True, help_text="number of files; null until computed")
    size = serializers.IntegerField(help_text="bytes")
    notes = serializers.CharField(allow_blank=True, help_text="Markdown")
    by = serializers.CharField()
    created = serializers.DateTimeField()

    def get_current(self, version) -> bool:
        return version.number == version.dataset.version


class DatasetOut(serializers.Serializer):
    name = serializers.CharField()
    title = serializers.CharField(allow_blank=True, help_text="what pages call it; empty for its name")
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    size = serializers.IntegerField()
    src = serializers.CharField(allow_blank=True, help_text="what its files were copied from; empty for an upload")
    state = serializers.ChoiceField(choices=State.choices)
    progress = serializers.IntegerField()
    stored = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)
    notes = serializers.CharField(allow_blank=True, help_text="Markdown")
    version = serializers.IntegerField(help_text="number of the current version")
    external = serializers.BooleanField(help_text="whether its files stay in the bucket of its source")
    refreshed = serializers.DateTimeField(allow_null=True, help_text="when that bucket was listed")
    refreshing = serializers.SerializerMethodField(help_text="whether it is being listed again")
    created = serializers.DateTimeField()
    trashed = serializers.DateTimeField(allow_null=True, help_text="since when it is in the trash")

    def get_refreshing(self, dataset) -> bool:
        return dataset.refresh_asked is not None


class DatasetFileOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="bytes")
    tag = serializers.CharField(allow_blank=True, help_text="its ETag when it was listed; empty where there is none")


class UseOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=list(KINDS))
    user = serializers.CharField()
    name = serializers.CharField()
    state = serializers.CharField(allow_blank=True, help_text="empty for what has no life cycle")
    created = serializers.DateTimeField()


class BucketOut(serializers.Serializer):
    name = serializers.CharField(help_text="as a source: s3/{name}[/{path}]")
    endpoint = serializers.CharField(allow_blank=True, help_text="address of its server; empty for AWS")
    bucket = serializers.CharField()
    prefix = serializers.CharField(allow_blank=True, help_text="folder that paths are below")
    region = serializers.CharField()
    access = serializers.ChoiceField(
        choices=Bucket.Access.choices, help_text="what you may do with it: read, or write, which is read and write"
    )
