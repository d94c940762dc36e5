"""The verbs of the trash of datasets, models, applications and workspaces, for the tests of row locks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import ModuleType

from django.conf import settings
from django.utils import timezone


def of_trash(module: ModuleType, make: Callable) -> Iterator[tuple[str, object, Callable[[], object]]]:
    """Yield each verb of an app's trash with a row that `make` has made."""
    now = timezone.now()
    old = now - timedelta(days=settings.TRASH_DAYS + 1)
    for verb, since, call in [
        ("trash", None, lambda row: module.trash(user=row.user, name=row.name, by="test")),
        ("trash: again", now, lambda row: module.trash(user=row.user, name=row.name, by="test")),
        ("restore", now, lambda row: module.restore(user=row.user, name=row.name, by="test")),
        ("delete", now, lambda row: module.delete(row, "test")),
        ("purge", old, lambda row: module.purge(now)),
    ]:
        row = make(state="error", trashed=since)
        yield verb, row, lambda call=call, row=row: call(row)
