"""What the REST calls of records accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import (
    DatasetNameField,
    StrictBool,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
    TitleField,
)

from ..models import Record, Recording
from . import datasets, plan, rows


class RecordingIn(StrictSerializer):
    """What is not given stays as it was; at first all requests are recorded, for 30 days."""

    on = StrictBool(required=False, default=True, help_text="false: no requests are recorded from now on")
    share = StrictNumber(
        required=False, min_value=0.0001, max_value=1, help_text="the share of the requests that are recorded"
    )
    days = StrictInt(required=False, min_value=1, max_value=plan.MAX_DAYS, help_text="how long records are kept")
    mask = serializers.ListField(
        child=StrictString(max_length=plan.MAX_MASK), required=False, max_length=plan.MAX_MASKS,
        help_text="fields, or paths such as $.messages[*].content, whose values are not recorded",
    )  # fmt: skip
    record_kib = StrictInt(
        required=False, min_value=1, max_value=plan.MAX_KIB, help_text="the most that is kept of a body"
    )
    most_mib = StrictInt(
        required=False, min_value=1, max_value=plan.MAX_MIB,
        help_text="the most that all records take; beyond that the oldest are deleted",
    )  # fmt: skip


class RecordingOut(serializers.ModelSerializer):
    mask = serializers.ListField(child=serializers.CharField())
    stored = serializers.IntegerField(help_text="bytes of the records")
    dropped = serializers.IntegerField(help_text="records that were not stored")
    reason = serializers.CharField(source="problem", help_text="why the last of them were not")

    class Meta:
        model = Recording
        fields = ("on", "share", "days", "mask", "record_kib", "most_mib", "stored", "dropped", "reason")


class RecordFeedbackOut(serializers.Serializer):
    value = serializers.JSONField(help_text="a number, true, false or a text")
    comment = serializers.CharField()
    key = serializers.CharField(help_text="the name of the caller's key; empty for the owner")
    time = serializers.CharField()


KEPT = "all, cut, withheld (it has masked fields and is not JSON), binary or none"


class RecordOut(serializers.Serializer):
    number = serializers.IntegerField()
    time = serializers.CharField()
    id = serializers.CharField(help_text="the X-Request-Id of the answer")
    model = serializers.CharField()
    canary = serializers.CharField(help_text="canary or base, while a canary was up")
    key = serializers.CharField(help_text="the name of the caller's key")
    path = serializers.CharField()
    status = serializers.IntegerField()
    ms = serializers.FloatField(help_text="how long the application took")
    complete = serializers.BooleanField(help_text="whether the caller stayed until the end of the answer")
    input = serializers.JSONField(allow_null=True, help_text="JSON, or a text where it is none or was cut")
    input_kept = serializers.ChoiceField(Record.Kept.values, help_text=KEPT)
    input_type = serializers.CharField()
    input_bytes = serializers.IntegerField()
    output = serializers.JSONField(allow_null=True)
    output_kept = serializers.ChoiceField(Record.Kept.values, help_text=KEPT)
    output_type = serializers.CharField()
    output_bytes = serializers.IntegerField()
    feedback = RecordFeedbackOut(many=True)

    def to_representation(self, instance):
        return rows.shown(instance)


class RecordDatasetIn(StrictSerializer):
    name = DatasetNameField()
    title = TitleField()
    since = StrictString(required=False, max_length=40, help_text="the first time; from the oldest record without it")
    until = StrictString(required=False, max_length=40, help_text="records before this time; all without it")
    format = StrictChoice(datasets.FORMATS, required=False)
