"""What the Job-manager's and the Metrics-manager's REST calls accept and answer (contract 4)."""

from __future__ import annotations

import math
import re

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.errors import flatten
from kernel.fields import (
    DatasetNameField,
    EntryField,
    Invalid,
    NameField,
    StrictChoice,
    StrictInt,
    StrictNumber,
    StrictSerializer,
    StrictString,
)
from kernel.messages import under
from resources.models import Network

from .models import Runtime, State

MAX_BYTES = 64 << 10
SERIES_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,99}"
RESERVED = ("epoch", "accuracy", "loss", "progress")  # these are JobMetrics


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class EnvField(serializers.Field):
    """A map of names to strings; names that the platform sets are refused."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or len(data) > 100:
            raise Invalid("must be an object of at most 100 strings")
        for key, value in data.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", key):
                raise Invalid("names must match [A-Za-z_][A-Za-z0-9_]{0,99}")
            if key.startswith("MLP_"):
                raise Invalid("%(name)s is reserved for the platform", name=key)
            StrictString(allow_blank=True, max_length=MAX_BYTES).run_validation(value)
        return data

    def to_representation(self, value):
        return value


class StrictList(serializers.ListField):
    def to_internal_value(self, data):
        if not isinstance(data, list):
            raise Invalid("must be a list")
        return super().to_internal_value(data)


class JobIn(StrictSerializer):
    name = NameField()
    entry = EntryField(help_text="path of the script, relative to .home")
    tenant = NameField(required=False)
    runtime = StrictChoice(choices=Runtime.values, required=False)
    gpu = StrictInt(required=False, min_value=0, max_value=16)
    cpu = StrictNumber(required=False, min_value=0.1, max_value=10)
    ram = StrictInt(required=False, min_value=100, max_value=10000, help_text="MiB")
    datasets = StrictList(child=DatasetNameField(), required=False, max_length=100)
    args = StrictList(child=StrictString(allow_blank=True, max_length=MAX_BYTES), required=False, max_length=100)
    env = EnvField(required=False)
    retries = StrictInt(required=False, min_value=0, max_value=10)
    workers = StrictInt(
        required=False, min_value=1, max_value=16, help_text="number of workers; gpu, cpu and ram are per worker"
    )
    network = StrictChoice(
        choices=Network.values, required=False, help_text="what it may reach; default and maximum: its tenant's policy"
    )


class JobHeartbeatIn(StrictSerializer):
    state = StrictChoice(choices=["running", "finished", "error"])
    progress = StrictInt(min_value=0, max_value=100)


class JobOut(serializers.Serializer):
    name = serializers.CharField()
    user = serializers.CharField(source="user.username")
    tenant = serializers.CharField(source="tenant.name")
    runtime = serializers.ChoiceField(choices=Runtime.choices)
    entry = serializers.CharField()
    gpu = serializers.IntegerField()
    cpu = serializers.FloatField()
    ram = serializers.IntegerField()
    state = serializers.ChoiceField(choices=State.choices)
    progress = serializers.IntegerField()
    datasets = serializers.ListField(child=serializers.CharField())
    args = serializers.ListField(child=serializers.CharField(allow_blank=True))
    env = serializers.DictField(child=serializers.CharField(allow_blank=True))
    retries = serializers.IntegerField()
    workers = serializers.IntegerField()
    network = serializers.ChoiceField(choices=Network.choices, source="network_policy")
    attempt = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)
    created = serializers.DateTimeField()
    started = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)


# Reports arrive by the thousand, nearly all of them valid: these are recognised by a plain check, twenty times as fast
# as by a serializer. Anything else goes to the serializer, which decides and words the refusal.
_SERIES_NAME = re.compile(SERIES_NAME)


def _is_number(value) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _is_step(value) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _plain_metrics(data) -> bool:
    try:
        return (
            type(data) is dict
            and data.keys() == {"epoch", "accuracy", "loss", "progress"}
            and _is_step(data["epoch"])
            and _is_number(data["accuracy"])
            and _is_number(data["loss"])
            and type(data["progress"]) is int
            and -1 <= data["progress"] <= 100
        )
    except OverflowError:  # an int too large for a float
        return False


def _plain_values(data) -> bool:
    try:
        return (
            type(data) is dict
            and data.keys() in ({"step", "values"}, {"step", "values", "time"})
            and _is_step(data["step"])
            and type(data["values"]) is dict
            and 1 <= len(data["values"]) <= 100
            and all(
                _SERIES_NAME.fullmatch(key) and key not in RESERVED and _is_number(value)
                for key, value in data["values"].items()
            )
            and ("time" not in data or (_is_number(data["time"]) and 0 <= data["time"] <= 1e11))
        )
    except OverflowError:
        return False


class MetricsIn(StrictSerializer):
    """One JobMetrics; a POST takes one object or a list of up to 1000."""

    @classmethod
    def read(cls, data) -> dict:
        return data if _plain_metrics(data) else super().read(data)

    epoch = StrictInt(min_value=0, max_value=2**63 - 1)
    accuracy = StrictNumber()
    loss = StrictNumber()
    progress = StrictInt(min_value=-1, max_value=100)
    user = StrictString(required=False, help_text="if given, must be the user in the path")
    name = StrictString(required=False, help_text="if given, must be the job in the path")


class MetricsOut(serializers.Serializer):
    user = serializers.CharField()
    name = serializers.CharField()
    epoch = serializers.IntegerField()
    accuracy = serializers.FloatField()
    loss = serializers.FloatField()
    progress = serializers.IntegerField()


NUMBER = {"type": "object", "additionalProperties": {"type": "number"}, "minProperties": 1, "maxProperties": 100}


@extend_schema_field(NUMBER)
class NumbersField(serializers.Field):
    """A map of names to finite numbers, 1 to 100 of them."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or not 1 <= len(data) <= 100:
            raise Invalid("must be an object of 1 to 100 numbers")
        for key, value in data.items():
            if not re.fullmatch(SERIES_NAME, key) or key in RESERVED:
                raise Invalid(
                    "names must have 1 to 100 letters, digits, spaces and _.:/- and must not be %(reserved)s",
                    reserved=", ".join(RESERVED),
                )
            try:
                StrictNumber().run_validation(value)
            except serializers.ValidationError as problem:
                raise Invalid(under(key, flatten(problem.detail)))
        return {key: float(value) for key, value in data.items()}

    def to_representation(self, value):
        return value


