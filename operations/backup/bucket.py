"""An S3 bucket as a place for backups: AWS, or any server that speaks S3 (`AWS_ENDPOINT_URL`).

obstore signs, repeats and times out the requests; it reads the credentials where AWS's own tools do. It is imported
with the first bucket: the extra `s3` installs it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

from kernel.environment import without

from .places import BackupError, Folder, Place, Stored

REGION = "us-east-1"
TIMEOUT = {"timeout": timedelta(minutes=5), "connect_timeout": timedelta(seconds=10)}
RETRIES = {"max_retries": 5, "retry_timeout": timedelta(minutes=3)}
WORDS = 300  # characters of a server's refusal


def open_place(words: str) -> Place:
    """Return the place of a destination: a path, or `s3://bucket/prefix`. Raises BackupError."""
    scheme, separator, _ = words.partition("://")
    if not separator:
        return Folder(Path(words).absolute())
    if scheme == "s3":
        return Bucket(words)
    raise BackupError(f"{words}: a destination is a folder or s3://bucket/prefix")


class Bucket(Place):
    """The objects below the prefix of `s3://bucket/prefix`."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        if not parts.netloc:
            raise BackupError(f"{url}: name a bucket, s3://bucket/prefix")
        if missing := without("s3", "obstore"):
            raise BackupError(f"{url} needs {missing}")
        self.api = importlib.import_module("obstore")
        self.problems = (importlib.import_module("obstore.exceptions").BaseError, OSError)
        try:
            self.store = importlib.import_module("obstore.store").S3Store(
                parts.netloc,
                prefix=parts.path.strip("/") or None,
                region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION,
                client_options={**TIMEOUT, "allow_http": endpoint.startswith("http://")},
                retry_config=RETRIES,
                **({"endpoint": endpoint} if endpoint else {}),
            )
        except (*self.problems, ValueError) as problem:
            raise BackupError(f"{url}: {_words(problem)}") from problem

    def __str__(self) -> str:
        return self.url

    def read(self, name: str) -> bytes:
        with self._told(name, missing=True):
            return bytes(self.api.get(self.store, name).bytes())

    def write(self, name: str, data: bytes) -> None:
        with self._told(name):
            self.api.put(self.store, name, data)

    def list(self, prefix: str) -> Iterator[Stored]:
        with self._told(prefix):
            for batch in self.api.list(self.store, f"{prefix}/"):
                for entry in batch:
                    yield Stored(entry["path"], entry["size"], entry["last_modified"])

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._told(name, missing=True):
            self.api.delete(self.store, name)

    def is_empty(self) -> bool:
        return True  # a prefix is not a folder: other objects are not in the way

    @contextlib.contextmanager
    def _told(self, name: str, missing: bool = False) -> Iterator[None]:
        """Raise what the server refuses as BackupError; with `missing` let FileNotFoundError through."""
        try:
            yield
        except self.problems as problem:
            if missing and isinstance(problem, FileNotFoundError):
                raise
            raise BackupError(f"{self.url}/{name}: {_words(problem)}") from problem


def _words(problem: Exception) -> str:
    """Return the reason without the details of the library, which fill pages."""
    return " ".join(str(problem).partition("\n\nDebug source")[0].split())[:WORDS]
