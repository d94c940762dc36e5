"""HTTP with the server of a bucket, by the presigned addresses that the platform makes."""

from __future__ import annotations

import hashlib
import re
import sys
from urllib.parse import urlsplit
from xml.sax.saxutils import unescape

from . import __version__
from .connection import Connection
from .texts import tr
from .transfer.errors import DAMAGED, REFUSED, UNREACHABLE, Failure, Trouble
from .transfer.web import Response, Web

# S3 answers these with 400, although another try may succeed.
PASSING = {"RequestTimeout", "IncompleteBody", "InternalError", "SlowDown", "OperationAborted"}

# Some servers answer an address that is not good any more with 400, others have another word in 403.
EXPIRED = {"AccessDenied", "ExpiredToken", "RequestTimeTooSkewed"}

MOST_BODY = 8 << 20  # bytes of an answer; a list of 1,000 parts has less than 1 MiB
MOST_WORDS = 64 << 10  # bytes of an answer in which a single field is looked for
MOST_SAID = 500  # characters of what the server says is wrong


def md5(data: bytes = b""):
    """Return the checksum that S3 has; Python 3.8 does not know how to say that it is for no secret."""
    return hashlib.md5(data) if sys.version_info < (3, 9) else hashlib.md5(data, usedforsecurity=False)


class Answer(Response):
    """A response of S3, whose errors are XML."""

    def __init__(self, host: str, response: Response):
        self.status, self.headers, self.body, self.host = response.status, response.headers, response.body, host

    def field(self, name: str) -> str:
        """Return the first element of that name, "" where there is none."""
        words = self.body.lstrip()[:MOST_WORDS]  # S3 sends spaces while it joins parts
        found = re.search(rf"<{name}>([^<]*)</{name}>", words.decode("utf-8", "replace"))
        return unescape(found.group(1), {"&quot;": '"', "&#34;": '"', "&apos;": "'", "&#39;": "'"}) if found else ""

    @property
    def code(self) -> str:
        """Return S3's word for the error, "" where there is none."""
        return self.field("Code") if b"<Error>" in self.body else ""

    @property
    def msg(self) -> str:
        """Return what the server says is wrong."""
        words = [self.code, self.field("Message")] if self.code else []
        return f"{self.host}: " + (": ".join(filter(None, words))[:MOST_SAID] or f"HTTP {self.status}")


class Bucket(Web):
    """The connections to the server of a bucket. The platform's token is never sent there."""

    def __init__(self, address: str, platform: Connection):
        parts = urlsplit(address)
        self.asked, self.platform = parts.netloc, platform
        super().__init__(f"{parts.scheme}://{parts.netloc}", platform.patience, platform.insists)
        self.headers = {"User-Agent": f"mlp-client/{__version__}"}
        self.context, self.note, self.stopping = platform.context, platform.note, platform.stopping

    def ask(self, method: str, address_of, expect=(), body: bytes = b"", headers=None) -> Answer:
        """Send a request to the address that `address_of(fresh)` returns. One that S3 refuses is asked for again, once:
        it is good for a few minutes. Raises Failure.
        """
        return self.put(method, address_of, len(body), lambda: [body] if body else [], headers or {}, expect)

    def put(self, method: str, address_of, size: int, blocks, headers: dict, expect=()) -> Answer:
        """Send a body in blocks, as `ask`."""
        for fresh in (False, True):
            path = self._path(address_of(fresh))
            allowed = expect if fresh else (*expect, 400, 403)
            if method in ("PUT", "POST"):
                answer = self.send(method, path, size, blocks, headers, allowed)
            else:
                answer = self.call(method, path, None, headers, allowed)
            if answer.status != 403 and answer.code not in EXPIRED:
                break
        self.judge(answer, expect)
        return answer

    def _path(self, address: str) -> str:
        parts = urlsplit(address)
        if parts.netloc != self.asked:
            raise Failure(REFUSED, tr("the bucket has moved to {host}; run the command again", host=parts.netloc))
        return f"{parts.path}?{parts.query}"

    def close(self) -> None:
        """Close this thread's connections, that to the platform as well."""
        super().close()
        self.platform.close()

    def judge(self, answer: Response, expect) -> None:
        """Raise Failure for a response with an error status not in `expect`."""
        if 300 <= answer.status < 400:
            raise Failure(REFUSED, tr("{problem} (is the region of the bucket right?)", problem=answer.msg))
        if answer.status < 400 or answer.status in expect:
            return
        code = DAMAGED if answer.code in ("BadDigest", "InvalidDigest") else REFUSED
        raise Failure(code, answer.msg)

    # --- one try ------------------------------------------------------------------------------------------------
    def _once(self, method: str, path: str, body: bytes, headers: dict) -> Answer:
        return self._judged(super()._once(method, path, body, headers))

    def _send(self, method: str, path: str, size: int, blocks, headers: dict) -> Answer:
        return self._judged(super()._send(method, path, size, blocks, headers))

    def _read(self, response) -> bytes:
        """Return the body. Raises Trouble where it is interrupted, Failure where it does not end."""
        body = b""
        try:
            while block := self.read_block(response):
                body += block
                if len(body) > MOST_BODY:
                    raise Failure(UNREACHABLE, tr("{host}: the answer is too large", host=self.asked))
        except (Failure, Trouble):
            self.close()
            raise
        return body

    def _judged(self, response: Response) -> Answer:
        """Return the answer. Raises Trouble where another try may succeed; S3 also answers 200 with such an error."""
        answer = Answer(self.asked, response)
        if answer.code in PASSING:
            raise Trouble(answer.msg)
        return answer
