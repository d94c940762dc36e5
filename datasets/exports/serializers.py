"""What the REST calls of exports accept and answer."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import StrictSerializer, StrictString
from kernel.outcomes import Outcome

from ..models import ExportState


class ExportIn(StrictSerializer):
    src = StrictString(
        max_length=500, help_text="what is sent: datasets/{dataset}[@{version}], jobs/{job}[/{path}] or models/{model}"
    )
    target = StrictString(max_length=600, help_text="folder to send to: s3/{bucket}[/{path}]")


class ExportOut(serializers.Serializer):
    number = serializers.IntegerField(source="pk")
    src = serializers.CharField(help_text="what is sent; of a dataset with its version")
    target = serializers.CharField()
    state = serializers.ChoiceField(choices=ExportState.choices)
    outcome = serializers.ChoiceField(
        choices=Outcome.choices, allow_blank=True, help_text="finished, failed or cancelled; empty until it has ended"
    )
    progress = serializers.IntegerField(help_text="percent of the bytes")
    reason = serializers.CharField(
        allow_blank=True, help_text="why it waits or failed; once it has finished, what was left out"
    )
    files = serializers.IntegerField(allow_null=True, help_text="null until it has finished")
    sent = serializers.IntegerField(help_text="files that were sent; the bucket had the others")
    size = serializers.IntegerField(allow_null=True, help_text="bytes of all files; null until it has finished")
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)
