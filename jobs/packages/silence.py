"""An index that did not answer, by the output of uv and of pip, which itself only says that it has found no versions of
a package.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings

from kernel.messages import Message

TRIES = 3  # of each request to an index
SILENT = re.compile(
    r"HTTPS?ConnectionPool\(host='(?P<silent>[^']+)', port=(?P<port>\d+)\): Read timed out"
    r"|Connection to (?P<unreachable>[^\s']+) timed out"
)
TIMED_OUT = re.compile(  # uv: the request has failed as often as it was to be repeated
    r"Request failed after \d+ retr[^\n]*\n\s+cause: Failed to fetch: `?(?P<address>https?://[^\s`]+)`?"
    r"(?:\n\s+cause: [^\n]*)*?\n\s+cause: (?:operation timed out|deadline has elapsed)"
)
LAST = re.compile(r"Retrying \(Retry\(total=0\b[^\n]*|Max retries exceeded[^\n]*|^\S*ReadTimeoutError: [^\n]*", re.M)
PORTS = {"http": 80, "https": 443}


def of_index(log: str) -> Message | None:
    """Return that an index has not answered, by the installer's output; None where that is not why it gave up.

    A request that has succeeded when it was repeated does not count.
    """
    index = _silent_for_pip(log)
    if not index and (match := TIMED_OUT.search(log)):
        parts = urlsplit(match["address"])
        index = _named(parts.hostname or "", str(parts.port or PORTS.get(parts.scheme)))
    if not index:
        return None
    return Message("the package index %(index)s did not answer within %(seconds)s s, %(tries)s times in a row",
                   index=index, seconds=settings.PIP_TIMEOUT_S, tries=TRIES)  # fmt: skip


def _silent_for_pip(log: str) -> str:
    for last in reversed(LAST.findall(log)):
        if match := SILENT.search(last):
            return _named(match["silent"] or match["unreachable"], match["port"])
    return ""


def _named(host: str, port: str | None) -> str:
    """Return the address of the configured index that is at this host, without a password; else the host."""
    for address in filter(None, [settings.PIP_INDEX_URL, *settings.PIP_EXTRA_INDEX_URL]):
        parts = urlsplit(address)
        if parts.hostname == host.lower() and port in (None, str(parts.port or PORTS.get(parts.scheme))):
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return f"{host}:{port}" if port else host
