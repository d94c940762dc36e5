"""One file of a job's output in the browser: a preview, a notebook, the image itself, or an HTML page in a sandbox.

The scripts of an HTML page (of plotly or evidently, say) run in an origin of its own, without cookies, storage or a
network: they can neither act as the visitor nor send anything. It is shown in a frame of the file's page only, so that
it cannot take the platform's place in a tab.
"""

from __future__ import annotations

import os
from typing import BinaryIO
from urllib.parse import quote

from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing.access import shareable
from kernel import downloads, preview, storage
from kernel.errors import Refused
from kernel.picture import image_kind, is_showable

from .frame import own
from .models import Job
from .models.submission import NOTEBOOK
from .notebooks import showing

PAGES = (".html", ".htm")
MAX_PAGE = 16 << 20  # bytes: nginx stores as much of a response
SANDBOX = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' "
    "data: blob:; style-src 'unsafe-inline' data:; img-src data: blob:; font-src data:; media-src data: blob:; "
    "worker-src blob:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'",
    "X-Frame-Options": "SAMEORIGIN",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


@shareable
@require_GET
def file(request, name, path):
    """Preview a file: the beginning of a text, the first rows of a table, an image."""
    row = own(request, name)
    with _open(row, path) as file:
        shown = preview.preview_of(file, path)
        file.seek(0)
        notebook = showing.shown(file, path) if path.endswith(NOTEBOOK) else None
    folder, _, last = path.rpartition("/")
    page = path.lower().endswith(PAGES) and shown["text"] and shown["size"] <= MAX_PAGE
    context = {
        "job": row, "path": path, "folder": folder, "name": last, "page": page, "notebook": notebook, **shown,
    }  # fmt: skip
    return render(request, "jobs/file.html", context)


@shareable
@require_GET
def page(request, name, path):
    """Send an HTML page for the frame of `look`; a browser that opens it by itself is answered 404."""
    row = own(request, name)
    if not path.lower().endswith(PAGES) or request.META.get("HTTP_SEC_FETCH_DEST", "iframe") != "iframe":
        raise Http404
    with _open(row, path) as file:
        if os.fstat(file.fileno()).st_size > MAX_PAGE:
            raise Http404
        return HttpResponse(file.read(MAX_PAGE), content_type="text/html; charset=utf-8", headers=SANDBOX)


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
