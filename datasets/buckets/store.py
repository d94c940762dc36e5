"""A bucket of an S3 server: what is in it, and pieces of its objects. `writing` writes them.

obstore signs, repeats and times out the requests. It is imported with the first bucket: the extra `s3` installs it.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from django.conf import settings

from kernel import sanitize, storage
from kernel.environment import without
from kernel.errors import Refused
from kernel.messages import Message

from ..models import Bucket
from . import rows

SILENCE = {"connect_timeout": timedelta(seconds=10), "read_timeout": timedelta(seconds=60)}
PIECE = SILENCE | {"timeout": timedelta(minutes=5)}  # for one request
WHOLE = SILENCE | {"timeout": timedelta(hours=12)}
TRIED = SILENCE | {"timeout": timedelta(seconds=10)}  # a page waits for it
PAUSES = {"init_backoff": timedelta(seconds=1), "base": 3}  # each up to three times the last: a server may restart
RETRIES = {"max_retries": 8, "retry_timeout": timedelta(minutes=3), "backoff": PAUSES}
LISTED = {"max_retries": 5, "retry_timeout": timedelta(minutes=1)}  # S3 answers 503 where it is asked too often
SOON = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}  # so that a wrong address is told soon
PIECE_BYTES = 8 << 20
CHUNK_BYTES = 1 << 20
NOT_PARTIAL = "non-partial response"
# By object_store, which lists no folder with such a key.
NO_PATH = re.compile(r'Path "(.+?)"(?:: | contained empty path segment)', re.DOTALL)
CAUSE = re.compile(r"InvalidCertificate\(\s*(\w+)|kind: (ConnectionRefused|ConnectionReset|TimedOut)")
ERROR = re.compile(r"<Error>.*?<Code>(.+?)</Code>(?:.*?<Message>(.+?)</Message>)?.*", re.DOTALL)  # an answer of S3
# The library takes these from AWS_ variables, which the platform may have for its backups: no signature, or an
# encryption key, which would be sent to the servers of all buckets.
ALONE = {"skip_signature": False, "request_payer": False, "s3_express": False, "unsigned_payload": False}
# What takes the place of such a key. It asks for encryption of what is written, which a server without keys of its own
# refuses, such as MinIO: so only where there is such a variable.
ENCRYPTION, OWN_KEYS = "AWS_SERVER_SIDE_ENCRYPTION", {"server_side_encryption": "AES256"}
CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # in a tag they would end the line of a manifest
AWS = "https://s3.{region}.amazonaws.com"
WORDS = 300  # characters of a server's refusal
SIGNED_FOR = timedelta(minutes=5)  # a clock may be wrong by so much; what has begun by then is sent to its end


class Entry(NamedTuple):
    """An object: its path below the bucket's prefix, its bytes, and the tag that changes with its content, or ""."""

    path: str
    size: int
    tag: str


class Words(NamedTuple):
    """What is said of an object that is not as it was listed."""

    changed: Message
    gone: Message


COPIED = Words(
    Message("the object %(path)s changed while it was being copied"),
    Message("the object %(path)s was removed while it was being copied"),
)
LISTED_BEFORE = Words(
    Message("the object %(path)s has changed since the dataset was refreshed; refresh the dataset"),
    Message("the object %(path)s is not in the bucket any more; refresh the dataset"),
)


SENT = Words(
    Message("the object %(path)s changed while files were being sent"),
    Message("there is no place for the object %(path)s on the server: the bucket may be missing"),
)


