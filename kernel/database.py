"""The database as a server that may be away: what is asked of it within `reachable` raises Fault then.

For those who answer a shipper, or try again by themselves, outside of what middleware turns into 503. Used by aiops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import InterfaceError, OperationalError, connection

from .errors import Fault

log = logging.getLogger(__name__)

AWAY = "the database is not available, try again later"


@contextmanager
def reachable(words: str = AWAY) -> Iterator[None]:
    """Also a decorator. The dead connection is given up, so that the next try makes a new one; within a transaction
    that is left to whoever began it, for nothing of it has happened.
    """
    try:
        yield
    except (OperationalError, InterfaceError) as problem:
        log.warning("database: %s", str(problem).strip() or type(problem).__name__)
        connection.close_if_unusable_or_obsolete()
        raise Fault(words) from problem
