"""What REST accepts and answers of traces."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.models import Assessment
from kernel.fields import Invalid, StrictSerializer, StrictString

from .assessments import MAX_NAME
from .lookup import id_of

ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,66}$"


class TraceOut(serializers.Serializer):
    id = serializers.SerializerMethodField(help_text="as MLflow has it: tr- and the trace id of OpenTelemetry")
    user = serializers.CharField(source="user.username")
    project = serializers.CharField(source="project.name")
    name = serializers.CharField(allow_blank=True)
    status = serializers.CharField(help_text="in_progress until the root span has ended, then ok or error")
    started_ns = serializers.IntegerField(help_text="since 1970, by the clock of the program")
    duration_ns = serializers.IntegerField(allow_null=True)
    spans = serializers.IntegerField(source="spans_kept")
    errors = serializers.IntegerField(help_text="spans that ended with an error")
    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True, help_text="US dollars; null where it is unknown")
    model = serializers.CharField(allow_blank=True)
    request = serializers.CharField(allow_blank=True, help_text="the beginning")
    response = serializers.CharField(allow_blank=True, help_text="the beginning")
    session = serializers.CharField(allow_blank=True)
    end_user = serializers.CharField(allow_blank=True)
    tags = serializers.DictField(child=serializers.CharField(allow_blank=True))
    metadata = serializers.DictField(child=serializers.CharField(allow_blank=True))
    created = serializers.DateTimeField(help_text="when the first span was received")

    def get_id(self, row) -> str:
        return id_of(row.key)


class SpanOut(serializers.Serializer):
    id = serializers.CharField(source="key")
    parent = serializers.CharField(allow_blank=True)
    name = serializers.CharField(allow_blank=True)
    kind = serializers.CharField(allow_blank=True)
    type = serializers.CharField(allow_blank=True)
    status = serializers.CharField()
    message = serializers.CharField(allow_blank=True)
    started_ns = serializers.IntegerField()
    ended_ns = serializers.IntegerField(allow_null=True)
    model = serializers.CharField(allow_blank=True)
    input_tokens = serializers.IntegerField(allow_null=True)
    output_tokens = serializers.IntegerField(allow_null=True)
    cost = serializers.FloatField(allow_null=True)
    attributes = serializers.DictField()
    events = serializers.ListField(child=serializers.DictField())
    resource = serializers.DictField()
    scope = serializers.CharField(allow_blank=True)


@extend_schema_field({"oneOf": [{"type": "boolean"}, {"type": "number"}, {"type": "string"}]})
class ValueField(serializers.Field):
    """The value of feedback: true, false, a number or a text."""

    def to_internal_value(self, data):
        if not isinstance(data, bool | int | float | str):
            raise Invalid("must be true, false, a number or a text")
        return data

    def to_representation(self, value):
        return value


class TraceFeedbackIn(StrictSerializer):
    name = StrictString(max_length=MAX_NAME)
    value = ValueField()
    rationale = StrictString(required=False, allow_blank=True, max_length=10_000)


class AssessmentOut(serializers.Serializer):
    id = serializers.CharField(source="key")
    name = serializers.CharField()
    kind = serializers.ChoiceField(choices=Assessment.Kind.values)
    value = serializers.JSONField(allow_null=True)
    rationale = serializers.CharField(allow_blank=True)
    source_type = serializers.CharField()
    source = serializers.CharField(allow_blank=True)
    created = serializers.DateTimeField()
