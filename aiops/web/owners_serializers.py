"""Bodies and answers of the calls for feedback, templates and watched workloads below /api/v1/aiops."""

from __future__ import annotations

from rest_framework import serializers

from aiops.judging import log_search
from aiops.wire.watchlist import MAX_NAME
from kernel.fields import Invalid, StrictChoice, StrictInt, StrictSerializer, StrictString

INT64 = 2**63 - 1


class FeedbackIn(StrictSerializer):
    """The verdict on a line's text, or on those of the newest lines of a template."""

    id = StrictString(required=False, max_length=100, help_text="of a line (`_id`)")
    template = StrictInt(required=False, min_value=0, max_value=10**15, help_text="a template's number")
    level = StrictChoice(choices=log_search.LEVELS)

    def validate(self, attrs):
        if ("id" in attrs) == ("template" in attrs):
            raise Invalid("must be either a line or a template", field="id")
        return attrs


class FeedbackOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    namespace = serializers.CharField(allow_blank=True, help_text="whose lines it is for; empty: all lines")
    masked_log = serializers.CharField(source="masked", allow_blank=True)
    log = serializers.CharField(source="sample", allow_blank=True)
    level = serializers.CharField()
    by = serializers.SerializerMethodField()
    at = serializers.DateTimeField()

    def get_by(self, row) -> str:
        return row.by.username if row.by_id else ""


class TemplateOut(serializers.Serializer):
    template_cluster_id = serializers.IntegerField()
    template_matched = serializers.CharField(allow_blank=True)
    lines = serializers.IntegerField()
    anomalies = serializers.IntegerField()
    first = serializers.IntegerField(help_text="ms since 1970")
    last = serializers.IntegerField(help_text="ms since 1970")
    log = serializers.CharField(allow_blank=True, help_text="the newest line")
    workloads = serializers.ListField(
        child=serializers.CharField(), help_text="cluster/namespace/deployment of those with the most lines"
    )


class Deployment(StrictString):
    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        if not value.strip() or not value.isprintable():
            raise Invalid("must be printable text")
        return value


class WatchIn(StrictSerializer):
    deployment = Deployment(max_length=MAX_NAME, help_text="a job, an application, or as shippers name it")
    namespace = StrictString(required=False, allow_blank=True, max_length=MAX_NAME, help_text="default: your own")


class WatchedOut(serializers.Serializer):
    id = serializers.IntegerField(source="pk")
    namespace = serializers.CharField()
    deployment = serializers.CharField()
    by = serializers.SerializerMethodField()
    at = serializers.DateTimeField()

    def get_by(self, row) -> str:
        return row.by.username if row.by_id else ""
