"""Presigned addresses of S3 (AWS Signature Version 4 in the query): each is for one request and a few minutes.

obstore signs the host alone. An upload is signed with its length, too, so that an address takes as many bytes as it was
made for, and no others.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from kernel.errors import Refused

from ..models import Bucket
from . import rows
from .store import AWS, SIGNED_FOR

ALGORITHM = "AWS4-HMAC-SHA256"
PORTS = {"http": 80, "https": 443}  # which clients leave out of the header Host


class Keys(NamedTuple):
    """What requests are signed with; `session` is the token of temporary keys, else ""."""

    access: str
    secret: str
    session: str = ""


def keys_of(row: Bucket) -> Keys:
    """Return the keys of a bucket. Raises Refused where the platform has none that it could sign with."""
    if row.signing == Bucket.Signing.KEY:
        return Keys(row.access_key, rows.secret_of(row))
    named = {name.upper(): value for name, value in os.environ.items() if name.upper().startswith("AWS_")}
    access, secret = named.get("AWS_ACCESS_KEY_ID", ""), named.get("AWS_SECRET_ACCESS_KEY", "")
    if row.signing == Bucket.Signing.NONE or not (access and secret):
        raise Refused("the bucket %(name)s needs an access key of its own for uploads", field="name", name=row.name)
    return Keys(access, secret, named.get("AWS_SESSION_TOKEN", ""))


class Signer:
    """Signs requests to one bucket, all as of the same moment."""

    def __init__(self, row: Bucket):
        self.row, self.keys = row, keys_of(row)
        now = datetime.now(UTC)
        self.moment = now.strftime("%Y%m%dT%H%M%SZ")
        self.scope = f"{self.moment[:8]}/{row.region}/s3/aws4_request"
        parts = urlsplit((row.endpoint or AWS.format(region=row.region)).rstrip("/"))
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        if parts.port not in (None, PORTS[parts.scheme]):
            host = f"{host}:{parts.port}"
        self.host = f"{row.bucket}.{host}" if row.virtual_hosted else host
        self.base = f"{parts.scheme}://{self.host}"
        self.folder = parts.path if row.virtual_hosted else f"{parts.path}/{quote(row.bucket, safe='')}"
        self.signing_key = self._signing_key()

    def _signing_key(self) -> bytes:
        key = f"AWS4{self.keys.secret}".encode()
        for part in self.scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key

    def key(self, path: str) -> str:
        """Return the key of the object at a path below the folder of the bucket."""
        return f"{self.row.prefix}/{path}" if self.row.prefix else path

    def address(self, method: str, path: str = "", query: Mapping[str, str] | None = None, **headers: str) -> str:
        """Return an address for one request to the object at a path, or to the bucket. The request must have the
        headers, such as `content_length`, with just these values.
        """
        headers = {"host": self.host, **{name.replace("_", "-"): value for name, value in headers.items()}}
        headers = dict(sorted(headers.items()))
        signed = ";".join(headers)
        asked = {
            **(query or {}),
            "X-Amz-Algorithm": ALGORITHM,
            "X-Amz-Credential": f"{self.keys.access}/{self.scope}",
            "X-Amz-Date": self.moment,
            "X-Amz-Expires": str(int(SIGNED_FOR.total_seconds())),
            "X-Amz-SignedHeaders": signed,
        }
        if self.keys.session:
            asked["X-Amz-Security-Token"] = self.keys.session
        pairs = sorted((quote(name, safe="~"), quote(value, safe="~")) for name, value in asked.items())
        text = "&".join(f"{name}={value}" for name, value in pairs)
        place = self.folder + (f"/{quote(self.key(path), safe='/~')}" if path else "") or "/"
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        request = "\n".join((method, place, text, lines, signed, "UNSIGNED-PAYLOAD"))
        digest = hashlib.sha256(request.encode()).hexdigest()
        said = "\n".join((ALGORITHM, self.moment, self.scope, digest))
        signature = hmac.digest(self.signing_key, said.encode(), "sha256").hex()
        return f"{self.base}{place}?{text}&X-Amz-Signature={signature}"
