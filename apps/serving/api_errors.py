"""Errors in the form of OpenAI's API, whoever refuses: the gateway, the platform or the serving process. No Django."""

from __future__ import annotations

TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error", 504: "timeout_error"}
CODES = {
    401: "invalid_api_key", 404: "application_not_found", 413: "request_too_large", 429: "rate_limit_exceeded",
    503: "application_unavailable",
}  # fmt: skip


def content(status: int, message: str, param: str | None = None, code: str | None = None) -> dict:
    """Return the body of a response with an error: its kind follows from the HTTP status, `param` names a field."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
