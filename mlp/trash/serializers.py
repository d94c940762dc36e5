"""The request and response bodies of the trash."""

from __future__ import annotations

from rest_framework import serializers

from kernel.fields import DatasetNameField, StrictChoice, StrictSerializer

from .kinds import KINDS


class TrashedIn(StrictSerializer):
    kind = StrictChoice(choices=list(KINDS))
    name = DatasetNameField()


class TrashedOut(serializers.Serializer):
    kind = serializers.ChoiceField(choices=list(KINDS))
    name = serializers.CharField()
    size = serializers.IntegerField(allow_null=True, help_text="bytes on the disk; null where nothing is counted")
    state = serializers.CharField()
    trashed = serializers.DateTimeField(help_text="since when it is in the trash")
    purged = serializers.DateTimeField(help_text="when it is deleted")
