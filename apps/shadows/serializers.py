"""What the REST calls of shadows accept and answer."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.fields import NameField, StrictInt, StrictNumber, StrictSerializer, StrictString

from ..models import Shadow, ShadowPair
from . import latencies, verbs


class ShadowIn(StrictSerializer):
    model_name = NameField(help_text="the model that gets copies of the requests")
    percent = StrictInt(required=False, default=100, min_value=1, max_value=100, help_text="of the requests are copied")
    minutes = StrictInt(
        required=False, default=0, min_value=0, max_value=verbs.MAX_MINUTES,
        help_text="after which the shadow ends; 0: when it is ended",
    )  # fmt: skip
    tolerance = StrictNumber(
        required=False, default=1e-6, min_value=0, max_value=verbs.MAX_TOLERANCE,
        help_text="how far numbers may be apart and count as equal, as a share of the larger one",
    )  # fmt: skip
    ignore = serializers.ListField(
        child=StrictString(max_length=verbs.MAX_FIELD), required=False, max_length=verbs.MAX_IGNORED,
        help_text="names of fields of the answers that are not compared",
    )  # fmt: skip


class LatencyOut(serializers.Serializer):
    """In milliseconds, in the process of the model."""

    p50_ms = serializers.FloatField(allow_null=True)
    p95_ms = serializers.FloatField(allow_null=True)


class ShadowHourOut(serializers.Serializer):
    hour = serializers.CharField(help_text="its begin in UTC")
    equal = serializers.IntegerField()
    different = serializers.IntegerField()
    status = serializers.IntegerField()
    failed = serializers.IntegerField()
    unknown = serializers.IntegerField()
    dropped = serializers.IntegerField()
    unfit = serializers.IntegerField()


class ShadowOut(serializers.ModelSerializer):
    """What came of the copies: `compared` were sent to the shadow, and each of these counts in one of the five."""

    compared = serializers.IntegerField(help_text="copies that were sent")
    equal = serializers.IntegerField(help_text="both have answered the same")
    different = serializers.IntegerField(help_text="both have answered, but not the same")
    status = serializers.IntegerField(help_text="the statuses differ")
    failed = serializers.IntegerField(help_text="the shadow has not answered")
    unknown = serializers.IntegerField(help_text="an answer is too long to be compared")
    dropped = serializers.IntegerField(help_text="copies that were not sent: more came than the shadow has answered")
    unfit = serializers.IntegerField(help_text="requests too large to be copied")
    ignore = serializers.ListField(child=serializers.CharField())
    outcome = serializers.ChoiceField(choices=Shadow.Outcome.choices, allow_blank=True, help_text="empty: going on")
    base = serializers.SerializerMethodField(help_text="the latency of the model that answers, for the same requests")
    shadow = serializers.SerializerMethodField(help_text="the latency of the shadow")
    hours = serializers.SerializerMethodField(help_text="the counts of each hour, oldest first")

    class Meta:
        model = Shadow
        fields = (
            "model_name", "serves", "by", "percent", "minutes", "tolerance", "ignore", "created", "began", "ended",
            "outcome", "reason", "compared", *Shadow.COUNTS, "base", "shadow", "hours",
        )  # fmt: skip

    @extend_schema_field(LatencyOut)
    def get_base(self, row: Shadow) -> dict:
        return latency(row.base_ms)

    @extend_schema_field(LatencyOut)
    def get_shadow(self, row: Shadow) -> dict:
        return latency(row.shadow_ms)

    @extend_schema_field(ShadowHourOut(many=True))
    def get_hours(self, row: Shadow) -> list[dict]:
        return [{"hour": hour, **counts} for hour, counts in sorted(row.hours.items())]


def latency(counts: dict[str, int]) -> dict[str, float | None]:
    """Return the percentiles of latencies that are shown, in ms."""
    found = {f"p{percent}_ms": latencies.percentile(counts, percent / 100) for percent in (50, 95)}
    return {name: None if ms is None else round(ms, 3) for name, ms in found.items()}


class ShadowPairOut(serializers.ModelSerializer):
    """The texts are masked and cut as records are; empty where nothing could be kept."""

    time = serializers.DateTimeField(source="at")
    id = serializers.CharField(source="request_id", help_text="the X-Request-Id of the answer")
    where = serializers.CharField(source="at_path", help_text="the first difference of two answers in JSON")
    shadow_status = serializers.IntegerField(allow_null=True, help_text="null: no answer")
    shadow_ms = serializers.FloatField(allow_null=True)

    class Meta:
        model = ShadowPair
        fields = (
            "time", "id", "path", "kind", "where", "base_status", "shadow_status", "base_ms", "shadow_ms", "input",
            "base_output", "shadow_output",
        )  # fmt: skip
