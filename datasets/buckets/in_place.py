"""Buckets that runs read where they are: an operator has mounted them as folders, on this machine or by claims of the
cluster (docs/data.md). Nothing of them is fetched, however large a dataset is.

A folder shows what its bucket has at the moment, so a version is read there only if it was the same before the run.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from ..models import Bucket, Dataset, Manifest
from . import rows
from .manifests import Listed


def folder(row: Dataset, top: str) -> Path | None:
    """Return where runs find the objects of an external dataset, whose keys begin with `top`; None where its bucket is
    not mounted.
    """
    name, _path = rows.parse(row.src)
    mounted = settings.BUCKET_MOUNTS.get(name)
    prefix = Bucket.objects.filter(name=name).values_list("prefix", flat=True).first() if mounted else None
    return Path(mounted, prefix, top) if prefix is not None else None


def of(row: Dataset, number: int) -> Path | None:
    """Return where runs read a version, when it has been compared with its bucket and is not in the cache."""
    found = Manifest.objects.filter(version__dataset=row, version__number=number, cached=None, compared__isnull=False)
    top = found.values_list("top", flat=True).first()
    return folder(row, top) if top is not None else None


def shows(place: Path, listed: Listed) -> bool:
    """Return whether the folder has these files, as far as can be seen from here: a claim is mounted in pods only."""
    if settings.MLP_RUNNER != "local":
        return True
    try:
        return all((place / each.path).stat().st_size == each.size for each in (listed.entries[0], listed.entries[-1]))
    except (OSError, IndexError):
        return False
