"""One file of a job's output in the browser: a preview, or the image itself (contract 7)."""

from __future__ import annotations

import os
from typing import BinaryIO
from urllib.parse import quote

from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing.access import shareable
from kernel import downloads, preview, storage
from kernel.errors import Refused
from kernel.picture import image_kind, is_showable

from .frame import own
from .models import Job


@shareable
@require_GET
def look(request, name, path):
    """Preview a file: the beginning of a text, the first rows of a table, an image."""
    row = own(request, name)
    with _open(row, path) as file:
        shown = preview.of(file, path)
    folder, _, last = path.rpartition("/")
    return render(request, "jobs/file.html", {"job": row, "path": path, "folder": folder, "name": last, **shown})


@shareable
@require_GET
def picture(request, name, path):
    """Send an image, recognised by its first bytes; the browser never renders any other file of a script."""
    row = own(request, name)
    file = _open(row, path)
    kind = image_kind(file) if is_showable(file) else ""
    if not kind:
        file.close()
        raise Http404
    return downloads.send(request, file, path.rpartition("/")[2], output_address(row, path), kind)


def output_address(row: Job, path: str) -> str:
    """Return nginx's internal address of a file of the job's output."""
    return quote(f"/-jobs/{row.user.username}/{row.name}/") + quote(os.fsencode(storage.on_disk(path)))


def _open(row: Job, path: str) -> BinaryIO:
    try:
        file = storage.open_listed(storage.job_dir(row.user.username, row.name), path)
    except Refused:
        raise Http404
    if file is None:
        raise Http404
    return file