class Store:
    """Raises Refused, which says what the server has refused, in each of its methods."""

    def __init__(self, row: Bucket, words: Words = COPIED, soon: bool = False):
        """Make the clients; `soon` for a page, which waits for them. Raises Refused."""
        self.row, self.words = row, words
        if missing := without("s3", "obstore"):
            raise Refused("the bucket %(name)s needs %(packages)s", field="src", name=row.name, packages=missing)
        self.api = importlib.import_module("obstore")
        self.problem = importlib.import_module("obstore.exceptions").BaseError
        with self.told():
            self.listing = self._client(TRIED, SOON) if soon else self._client(PIECE, LISTED)
            self.reading = self._client(PIECE, RETRIES)

    def _client(self, options: dict, retries: dict):
        row = self.row
        endpoint = row.endpoint or AWS.format(region=row.region)
        if row.virtual_hosted:  # the library has the whole address then
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{row.bucket}.{host}"
        return importlib.import_module("obstore.store").S3Store(
            row.bucket,
            prefix=row.prefix or None,
            region=row.region,
            endpoint=endpoint,
            aws_endpoint_url_s3=endpoint,  # else that of the environment comes first
            virtual_hosted_style_request=row.virtual_hosted,
            client_options={**options, **_trust(), "allow_http": endpoint.startswith("http://")},
            retry_config=retries,
            **self._signing(),
        )

    def _signing(self) -> dict:
        """Return how requests are signed. The library takes what is not said here from the environment, where the keys
        of another bucket may be.
        """
        if self.row.signing == Bucket.Signing.NONE:
            return {**_alone(), "skip_signature": True}
        if self.row.signing == Bucket.Signing.PLATFORM:
            return {}
        keys = {"access_key_id": self.row.access_key, "secret_access_key": rows.secret_of(self.row)}
        return {**_alone(), "credential_provider": lambda: {**keys, "token": None, "expires_at": None}}

    def test(self) -> None:
        """Ask for the first objects."""
        with self.told():
            next(iter(self.api.list(self._client(TRIED, SOON))), None)

    def list(self, path: str) -> Iterator[Entry]:
        """Yield the objects below the path, or the one at it; without a path all, by name within each answer."""
        found = False
        with self.told():
            for batch in self.api.list(self.listing, path or None):
                for meta in batch:
                    found = True
                    yield self._entry(meta)
            if path and not found:
                with contextlib.suppress(FileNotFoundError):
                    yield self._entry(self.api.head(self.listing, path))

    def pieces(self, entries: Iterable[Entry]) -> Iterator[tuple[Entry, int, int]]:
        """Yield (object, start, end) of what is asked for by one request: PIECE_BYTES of an object, all of it where the
        server sends no parts. Of an empty object nothing is asked for: it has one piece without bytes.
        """
        in_parts = None
        for entry in entries:
            most = PIECE_BYTES
            if entry.size > PIECE_BYTES:
                in_parts = self._sends_parts(entry) if in_parts is None else in_parts
                most = PIECE_BYTES if in_parts else entry.size
            for start in range(0, entry.size or 1, most):
                yield entry, start, min(start + most, entry.size)

    def _sends_parts(self, entry: Entry) -> bool:
        """Return whether the server answers 206 to a range, as S3 does; rclone's answers 200."""
        with self.told(entry.path):
            try:
                self.api.get(self.listing, entry.path, options={"range": (0, 1)})
            except self.problem as problem:
                if NOT_PARTIAL not in str(problem):
                    raise
                return False
        return True

    def read(self, entry: Entry, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from start to before end. Raises Refused, also where the object is another than listed."""
        left, whole = end - start, end - start == entry.size
        with self.told(entry.path):
            client = self.reading if left <= PIECE_BYTES else self._client(WHOLE, RETRIES)
            answer = self.api.get(client, entry.path, options={} if whole else {"range": (start, end)})
            now = self._entry(answer.meta)
            for chunk in answer.stream(min_chunk_size=CHUNK_BYTES) if now == entry else ():
                left -= len(chunk)
                if left < 0:  # more than was announced, and maybe without an end
                    break
                yield bytes(chunk)
        if left:
            raise Refused(self.words.changed, field="src", path=entry.path)

    def address(self, entry: Entry) -> str:
        """Return an address at which anybody can get the object for SIGNED_FOR, and no other. Raises Refused where it
        is another than listed.
        """
        client = self._client(TRIED, SOON)
        with self.told(entry.path):
            now = self._entry(self.api.head(client, entry.path))
        if now != entry:
            raise Refused(self.words.changed, field="src", path=entry.path)
        if self.row.signing == Bucket.Signing.NONE:
            return "/".join(filter(None, (self._base(), quote(self.row.prefix), quote(entry.path))))
        with self.told(entry.path):
            return self.api.sign(client, "GET", entry.path, expires_in=SIGNED_FOR)

    def _base(self) -> str:
        """Return the address below which the keys of the bucket are."""
        address = (self.row.endpoint or AWS.format(region=self.row.region)).rstrip("/")
        if not self.row.virtual_hosted:
            return f"{address}/{quote(self.row.bucket)}"
        scheme, _, host = address.partition("://")
        return f"{scheme}://{self.row.bucket}.{host}"

    @staticmethod
    def _entry(meta) -> Entry:
        return Entry(meta["path"], meta["size"], CONTROL.sub("?", (meta["e_tag"] or "").strip('"')))

    @contextlib.contextmanager
    def told(self, path: str = "") -> Iterator[None]:
        """Raise what the server or the library refuses as Refused."""
        try:
            yield
        except (self.problem, FileNotFoundError, ValueError) as problem:
            if path and isinstance(problem, FileNotFoundError):
                raise Refused(self.words.gone, field="src", path=path)
            if odd := NO_PATH.search(str(problem)):
                raise Refused(
                    "the bucket %(name)s has the key %(key)s, which cannot be a path; name a folder without it",
                    field="src", name=self.row.name, key=storage.shown(odd[1]),
                ) from problem  # fmt: skip
            raise Refused(
                "the bucket %(name)s: %(problem)s", field="src", name=self.row.name, problem=_words(problem)
            ) from problem


def _alone() -> dict:
    """Return what is in place of the AWS_ variables that say how requests are made."""
    return ALONE | (OWN_KEYS if any(name.upper() == ENCRYPTION for name in os.environ) else {})


def _trust() -> dict:
    """Return what a client trusts beside the public authorities: that of MLP_TLS_CA. Raises OSError."""
    return {"root_certificate": Path(settings.TLS.ca).read_text()} if settings.TLS.ca else {}


def _words(problem: Exception) -> str:
    """Return the reason without the details of the library, which fill pages, and of an answer in S3's XML only what it
    says: others of its fields name the access key.
    """
    said, _separator, details = str(problem).partition("\n\nDebug source")
    cause = CAUSE.search(details)
    said = ERROR.sub(_said, said) + (f" ({cause[1] or cause[2]})" if cause else "")
    return storage.shown(sanitize.text(" ".join(said.split())))[:WORDS]


def _said(answer: re.Match) -> str:
    return ": ".join(html.unescape(part) for part in answer.groups() if part)
