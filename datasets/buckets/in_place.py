"""Buckets that runs read where they are: an operator has mounted them as folders, on this machine or by claims of the
cluster (docs/data.md). Nothing of them is fetched, however large a dataset is.

A folder shows what its bucket has at the moment, so a version is read there only if it was the same before the run.
"""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from runners import bounded

from ..models import Bucket, Dataset, Manifest
from . import rows
from .manifests import Listed
from .store import Entry

LOOK = Path(__file__).with_name("look.py")
LOOK_S = 10.0  # for a mount to answer; one whose server is away may never do


def folder(row: Dataset, top: str) -> Path | None:
    """Return where runs find the objects of an external dataset, whose keys begin with `top`; None where its bucket is
    not mounted, or the dataset is one object of a folder, whose others a run must not see.
    """
    name, path = rows.parse(row.src)
    mounted = settings.BUCKET_MOUNTS.get(name)
    if not mounted or top != path:
        return None
    prefix = Bucket.objects.filter(name=name).values_list("prefix", flat=True).first()
    return Path(mounted, prefix, top) if prefix is not None else None


def of(row: Dataset, number: int) -> Path | None:
    """Return where runs read a version, when it has been compared with its bucket and is not in the cache."""
    found = Manifest.objects.filter(version__dataset=row, version__number=number, cached=None, compared__isnull=False)
    top = found.values_list("top", flat=True).first()
    return folder(row, top) if top is not None else None


def to_bind(row: Dataset, number: int) -> Path | None:
    """Return where a run that starts now reads a version. None also where the folder is not there any more, or where a
    symbolic link leads elsewhere: who starts the run would follow it.
    """
    place = of(row, number)
    return place if place is not None and is_there(row, place) else None


def shows(row: Dataset, place: Path, listed: Listed) -> bool:
    """Return whether the folder has the files of a listing, as far as can be seen from here: the first and the last."""
    return bool(listed.entries) and is_there(row, place, listed.entries[0], listed.entries[-1])


def is_there(row: Dataset, place: Path, *entries: Entry) -> bool:
    """Return whether the folder of a mount has these files, without symbolic links on the way. False, too, where the
    mount does not answer within LOOK_S. A claim of the cluster cannot be seen from here: it is mounted in pods only,
    where Kubernetes follows no links.
    """
    if settings.MLP_RUNNER != "local":
        return True
    mounted = settings.BUCKET_MOUNTS[rows.parse(row.src)[0]]
    files = [text for each in entries for text in (each.path, str(each.size))]
    arguments = (mounted, str(place.relative_to(mounted)), *files)
    return bounded.succeeds(LOOK, arguments, LOOK_S)
