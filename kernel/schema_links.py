"""OpenAPI links: which call can follow which, with what it takes from the answer. Client generators and tests use them.

Most follow from the paths: a created or listed object leads to the calls about it, a call about an object to its
representation and its removal. A call that takes something else from another one's answer declares it (`Call.after`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KIND, AFTER = "x-kind", "x-after"  # what kernel.schema leaves for `add_links`, which removes it
# The variable of the path and the field of the answer that identify an object: {kind: (variable, field)}.
IDENTITY = {"user": ("user", "username"), "tenant": ("tenant", "name")}
DEFAULT_IDENTITY = ("name", "name")


def add_links(result: dict, generator, request, public) -> dict:
    """Add the links to a generated schema; drf-spectacular calls it."""
    calls = {
        operation["operationId"]: _Called(path, method, operation, operation.pop(KIND))
        for path, operations in result["paths"].items()
        for method, operation in operations.items()
    }
    for source in calls.values():
        for target in calls.values():
            parameters = _by_path(source, target)
            if parameters and target is not source:
                source.link(target, {"parameters": parameters})
    for target in calls.values():
        for id, link in target.operation.pop(AFTER, {}).items():
            calls[id].link(target, {"parameters": _shared(calls[id], target), **link})
    return result


@dataclass(frozen=True)
class _Called:
    """An operation of the schema, at its path."""

    path: str
    method: str
    operation: dict
    kind: str

    @property
    def variables(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    @property
    def success(self) -> dict:
        return next(answer for status, answer in self.operation["responses"].items() if status.startswith("2"))

    @property
    def is_list(self) -> bool:
        content = self.success.get("content", {}).get("application/json", {})
        return self.method == "get" and content.get("schema", {}).get("type") == "array"

    def link(self, target: _Called, link: dict) -> None:
        id = target.operation["operationId"]
        self.success.setdefault("links", {})[id] = {"operationId": id, **link}


def _by_path(source: _Called, target: _Called) -> dict[str, str]:
    """Return the parameters of the target as the source's answer gives them; none if it cannot follow."""
    variable, key = IDENTITY.get(source.kind, DEFAULT_IDENTITY)
    known = {*source.variables, variable}
    same = target.kind == source.kind or variable == "user" == "".join(target.variables)
    if not same or variable not in target.variables or not known.issuperset(target.variables):
        return {}
    itself = target.path.endswith(f"/{{{variable}}}") and target.method in {"get", "delete"}
    if variable in source.variables:
        whole, at = source.method == "get" and source.path.endswith(f"/{{{variable}}}"), f"$request.path.{variable}"
    elif source.is_list:
        whole, at = False, f"$response.body#/0/{key}"
    elif source.method == "post":
        whole, at = True, f"$response.body#/{key}"
    else:
        return {}
    return {**_shared(source, target), variable: at} if whole or itself else {}


def _shared(source: _Called, target: _Called) -> dict[str, str]:
    return {name: f"$request.path.{name}" for name in target.variables if name in source.variables}
