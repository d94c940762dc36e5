"""Bodies and answers of the calls on log lines below /api/v1/aiops/logs."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from aiops.intake import accept
from kernel.fields import Invalid, StrictSerializer, StrictString

ID_HELP = "lines with the same id are stored once; returned as {username}:{_id}, for administrators unchanged"
KINDS = ("workload", "controlplane", "rancher", "longhorn", "event", "auditlog")


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]})
class TimeField(serializers.Field):
    """A number (seconds, ms, µs or ns since 1970, recognised by its size) or an ISO date, as ms."""

    def to_internal_value(self, data):
        good = isinstance(data, str) or (isinstance(data, int | float) and not isinstance(data, bool))
        at = accept.milliseconds(data) if good else None
        if at is None or not accept.EARLIEST <= at <= accept.LATEST:
            raise Invalid("must be a time: a number since 1970, or an ISO date")
        return at

    def to_representation(self, value):
        return value


class LineIn(StrictSerializer):
    """A log line; a POST takes one, a list of up to 10,000, or one per line (application/x-ndjson)."""

    log = StrictString(max_length=1 << 20)
    time = TimeField(required=False)
    _id = StrictString(required=False, max_length=accept.MOST_ID, help_text=ID_HELP)
    cluster_id = StrictString(required=False, max_length=accept.MOST_NAME, help_text="default: local")
    namespace_name = StrictString(required=False, max_length=accept.MOST_NAME, help_text="default: the user's name")
    deployment = StrictString(required=False, allow_blank=True, max_length=accept.MOST_NAME)
    pod_name = StrictString(required=False, allow_blank=True, max_length=accept.MOST_NAME)
    service = StrictString(required=False, allow_blank=True, max_length=accept.MOST_NAME)
    log_type = StrictString(required=False, max_length=40, help_text="default: workload")


class TakenOut(serializers.Serializer):
    taken = serializers.IntegerField(help_text="number of lines stored")
    new = serializers.IntegerField(help_text="number of lines that were not stored before")


class LineOut(serializers.Serializer):
    _id = serializers.CharField()
    time = serializers.IntegerField(help_text="ms since 1970")
    cluster_id = serializers.CharField()
    namespace_name = serializers.CharField(allow_blank=True)
    deployment = serializers.CharField(allow_blank=True)
    pod_name = serializers.CharField(allow_blank=True)
    service = serializers.CharField(allow_blank=True)
    log_type = serializers.CharField()
    log = serializers.CharField(allow_blank=True)
    masked_log = serializers.CharField(allow_blank=True)
    anomaly_level = serializers.CharField(allow_blank=True, help_text="empty: not classified yet")
    template_matched = serializers.CharField(allow_blank=True)
    template_cluster_id = serializers.IntegerField(allow_null=True)
    inference_model = serializers.CharField(allow_blank=True)
    opnilog_confidence = serializers.FloatField(allow_null=True, help_text="0 to 1; low for an anomaly")


NUMBERS = ("template_cluster_id", "opnilog_confidence")


def shown(document: dict) -> dict:
    """Return all fields of a line, including empty ones."""
    return {name: document.get(name, None if name in NUMBERS else "") for name in LineOut().fields}
