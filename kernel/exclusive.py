"""One process at a time works on a sweep or a pipeline's run, and repeats its work if it was requested meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection, models
from django.db.models import F


def advance(model: type[models.Model], lock: int, pk: int, work: Callable[[int], None]) -> None:
    """Call `work(pk)`, again while somebody has asked since it began. `lock` is the first half of the advisory locks.

    The row counts in `wanted` who has asked. Another process that works on it does it instead.
    """
    rows = model._default_manager.filter(pk=pk)
    rows.update(wanted=F("wanted") + 1)
    while True:
        with _alone(lock, pk) as mine:
            if not mine:
                return
            wanted = rows.values_list("wanted", flat=True).first()
            work(pk)
        if wanted == rows.values_list("wanted", flat=True).first():
            return  # nobody has asked since


@contextmanager
def _alone(lock: int, pk: int) -> Iterator[bool]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock, pk % 2**31])
        mine = cursor.fetchone()[0]
        try:
            yield mine
        finally:
            if mine:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock, pk % 2**31])
