"""What a dataset holds of its tenant's disk space: the bytes of all its versions, in one resource request. Those of an
external one are in its bucket, and count while they are in the cache, or on their way there.
"""

from __future__ import annotations

from django.db.models import Q, Sum

from resources import tcc

from .models import Dataset

APPLIER = "dm"


def request_id(pk: int) -> str:
    """Return the id of the dataset's resource request."""
    return f"dataset:{pk}"


def rom_of(row: Dataset) -> int:
    """Return the bytes that a dataset should hold. One without versions holds those that were declared."""
    if not row.external and row.version == 1 and row.incoming_id is None:
        return row.size
    return _of_versions(row)


def _of_versions(row: Dataset) -> int:
    here = Q(manifest=None) | Q(manifest__cached__isnull=False) | Q(manifest__asked__isnull=False)
    return row.versions.filter(here).aggregate(sum=Sum("size"))["sum"] or 0


def hold(row: Dataset) -> None:
    """Let the locked dataset hold the bytes of its versions. Raises Refused when the tenant has not enough."""
    rom = _of_versions(row)
    tcc.resize(id=request_id(row.pk), applier=APPLIER, tenant=row.tenant_id, owner=row.user.username, rom=rom)
