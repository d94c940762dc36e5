"""Errors of an unreachable database as Fault.

For callers that answer a log shipper or retry by themselves, where no middleware turns the error into 503. Used by
aiops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError, connection

from .errors import Fault
from .messages import Message

log = logging.getLogger(__name__)

AWAY = Message("the database is not available; try again later")


@contextmanager
def reachable(words: str = AWAY) -> Iterator[None]:
    """Turn a lost database connection into Fault; also usable as a decorator.

    The dead connection is closed, so that the next call opens a new one; inside a transaction the outermost block does
    that, since nothing of it has been stored.
    """
    try:
        yield
    except (OperationalError, InterfaceError) as problem:
        log.warning("database: %s", str(problem).strip() or type(problem).__name__)
        connection.close_if_unusable_or_obsolete()
        raise Fault(words) from problem
