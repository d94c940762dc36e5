"""The REST schema, which takes seconds to generate: once for the tests of a process that only read it."""

from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator


@cache
def rest_schema() -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)
