"""One file of a job's output in the browser: a preview, or the image itself (contract 7)."""

from __future__ import annotations

from typing import BinaryIO

from django.contrib.auth.decorators import login_required
from django.http import FileResponse, Http404
from django.shortcuts import render
from django.views.decorators.http import require_GET

from kernel import preview, storage
from kernel.errors import Refused

from .models import Job
from .pages import own


@login_required
@require_GET
def look(request, name, path):
    """Preview a file: the beginning of a text, the first rows of a table, an image."""
    row = own(request, name)
    with _open(row, path) as file:
        shown = preview.of(file, path)
    folder, _, last = path.rpartition("/")
    return render(request, "jobs/file.html", {"job": row, "path": path, "folder": folder, "name": last, **shown})


@login_required
@require_GET
def picture(request, name, path):
    """Send an image, recognised by its first bytes; the browser never renders any other file of a script."""
    file = _open(own(request, name), path)
    kind = preview.image_kind(file)
    if not kind:
        file.close()
        raise Http404
    return FileResponse(file, content_type=kind, headers=preview.SAFE)


def _open(row: Job, path: str) -> BinaryIO:
    try:
        file = storage.open_file(storage.job_dir(row.user.username, row.name), path)
    except Refused:
        raise Http404
    if file is None:
        raise Http404
    return file
