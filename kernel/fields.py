"""Strict serializer fields: a JSON number is not a string, true is not 1, an unknown field is refused."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rest_framework import serializers

from . import names, sanitize
from .errors import Refused
from .messages import Message


class Invalid(serializers.ValidationError):
    """A field's value is not valid. DRF copies texts and keeps their `code`, so the message travels as its own code."""

    def __init__(self, template: str, /, *, field: str = "", **params):
        message = Message(template, **params)
        super().__init__({field: message} if field else message, code=message)


class StrictSerializer(serializers.Serializer):
    """A request body. Unknown fields are refused; the refusal names the first invalid field."""

    def to_internal_value(self, data):
        if not isinstance(data, dict):
            raise Invalid("must be an object") if self.parent else Refused("must be a JSON object", field="body")
        unknown = sorted(set(map(str, data)) - set(self.fields))
        if unknown and self.parent:  # the fields around it are put in front of its name
            raise Invalid("unknown field", field=unknown[0])
        if unknown:
            raise Refused("unknown field", field=unknown[0])
        return super().to_internal_value(data)

    @classmethod
    def read(cls, data) -> dict:
        """Return the validated values of `data`. Raises Refused."""
        if not isinstance(data, dict):
            raise Refused("must be a JSON object", field="body")
        serializer = cls(data=data)
        serializer.is_valid(raise_exception=True)
        return serializer.validated_data

    @classmethod
    def read_many(cls, items: Iterable) -> list[dict]:
        """Return `read` of each, with one serializer for all, since its fields are costly to build. Raises Refused."""
        reader, rows = cls(), []
        for data in items:
            if not isinstance(data, dict):
                raise Refused("must be a JSON object", field="body")
            rows.append(reader.run_validation(data))
        return rows


class StrictInt(serializers.IntegerField):
    """A JSON whole number. 8.0 is refused like "8" and true: the type on the wire is int."""

    def to_internal_value(self, data):
        if isinstance(data, bool) or not isinstance(data, int):
            raise Invalid("must be a whole number")
        self._check(data)
        return data

    def _check(self, value):
        low, high = self.min_value, self.max_value
        if (low is not None and value < low) or (high is not None and value > high):
            if high is None:
                raise Invalid("must be at least %(low)s", low=low)
            raise Invalid("must be %(low)s to %(high)s", low=low, high=high)


class StrictNumber(serializers.FloatField):
    """A finite JSON number."""

    def to_internal_value(self, data):
        if isinstance(data, bool) or not isinstance(data, int | float):
            raise Invalid("must be a number")
        try:
            value = float(data)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise Invalid("must be a finite number")
        StrictInt._check(self, value)
        return value


class StrictString(serializers.CharField):
    """A JSON string, not trimmed."""

    def __init__(self, **kwargs):
        kwargs.setdefault("trim_whitespace", False)
        super().__init__(**kwargs)

    def to_internal_value(self, data):
        if not isinstance(data, str):
            raise Invalid("must be a string")
        if sanitize.UNSTORABLE.search(data):
            raise Invalid("must be valid text")
        return data


class StrictBool(serializers.BooleanField):
    def to_internal_value(self, data):
        if not isinstance(data, bool):
            raise Invalid("must be true or false")
        return data


class StrictChoice(serializers.ChoiceField):
    def to_internal_value(self, data):
        if not isinstance(data, str) or data not in self.choices:
            raise Invalid("must be one of %(choices)s", choices=", ".join(self.choices))
        return data


class PatternField(StrictString):
    """A string that one function of `names` accepts; `field_name` is passed to it for its message."""

    check = staticmethod(names.name)
    pattern = names.NAME

    def to_internal_value(self, data):
        value = super().to_internal_value(data)
        try:
            return self.check(value, self.field_name)
        except Refused as refused:
            raise Invalid(refused.problem)


class NameField(PatternField):
    pass


class TitleField(PatternField):
    """What pages call an object; empty for its name."""

    check = staticmethod(names.title)
    pattern = names.TITLE

    def __init__(self, **kwargs):
        kwargs.setdefault("help_text", "what pages call it; any text of at most 200 characters")
        super().__init__(required=False, allow_blank=True, **kwargs)


class DatasetNameField(PatternField):
    check = staticmethod(names.dataset_name)
    pattern = names.DATASET_NAME


class JobDatasetField(PatternField):
    check = staticmethod(names.dataset_of_job)
    pattern = names.DATASET_OF_JOB


class JobReferenceField(PatternField):
    check = staticmethod(names.job_reference)
    pattern = names.JOB_REFERENCE


class EntryField(PatternField):
    check = staticmethod(names.entry)
    pattern = names.ENTRY


class RequestIdField(PatternField):
    check = staticmethod(names.request_id)
    pattern = names.REQUEST_ID
