"""What a chat request says of tools and of the form of the answer: the fields tools, tool_choice, response_format, and
the calls and results among its messages.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from chat_fields import ApiError

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_TOOLS = 128
MOST_SCHEMA = 1 << 17  # characters
ANY_OBJECT = {"type": "object"}
VALUES = ("const", "default", "enum", "examples")  # what is no schema itself
BY_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


@dataclass(frozen=True)
class Tools:
    """The tools of a request. `forced`: those of which the answer must be a call; `one`: one call at most; `strict`:
    those whose arguments must follow their schema, also where the model decides itself whether it calls one.
    """

    listed: tuple[dict, ...]
    forced: tuple[str, ...] = ()
    one: bool = False
    names: frozenset[str] = field(default=frozenset())
    strict: frozenset[str] = field(default=frozenset())

    def callable(self) -> list[tuple[str, dict]] | None:
        """Return the names of the functions with the schemas that their arguments must follow, in an answer that may
        also be a text; None where there is no such schema.
        """
        if not self.strict or self.forced:
            return None
        functions = [tool["function"] for tool in self.listed]
        return [(one["name"], (one.get("parameters") if one["name"] in self.strict else None) or ANY_OBJECT)
                for one in functions]  # fmt: skip

    def schema(self) -> dict | None:
        """Return the JSON schema of a call, None where the answer may be a text. Raises ApiError."""
        functions = [tool["function"] for tool in self.listed if tool["function"]["name"] in self.forced]
        try:
            return self._schema(functions)
        except RecursionError:
            raise ApiError("tools: a schema is nested too deeply", "tools") from None

    def _schema(self, functions: list[dict]) -> dict | None:
        if len(functions) == 1:
            return _call_of(functions[0], "#")
        return {"anyOf": [_call_of(one, f"#/anyOf/{at}") for at, one in enumerate(functions)]} if functions else None


def _call_of(function: dict, where: str) -> dict:
    """Return the JSON schema of a call of a function; `where` is its place in the whole schema."""
    arguments = _moved(function.get("parameters") or ANY_OBJECT, f"{where}/properties/arguments")
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _moved(schema, where: str, names: bool = False):
    """Return a JSON schema as a part of another one: its references to itself begin at its place there. `names`: it is
    an object of schemas by names.
    """
    if isinstance(schema, list):
        return [_moved(one, where) for one in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {
        name: one if name in VALUES and not names else _moved(one, where, not names and name in BY_NAMES)
        for name, one in schema.items()
    }
    reference = None if names else schema.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        moved["$ref"] = where + reference[1:]
    return moved


def tools_of(given: dict) -> Tools | None:
    """Return the tools that the model may call, None without any. Raises ApiError."""
    listed, choice = given.get("tools", []), given.get("tool_choice", "auto")
    if not isinstance(listed, list) or len(listed) > MOST_TOOLS:
        raise ApiError(f"tools: must be a list of at most {MOST_TOOLS} tools", "tools")
    listed = tuple(_tool(f"tools[{at}]", tool) for at, tool in enumerate(listed))
    names = [tool["function"]["name"] for tool in listed]
    if len(set(names)) < len(names):
        raise ApiError("tools: two have the same name", "tools")
    forced = _forced(choice, names)
    strict = frozenset(name for name, tool in zip(names, given.get("tools", []), strict=True) if _is_strict(tool))
    followed = {*forced, *strict}
    if followed:
        _require_short([tool for tool in listed if tool["function"]["name"] in followed], "tools")
    one = given.get("parallel_tool_calls", True)
    if not isinstance(one, bool):
        raise ApiError("parallel_tool_calls: must be true or false", "parallel_tool_calls")
    return Tools(listed, forced, not one, frozenset(names), strict) if listed and choice != "none" else None


def _tool(where: str, given) -> dict:
    function = given.get("function") if isinstance(given, dict) and given.get("type") == "function" else None
    if not isinstance(function, dict):
        raise ApiError(f"{where}: must be of the type function, with a function", "tools")
    name = function.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ApiError(f"{where}.function.name: must have letters, digits, _, . and - only, at most 64", "tools")
    if not isinstance(function.get("description") or "", str):
        raise ApiError(f"{where}.function.description: must be a text", "tools")
    if not isinstance(function.get("parameters") or {}, dict):
        raise ApiError(f"{where}.function.parameters: must be a JSON schema", "tools")
    kept = {key: function[key] for key in ("name", "description", "parameters") if function.get(key) is not None}
    return {"type": "function", "function": kept}


def _is_strict(tool: dict) -> bool:
    """Return whether the arguments of a tool must follow its schema. Raises ApiError."""
    strict = tool["function"].get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise ApiError("tools: strict of a function must be true or false", "tools")
    return bool(strict)


def _forced(choice, names: list[str]) -> tuple[str, ...]:
    if choice in ("auto", "none"):
        return ()
    if choice == "required":
        if not names:
            raise ApiError("tool_choice: required needs tools", "tool_choice")
        return tuple(names)
    function = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or name not in names:
        raise ApiError("tool_choice: must be none, auto, required, or name a function of tools", "tool_choice")
    return (name,)


def schema_of(given: dict) -> dict | None:
    """Return the JSON schema that the answer must follow, None where it may be any text. Raises ApiError."""
    form = given.get("response_format", {"type": "text"})
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema"):
        raise ApiError("response_format: its type must be text, json_object or json_schema", "response_format")
    described, place = (form, "") if kind == "json_object" else (form.get("json_schema"), "json_schema.")
    schema = described.get("schema") if isinstance(described, dict) else None
    if kind == "json_object" and schema is None:
        return ANY_OBJECT
    if not isinstance(schema, dict):
        raise ApiError(f"response_format: {place}schema must be a JSON schema", "response_format")
    _require_short(schema, "response_format")
    return schema


def _require_short(schema, name: str) -> None:
    """Raise ApiError for a schema that nobody would follow to its end."""
    try:
        length = len(json.dumps(schema))
    except RecursionError:
        raise ApiError(f"{name}: a schema is nested too deeply", name) from None
    if length > MOST_SCHEMA:
        raise ApiError(f"{name}: schemas have at most {MOST_SCHEMA} characters together", name)


def calls_of(where: str, given) -> list[dict]:
    """Return the calls in a message of the assistant, with their arguments as objects, as templates have them. Raises
    ApiError.
    """
    if not isinstance(given, list):
        raise ApiError(f"{where}: must be a list of calls", where)
    return [_call(f"{where}[{at}]", call) for at, call in enumerate(given)]


def _call(where: str, given) -> dict:
    function = given.get("function") if isinstance(given, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ApiError(f"{where}: must have a function with a name", where)
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except (ValueError, TypeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise ApiError(f"{where}.function.arguments: must be a JSON object, as a text", where)
    called = {"name": function["name"], "arguments": arguments}
    return {"id": str(given.get("id") or ""), "type": "function", "function": called}
