"""The fields of a submission for its code and its environment variables."""

from __future__ import annotations

import re

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from kernel.fields import Invalid, JobReferenceField, StrictSerializer, StrictString

MAX_BYTES = 64 << 10
SCRIPT_CHARS = 1 << 20
MAX_FILES = 1000  # of a checkout, in one call
SHA256 = re.compile(r"[0-9a-f]{64}")


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class EnvField(serializers.Field):
    """A map of names to strings. Names that the platform sets itself are rejected."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or len(data) > 100:
            raise Invalid("must be an object of at most 100 strings")
        for key, value in data.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", key):
                raise Invalid("names must match [A-Za-z_][A-Za-z0-9_]{0,99}")
            if key.startswith("MLP_"):
                raise Invalid("%(name)s is reserved for the platform", name=key)
            try:
                StrictString(allow_blank=True, max_length=MAX_BYTES).run_validation(value)
            except serializers.ValidationError as problem:
                problem.detail = {key: problem.detail}
                raise
        return data

    def to_representation(self, value):
        return value


@extend_schema_field(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "maxProperties": MAX_FILES,
    }
)
class ChecksumsField(serializers.Field):
    """A map of paths to SHA-256 checksums in hexadecimal."""

    def to_internal_value(self, data):
        if not isinstance(data, dict) or not 1 <= len(data) <= MAX_FILES:
            raise Invalid("must be an object of 1 to %(most)s checksums by path", most=MAX_FILES)
        for path, checksum in data.items():
            if not isinstance(checksum, str) or not SHA256.fullmatch(checksum):
                raise Invalid("must be a SHA-256 checksum in hexadecimal", field=path[:200])
        return data

    def to_representation(self, value):
        return value


class CodeIn(StrictSerializer):
    """The fields of a submission for its code."""

    code_from = JobReferenceField(
        required=False,
        help_text="name of a job whose code is run; `owner/name` for one that is shared with the right to clone; "
        "default: the script's folder now",
    )
    script = StrictString(
        required=False,
        allow_blank=True,
        max_length=SCRIPT_CHARS,
        help_text="text that is run instead of the script",
    )
