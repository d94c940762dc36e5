"""Names of groups of any characters, DNs of LDAP (RFC 4514) among them, and whether two are of the same group.

ldap3's parse_dn leaves escapes in the values, and refuses characters that the RFC allows in them (`#`, `=`), which
would keep everybody out who is in a group of such a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

TYPE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+")
ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)

Pair = tuple[str, str]  # type in lower case and value


def is_among(group: str, groups: Iterable[str]) -> bool:
    """Return whether the group is one of these. Case does not count, nor the slash that Keycloak writes in front."""
    return _key(group) in {_key(each) for each in groups}


def first_value(dn: str) -> str:
    """Return the value of the first part of a DN, `C# + Go` of `cn=C# \\+ Go,ou=x`; "" for a text that is no DN."""
    parts = parse(dn)
    return parts[0][0][1] if parts else ""


def parse(dn: str) -> list[list[Pair]]:
    """Return the parts of a DN with their (type, value) pairs; [] for a text that is no DN. Never raises."""
    attributes = []
    for part in _split(dn, ",;"):
        pairs = []
        for pair in _split(part, "+"):
            kind, equals, value = pair.partition("=")
            if not equals or not TYPE.fullmatch(kind.strip()):
                return []
            pairs.append((kind.strip().lower(), _unescaped(value)))
        attributes.append(pairs)
    return attributes


def _split(text: str, separators: str) -> list[str]:
    """Return the pieces between separators that are neither escaped nor within quotation marks."""
    pieces, quoted, escaped = [""], False, False
    for character in text:
        if character in separators and not (quoted or escaped):
            pieces.append("")
            continue
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = character == "\\" and not escaped
        pieces[-1] += character
    return pieces


def _unescaped(value: str) -> str:
    value = value.lstrip()
    bare = value.rstrip()
    if value[len(bare) :] and (len(bare) - len(bare.rstrip("\\"))) % 2:
        bare += value[len(bare)]  # an escaped blank at the end belongs to the value
    if len(bare) > 1 and bare[0] == bare[-1] == '"':
        bare = bare[1:-1]

    def plain(match: re.Match) -> bytes:
        return bytes.fromhex(match[1].decode()) if len(match[1]) == 2 else match[1]

    return ESCAPED.sub(plain, bare.encode()).decode("utf-8", "replace")


def _key(group: str) -> object:
    """Return what is equal for two names of one group."""
    parts = parse(group)
    if len(parts) > 1:  # one part alone may as well be a name with an equals sign
        return tuple(tuple(sorted((kind, _folded(value)) for kind, value in pairs)) for pairs in parts)
    return _folded(group.lstrip("/"))


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