class ValuesIn(StrictSerializer):
    """Values by name at one step; a POST takes one object or a list of up to 1000."""

    @classmethod
    def read(cls, data) -> dict:
        return data if _plain_values(data) else super().read(data)

    step = StrictInt(min_value=0, max_value=2**63 - 1)
    values = NumbersField(help_text="values by name")
    time = StrictNumber(required=False, min_value=0, max_value=1e11, help_text="seconds since 1970; default: now")
    user = StrictString(required=False, help_text="if given, must be the user in the path")
    name = StrictString(required=False, help_text="if given, must be the job in the path")


class ValueOut(serializers.Serializer):
    name = serializers.CharField()
    step = serializers.IntegerField()
    value = serializers.FloatField()
    time = serializers.DateTimeField(source="at")
    attempt = serializers.IntegerField()


class SeriesOut(serializers.Serializer):
    name = serializers.CharField()
    count = serializers.IntegerField()
    last = serializers.FloatField()
    min = serializers.FloatField()
    max = serializers.FloatField()
    points = serializers.ListField(
        child=serializers.ListField(child=serializers.FloatField()), help_text="[step, value, attempt], in order"
    )


class ArtifactOut(serializers.Serializer):
    path = serializers.CharField()
    size = serializers.IntegerField()
    modified = serializers.DateTimeField()
