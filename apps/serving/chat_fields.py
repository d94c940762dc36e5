"""The fields of requests of OpenAI's API, as dictionaries from JSON, and the errors that name them."""

from __future__ import annotations

import api_errors
import orjson


class ApiError(Exception):
    """A refusal, or a failure, in the API's form."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None, status: int = 400):
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.headers = [(b"retry-after", b"1")] if status in (429, 503) else []

    def body(self) -> dict:
        """Return the body of the response."""
        return api_errors.content(self.status, str(self), self.param, self.code)


def read_object(body: bytes) -> dict:
    """Return the fields of a request that are not null. Raises ApiError."""
    try:
        given = orjson.loads(body)
    except ValueError as problem:
        raise ApiError(f"the body is no valid JSON ({problem})")
    if not isinstance(given, dict):
        raise ApiError("the body must be a JSON object")
    return {name: value for name, value in given.items() if value is not None}


def read_bool(given: dict, name: str, within: str = "") -> bool:
    """Return a truth value, false where it is absent. Raises ApiError."""
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise ApiError(f"{within}{name}: must be true or false", within + name)
    return bool(value)


def read_text(given: dict, name: str) -> str | None:
    """Return a text, None where it is absent. Raises ApiError."""
    value = given.get(name)
    if value is not None and not isinstance(value, str):
        raise ApiError(f"{name}: must be a text", name)
    return value


def read_number(given: dict, name: str, default: float, most: float) -> float:
    """Return a number from 0 to `most`. Raises ApiError."""
    value = given.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ApiError(f"{name}: must be a number from 0 to {most}", name)
    return float(value)


def read_whole(given: dict, name: str, least: int, most: int) -> int | None:
    """Return a whole number, None where it is absent. Raises ApiError."""
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not least <= value <= most:
        raise ApiError(f"{name}: must be a whole number, at least {least}", name)
    return value
