"""What the Metrics-manager's REST calls, its NATS subjects and its Kafka topic accept and answer."""

from __future__ import annotations

import math
import re

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from jobs.serializers import StrictList
from kernel.fields import Invalid, StrictChoice, StrictInt, StrictNumber, StrictSerializer, StrictString
from kernel.messages import under

from .series import MEASURED

SERIES_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,99}"
RESERVED = ("epoch", "accuracy", "loss", "progress")  # these are JobMetrics
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# Reports arrive by the thousand, nearly all of them valid: these are recognised by a plain check, twenty times as fast
# as by a serializer. Anything else goes to the serializer, which decides and words the refusal.
_SERIES_NAME = re.compile(SERIES_NAME)


def _is_number(value) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _value_of(value) -> float | None:
    """Return the number of a value: a JSON number, or NaN or an infinity, also as its name; else None."""
    if type(value) is str:
        return NOT_FINITE.get(value)
    if type(value) not in (int, float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _is_step(value) -> bool:
    return type(value) is int and 0 <= value < 2**63


_ALWAYS = {"epoch", "progress"}
_SOMETIMES = {"accuracy", "loss", "time", "reported", "user", "name"}


def _plain_metrics(data) -> bool:
    try:
        if type(data) is not dict or not data.keys() >= _ALWAYS or not data.keys() <= _ALWAYS | _SOMETIMES:
            return False
        measured = [name for name in MEASURED if name in data]
        return (
            _is_step(data["epoch"])
            and data.get("reported", [*MEASURED]) == measured
            and all(_is_number(data[name]) for name in measured)
            and type(data["progress"]) is int
            and -1 <= data["progress"] <= 100
            and ("time" not in data or _is_time(data["time"]))
            and all(type(data[name]) is str for name in ("user", "name") if name in data)
        )
    except OverflowError:  # an int too large for a float
        return False


def _is_time(value) -> bool:
    return _is_number(value) and 0 <= value <= 1e11


def _plain_values(data) -> bool:
    try:
        return (
            type(data) is dict
            and data.keys() in ({"step", "values"}, {"step", "values", "time"})
            and _is_step(data["step"])
            and type(data["values"]) is dict
            and 1 <= len(data["values"]) <= 100
            and all(
                _SERIES_NAME.fullmatch(key) and key not in RESERVED and (type(value) is float or _is_number(value))
                for key, value in data["values"].items()
            )
            and ("time" not in data or _is_time(data["time"]))
        )
    except OverflowError:
        return False


class TimeField(StrictNumber):
    def __init__(self):
        super().__init__(
            required=False, min_value=0, max_value=1e11, help_text="seconds since 1970; default: when it arrives"
        )


class MetricsIn(StrictSerializer):
    """One JobMetrics; a POST takes one object or a list of up to 1000.

    Accuracy and loss are required, unless `reported` leaves them out: a script that measures no accuracy has none.
    """

    @classmethod
    def read(cls, data) -> dict:
        return data if _plain_metrics(data) else super().read(data)

    epoch = StrictInt(min_value=0, max_value=2**63 - 1)
    accuracy = StrictNumber(required=False, help_text="required, unless `reported` does not name it")
    loss = StrictNumber(required=False, help_text="required, unless `reported` does not name it")
    progress = StrictInt(min_value=-1, max_value=100)
    time = TimeField()
    reported = StrictList(
        child=StrictChoice(choices=MEASURED), required=False, help_text="which of accuracy and loss; default: both"
    )
    user = StrictString(required=False, help_text="if given, must be the user in the path")
    name = StrictString(required=False, help_text="if given, must be the job in the path")

    def to_internal_value(self, data):
        reported = data.get("reported") if isinstance(data, dict) else None
        for name in MEASURED:
            self.fields[name].required = not isinstance(reported, list) or name in reported
        return super().to_internal_value(data)

    def validate(self, attrs: dict) -> dict:
        if unnamed := [name for name in MEASURED if name in attrs and not self.fields[name].required]:
            raise Invalid("must be left out, or named in reported", field=unnamed[0])
        return attrs


class MetricsOut(serializers.Serializer):
    user = serializers.CharField()
    name = serializers.CharField()
    epoch = serializers.IntegerField()
    accuracy = serializers.FloatField(allow_null=True, help_text="null: not reported")
    loss = serializers.FloatField(allow_null=True, help_text="null: not reported")
    progress = serializers.IntegerField()


NUMBER = {"anyOf": [{"type": "number"}, {"type": "string", "enum": list(NOT_FINITE)}]}
NUMBERS = {"type": "object", "additionalProperties": NUMBER, "minProperties": 1, "maxProperties": 100}


def finite(value: float | str) -> float | str:
    """Return the number for JSON: values that are not finite as their names."""
    if isinstance(value, str) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


@extend_schema_field(NUMBER)
class NumberOut(serializers.Field):
    def to_representation(self, value):
        return finite(value)


@extend_schema_field(NUMBERS)
class NumbersField(serializers.Field):
    """A map of names to numbers, 1 to 100 of them. NaN and infinities are values, too: bare, or their names as texts.

    Accuracy and loss are JobMetrics, whose numbers are finite. So they are accepted here where one of them is not.
    """

    def to_internal_value(self, data):
        if not isinstance(data, dict) or not 1 <= len(data) <= 100:
            raise Invalid("must be an object of 1 to 100 numbers")
        numbers = {key: _value_of(value) for key, value in data.items()}
        reserved = RESERVED
        if any(number is not None and not math.isfinite(number) for number in map(numbers.get, MEASURED)):
            reserved = ("epoch", "progress")
        for key, number in numbers.items():
            if not re.fullmatch(SERIES_NAME, key) or key in reserved:
                raise Invalid(
                    "names must have 1 to 100 letters, digits, spaces and _.:/- and must not be %(reserved)s",
                    reserved=", ".join(RESERVED),
                )
            if number is None:
                raise Invalid(under(key, "must be a number, or NaN, Infinity or -Infinity"))
        return numbers

    def to_representation(self, value):
        return value


class ValuesIn(StrictSerializer):
    """Values by name at one step; a POST takes one object or a list of up to 1000."""

    @classmethod
    def read(cls, data) -> dict:
        return data if _plain_values(data) else super().read(data)

    step = StrictInt(min_value=0, max_value=2**63 - 1)
    values = NumbersField(help_text="values by name")
    time = TimeField()
    user = StrictString(required=False, help_text="if given, must be the user in the path")
    name = StrictString(required=False, help_text="if given, must be the job in the path")


class ValueOut(serializers.Serializer):
    name = serializers.CharField()
    step = serializers.IntegerField()
    value = NumberOut()
    time = serializers.DateTimeField(source="at")
    attempt = serializers.IntegerField()


class SeriesOut(serializers.Serializer):
    name = serializers.CharField()
    count = serializers.IntegerField()
    last = NumberOut()
    min = NumberOut()
    max = NumberOut()
    points = serializers.ListField(
        child=serializers.ListField(child=NumberOut()), help_text="[step, value, attempt], in order"
    )
