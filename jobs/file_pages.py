"""One file of a job's output in the browser: a look at it, or the picture itself for a page of ours (contract 7)."""

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
    """A text's beginning, a table's first rows, a picture."""
    row = own(request, name)
    with _open(row, path) as file:
        shown = preview.of(file, path)
    folder, _, last = path.rpartition("/")
    return render(request, "jobs/file.html", {"job": row, "path": path, "folder": folder, "name": last, **shown})


@login_required
@require_GET
def picture(request, name, path):
    """Nothing but pictures, told by their first bytes: no other file of a script's is ever shown by a browser."""
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
