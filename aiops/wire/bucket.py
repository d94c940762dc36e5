"""The bucket through which models are exchanged with Opni's services: S3, of AWS or any server that speaks it.

Opni's inference service empties the whole bucket when a training starts, so an object may be gone at any time. The
library is imported with the first call, since most platforms have no bucket.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from django.conf import settings

from kernel.errors import Fault
from kernel.messages import Message

log = logging.getLogger(__name__)

CLIENT = {"timeout": timedelta(minutes=2), "connect_timeout": timedelta(seconds=5)}
RETRIES = {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}
MAX_BYTES = 1 << 30  # of an object; Opni's models have 80 MB
WORDS = 300  # characters of a server's refusal


class Bucket:
    def __init__(self):
        self.name = settings.AIOPS_S3_BUCKET
        endpoint = settings.AIOPS_S3_ENDPOINT
        store = importlib.import_module("obstore.store")
        self.api = importlib.import_module("obstore")
        with self._told():
            self.store = store.S3Store(
                self.name,
                region=settings.AIOPS_S3_REGION,
                access_key_id=settings.AIOPS_S3_ACCESS_KEY.reveal(),
                secret_access_key=settings.AIOPS_S3_SECRET_KEY.reveal(),
                client_options={**CLIENT, "allow_http": endpoint.startswith("http://")},
                retry_config=RETRIES,
                **({"endpoint": endpoint} if endpoint else {}),
            )

    def tag(self, name: str) -> str:
        """Return the object's entity tag, which changes with its content; "" when it does not exist. Raises Fault."""
        with self._told(), contextlib.suppress(FileNotFoundError):
            return str(self.api.head(self.store, name)["e_tag"] or "")
        return ""

    def put(self, name: str, path: Path) -> str:
        """Upload a file and return the object's tag. Raises Fault."""
        with self._told():
            self.api.put(self.store, name, path)
        return self.tag(name)

    def fetch(self, name: str, path: Path) -> None:
        """Download an object. Raises Fault, also when it is missing or larger than any model."""
        with self._told():
            entry = self.api.get(self.store, name)
            if entry.meta["size"] > MAX_BYTES:
                raise Fault(Message("%(name)s has more than %(most)s bytes", name=name, most=MAX_BYTES))
            with path.open("xb") as file:
                for chunk in entry:
                    file.write(chunk)

    def remove(self, name: str) -> None:
        """Remove an object; a missing one is no error. Raises Fault."""
        with self._told(), contextlib.suppress(FileNotFoundError):
            self.api.delete(self.store, name)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise what the server or the library refuses as a Fault; FileNotFoundError of the library is one inside."""
        base = importlib.import_module("obstore.exceptions").BaseError
        try:
            yield
        except (base, OSError, ValueError) as problem:
            log.warning("the bucket %s: %s", self.name, problem)
            words = " ".join(str(problem).partition("\n\nDebug source")[0].split())[:WORDS]
            raise Fault(Message("the bucket %(bucket)s: %(problem)s", bucket=self.name, problem=words)) from problem


def get() -> Bucket | None:
    """Return the bucket, None where none is set. Raises Fault."""
    return Bucket() if settings.AIOPS_S3_BUCKET else None
