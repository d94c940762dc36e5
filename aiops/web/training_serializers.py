"""Bodies and answers of the training calls below /api/v1/aiops: Opni's fields in the contract's types."""

from __future__ import annotations

from django.core.exceptions import ObjectDoesNotExist
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from aiops.judging import own_models
from aiops.models import ModelVersion, State, TrainingRun
from aiops.wire.watchlist import MAX_NAME
from kernel.fields import Invalid, StrictBool, StrictInt, StrictNumber, StrictSerializer, StrictString

INT64 = 2**63 - 1
MAX = 10_000


class WorkloadIn(StrictSerializer):
    clusterId = StrictString(max_length=MAX_NAME)
    namespace = StrictString(max_length=MAX_NAME)
    deployment = StrictString(max_length=MAX_NAME)


class WorkloadList(serializers.ListField):
    child = WorkloadIn()

    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        return super().to_internal_value(data)


class TrainIn(StrictSerializer):
    """The whole watchlist; an empty list clears it."""

    items = WorkloadList(max_length=MAX)
    anew = StrictBool(required=False, help_text="also train if no workload was added")


class StatisticsIn(StrictSerializer):
    timeElapsed = StrictInt(required=False, min_value=0, max_value=INT64, help_text="seconds")
    percentageCompleted = StrictInt(required=False, min_value=0, max_value=100)
    remainingTime = StrictInt(required=False, min_value=0, max_value=INT64, help_text="seconds")
    currentEpoch = StrictInt(required=False, min_value=0, max_value=INT64, help_text="starts at 1")
    modelAccuracy = StrictNumber(required=False)
    stage = StrictString(required=False, allow_blank=True, max_length=100)


class StatusIn(StrictSerializer):
    status = StrictString(max_length=100)
    statistics = StatisticsIn(required=False, allow_null=True)


class TrainOut(serializers.Serializer):
    response = serializers.CharField()


class WorkloadOut(serializers.Serializer):
    clusterId = serializers.CharField()
    namespace = serializers.CharField()
    deployment = serializers.CharField()


class AggregationOut(WorkloadOut):
    logCount = serializers.IntegerField()


class GpuOut(serializers.Serializer):
    name = serializers.CharField()
    capacity = serializers.CharField()
    allocatable = serializers.CharField()


class StatisticsOut(serializers.Serializer):
    timeElapsed = serializers.IntegerField()
    percentageCompleted = serializers.IntegerField()
    remainingTime = serializers.IntegerField()
    currentEpoch = serializers.IntegerField()
    modelAccuracy = serializers.FloatField()
    stage = serializers.CharField(allow_blank=True)


class StatusOut(serializers.Serializer):
    status = serializers.CharField(allow_blank=True)
    statistics = StatisticsOut(allow_null=True)
    reason = serializers.CharField(
        allow_blank=True, help_text="why the last training failed, or what the present one waits for"
    )
    loss = serializers.FloatField(allow_null=True)
    epochs = serializers.IntegerField(help_text="total number of epochs; 0: unknown")
    device = serializers.CharField(allow_blank=True, help_text="gpu or cpu; set during training")
    queued = serializers.BooleanField(help_text="whether a training request is queued")
    version = serializers.CharField(allow_blank=True, help_text="the model version that serves; empty: none")
    foreign = serializers.BooleanField(help_text="whether another service has trained that version")
    unjudged = serializers.IntegerField(help_text="log lines of the last hour that no model judges; 0 if one serves")


@extend_schema_field(str)
class TenantField(serializers.Field):
    """The tenant whose own model it is."""

    def __init__(self) -> None:
        super().__init__(source="*", read_only=True, help_text="whose own model it is; empty: the platform's")

    def to_representation(self, row) -> str:
        return tenant_of(row)


def tenant_of(row: TrainingRun | ModelVersion) -> str:
    """Return the name of the tenant whose own model it is; "" for the platform's."""
    try:
        return row.tenant.name if row.tenant is not None else str(own_models.DELETED) if row.tenant_id else ""
    except ObjectDoesNotExist:
        return str(own_models.DELETED)


class TrainingOut(serializers.Serializer):
    tenant = TenantField()
    queued = serializers.BooleanField(help_text="whether it waits until no other model is trained")
    uuid = serializers.UUIDField()
    state = serializers.ChoiceField(choices=State.choices)
    reason = serializers.CharField(allow_blank=True)
    workloads = serializers.JSONField()
    stage = serializers.CharField(allow_blank=True)
    percent = serializers.IntegerField()
    elapsed = serializers.IntegerField()
    eta = serializers.IntegerField(allow_null=True)
    epoch = serializers.IntegerField()
    epochs = serializers.IntegerField()
    loss = serializers.FloatField(allow_null=True)
    lines = serializers.IntegerField()
    gpu = serializers.IntegerField()
    created = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)


class VersionOut(serializers.Serializer):
    version = serializers.CharField()
    tenant = TenantField()
    serving = serializers.BooleanField()
    manifest = serializers.JSONField()
    created = serializers.DateTimeField()
    served = serializers.DateTimeField(allow_null=True)
