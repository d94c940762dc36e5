"""A request's preconditions as a value: `If` (RFC 4918, 10.4), `If-Match` and `If-None-Match` (RFC 9110, 13.1).

The headers are parsed once for each request, here; lock_store.py judges them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import HttpError

LOCK_SCHEME = "urn:uuid:"
PIECE = re.compile(r"\s*(<[^<>]*>|\[[^\]]*\]|\(|\)|[Nn][Oo][Tt](?=[\s<\[]))\s*")
ANY = ("*",)  # in place of tags: whatever is there
HEADERS = frozenset({"HTTP_IF", "HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"})


@dataclass(frozen=True)
class StateCheck:
    """One test of an `If` header: the resource has this lock token or ETag, or has not, when `negated`.

    `resource` is the address that the header names; empty for the address of the request itself.
    """

    resource: str
    value: str
    is_etag: bool = False
    negated: bool = False


@dataclass(frozen=True)
class Conditions:
    """The preconditions of one request. `host` is what an address in the `If` header is compared with.

    One of the `alternatives` must hold, each with all of its checks. `tokens` are the lock tokens that the client
    presents, wherever they stand in the header. `etags` is `If-Match`, `unwanted` is `If-None-Match`.
    """

    alternatives: tuple[tuple[StateCheck, ...], ...] = ()
    tokens: frozenset[str] = frozenset()
    etags: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    host: str = ""


NONE = Conditions()


def parse(meta: Mapping[str, str]) -> Conditions:
    """Parse the conditional headers among `meta` (names as WSGI has them). Raises HttpError 400."""
    if HEADERS.isdisjoint(meta):
        return NONE
    alternatives = _alternatives(meta.get("HTTP_IF", ""))
    checks = [check for alternative in alternatives for check in alternative]
    return Conditions(
        alternatives=alternatives,
        tokens=frozenset(check.value for check in checks if check.value.startswith(LOCK_SCHEME)),
        etags=_tags(meta.get("HTTP_IF_MATCH", "")),
        unwanted=_tags(meta.get("HTTP_IF_NONE_MATCH", "")),
        host=meta.get("HTTP_HOST", ""),
    )


def _tags(header: str) -> tuple[str, ...]:
    return tuple(etag for part in header.split(",") if (etag := part.strip()))


def _alternatives(header: str) -> tuple[tuple[StateCheck, ...], ...]:
    """Return the header's lists, each with its checks. Raises HttpError 400 for a malformed header."""
    alternatives: list[tuple[StateCheck, ...]] = []
    checks: list[StateCheck] | None = None  # of the list that is being read; None between two lists
    resource, negated, position = "", False, 0
    while position < len(header):
        match = PIECE.match(header, position)
        if match is None:
            raise HttpError(400, "cannot be parsed", field="If")
        piece, position = match[1], match.end()
        match piece[0]:
            case "(" if checks is None:
                checks = []
            case ")" if checks and not negated:
                alternatives.append(tuple(checks))
                checks = None
            case "<" if checks is None:
                resource = piece[1:-1]
            case "<" | "[" if checks is not None:
                checks.append(StateCheck(resource, piece[1:-1].strip(), piece[0] == "[", negated))
                negated = False
            case "n" | "N" if checks is not None and not negated:
                negated = True
            case _:
                raise HttpError(400, "cannot be parsed", field="If")
    if checks is not None or (header and not alternatives):
        raise HttpError(400, "cannot be parsed", field="If")
    return tuple(alternatives)
