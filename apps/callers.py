"""What an application's owner allows those who call it. Read by gateway_access at each request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from django.conf import settings

from accounts import notices
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import locked
from kernel.messages import Message

from .models import Application

MAX_ORIGINS = 20
BODY_MIB = 64  # what nginx and the serving process take at most
ANY = "*"
ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?", re.ASCII)
DEFAULT_PORTS = {"http": "80", "https": "443"}
METHODS = "GET, HEAD, POST"
HEADERS = "Authorization, Content-Encoding, Content-Type, Inference-Header-Content-Length, X-Api-Key, X-Request-Id"
ASKED_HEADERS = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,1000}")
EXPOSED = "Inference-Header-Content-Length, Retry-After, X-App-Model, X-Request-Id"
PREFLIGHT_S = 600


def set_access(*, user, name: str, by: str, **values) -> Application:
    """Change the given ones of an application's settings for its callers; the gateway knows them within a second.

    `address_rate`: requests a minute from one address, of callers without a key or token; None for no limit.
    `origins`: the origins whose pages may read answers. `body_mib` and `answer_s`: the largest body, in MiB, and the
    longest time until an answer, in seconds; None for what the platform allows.

    Raises Missing, Refused.
    """
    if "origins" in values:
        values["origins"] = checked(values["origins"])
    for field, most in (("body_mib", BODY_MIB), ("answer_s", settings.APP_ANSWER_S)):
        if values.get(field) is not None and not 1 <= values[field] <= most:
            raise Refused("must be from 1 to %(last)s", field=field, last=most)
    with locked(Application, user=user, name=name) as app:
        if values.get("address_rate") is not None and not app.public:
            raise Refused("is only for a public application; others need a key", field="address_rate")
        changed = [field for field, value in values.items() if getattr(app, field) != value]
        if changed:
            for field in changed:
                setattr(app, field, values[field])
            app.save(update_fields=changed)
            after_commit.changed(app.user.username, "application", app.name)
            notices.tell(app.user, Message("%(by)s changed the access to the application %(app)s.",
                                           by=notices.name_of(by), app=app.name))  # fmt: skip
    return app


def checked(origins: Sequence[str]) -> list[str]:
    """Return origins as browsers send them: in small letters, without the default port, each once. Raises Refused."""
    normalized = [_origin(text) for text in origins]
    if len(normalized) > MAX_ORIGINS:
        raise Refused("at most %(limit)s are allowed", field="origins", limit=MAX_ORIGINS)
    if ANY in normalized and len(set(normalized)) > 1:
        raise Refused("* already allows all origins: remove the others", field="origins")
    return list(dict.fromkeys(normalized))


def _origin(text: str) -> str:
    if text == ANY:
        return text
    match = ORIGIN.fullmatch(text.lower().removesuffix("/")) if len(text) <= 255 else None
    if match is None or int(match[3] or 1) not in range(1, 1 << 16):
        raise Refused("%(origin)s is no origin such as https://shop.example", field="origins", origin=text[:100])
    scheme, host, port = match.groups()
    port = "" if port is None or port.lstrip("0") == DEFAULT_PORTS[scheme] else f":{int(port)}"
    return f"{scheme}://{host}{port}"


def allowed_origin(origins: Sequence[str], meta: Mapping[str, str]) -> str:
    """Return what Access-Control-Allow-Origin says to a request: its own origin, `*`, or "" for no header.

    It is compared as a whole. Credentials of the browser are never allowed: a page sends a key, not a cookie.
    """
    origin = meta.get("HTTP_ORIGIN", "")
    if not origin or (origin not in origins and ANY not in origins):
        return ""
    return ANY if ANY in origins else origin


def cors_headers(origins: Sequence[str], meta: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an answer to a page of another origin, also of one that says what is wrong."""
    headers = {"Vary": "Origin"} if origins and ANY not in origins else {}
    if origin := allowed_origin(origins, meta):
        headers |= {"Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": EXPOSED}
    return headers


def preflight_headers(origins: Sequence[str], meta: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers of the answer to a preflight request; None where the origin is not allowed.

    Authorization is named, since `*` does not stand for it.
    """
    if not allowed_origin(origins, meta):
        return None
    asked = meta.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
    return {
        **cors_headers(origins, meta),
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": asked if ASKED_HEADERS.fullmatch(asked) else HEADERS,
        "Access-Control-Max-Age": str(PREFLIGHT_S),
    }


def most_bytes(body_mib: int | None) -> int:
    """Return how many bytes a body may have."""
    return min(body_mib or BODY_MIB, BODY_MIB) << 20
