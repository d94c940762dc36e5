"""A dataset's files in the browser: folders, a preview, the download of one file or of all as an archive.

nginx sends the bytes where it is in front; only the beginning of a text is read here, for the preview.
"""

from __future__ import annotations

import re
import stat
from os import stat_result
from typing import BinaryIO

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from accounts.sharing import access
from accounts.sharing.access import shareable
from kernel import downloads, names, preview
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import sentences
from kernel.picture import image_kind, is_showable

from . import folders, versions
from .buckets import manifests
from .buckets.waiting import Slow
from .models import Dataset, State
from .webdav import tree
from .webdav.paths import href
from .webdav.verbs import FILES

ARCHIVE = "/-data/archive"
ROWS = 200  # files of a folder on one page
IMAGES = 60  # on one page of the gallery
PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
THUMB_BYTES = 2 << 20  # a larger image is only listed


def own(request, name: str, trashed: bool = False) -> Dataset:
    """Return the visitor's dataset of that name; at `/u/{owner}/…` the owner's, if the visitor may read it. With
    `trashed` also one that is in the visitor's trash.

    Raises Http404.
    """
    rows = Dataset.objects if trashed else Dataset.kept
    return access.find(request, rows.select_related("user"), name)


def version_of(request, row: Dataset) -> int:
    """Return the number of the version that `?version=` names, or of the current one. Raises Http404."""
    wanted = request.GET.get("version", "")
    if not wanted:
        return row.version
    if not re.fullmatch(names.VERSION, wanted) or (number := versions.find(row, wanted)) is None:
        raise Http404
    return number


def listing(request, row: Dataset) -> dict:
    """Return one page of the content of the folder `?in=`, folders first, for the template; with `?view=gallery` of its
    images. Raises Http404.
    """
    inside, number = request.GET.get("in", "").strip("/"), version_of(request, row)
    parts = tuple(inside.split("/")) if inside else ()
    try:
        if inside:
            names.file_path(inside)
        if row.external:
            entries = manifests.children(row, number, inside)
        else:
            entries = tree.children((*versions.steps_of(row, number), *parts))
    except (Refused, OSError, ValueError):
        if parts:
            raise Http404
        entries = []
    above = "/".join((*parts, "")) if parts else ""
    below = folders.sums(row, number, inside)
    rows = [_entry(name, above, info, below) for name, info in entries]
    rows.sort(key=lambda each: not each["folder"])
    images = [] if row.external else [each for each in rows if each["picture"]]
    gallery = bool(images) and request.GET.get("view") == "gallery"
    trail = [{"name": part, "path": "/".join(parts[: at + 1])} for at, part in enumerate(parts)]
    pages = Paginator(images, IMAGES) if gallery else Paginator(rows, ROWS)
    return {
        "files": pages.get_page(request.GET.get("page")),
        "inside": inside,
        "trail": trail,
        "total": below[""],
        "images": len(images),
        "gallery": gallery,
        "number": number,
        "at": f"version={number}" if number != row.version else "",
    }


def _entry(name: str, above: str, info: stat_result, below: dict[str, folders.Sum]) -> dict:
    """Return a file or a folder for the template."""
    folder = stat.S_ISDIR(info.st_mode)
    picture = not folder and name.lower().endswith(PICTURES) and info.st_size <= THUMB_BYTES
    sums = below.get(name, folders.Sum()) if folder else None
    return {
        "name": name, "path": above + name, "folder": folder, "size": info.st_size, "picture": picture, "sums": sums
    }  # fmt: skip


@shareable
@require_GET
def dataset_file(request, name, path):
    """Send one file as a download; with `?show=1` an image to be shown in a page."""
    row = own(request, name)
    if row.external:
        return _in_bucket(request, row, path)
    base = versions.steps_of(row, version_of(request, row))
    file = open_file(base, path) if row.state != State.DELETING else None
    if file is None:
        raise Http404
    kind = image_kind(file) if request.GET.get("show") and is_showable(file) else ""
    if request.GET.get("show") and not kind:
        file.close()
        raise Http404
    return send(request, file, (*base, *path.split("/")), kind)


def _in_bucket(request, row: Dataset, path: str) -> HttpResponse:
    """Send the browser to a file in its bucket, or back to the dataset with the reason why not. Raises Http404."""
    number = version_of(request, row)
    try:
        address = manifests.address(row, number, path)
    except Missing:
        raise Http404
    except (Refused, Slow) as problem:
        messages.error(request, sentences(problem.problem) if isinstance(problem, Refused) else problem.msg)
        return redirect(access.address(row))
    response = redirect(address) if address else HttpResponse(content_type=downloads.BYTES)
    response["Cache-Control"] = "no-store"
    return response


@shareable
@require_GET
def dataset_archive(request, name):
    """Send all files as one tar."""
    row = own(request, name)
    if row.state == State.DELETING or row.external or not downloads.is_behind_nginx(request):
        raise Http404
    response = HttpResponse(content_type="application/x-tar")
    number = version_of(request, row)
    title = row.name if number == row.version else f"{row.name}@{number}"
    response["Content-Disposition"] = content_disposition_header(True, f"{title}.tar")
    response["X-Accel-Redirect"] = f"{ARCHIVE}/{downloads.reader(request.user, row.user)}" + href(
        *versions.steps_of(row, number)
    ).removeprefix("/data")
    return response


@shareable
@require_GET
def dataset_view(request, name, path):
    """Show a preview of one file: a text's beginning, a table's first rows, an image."""
    row = own(request, name)
    if row.external:
        return _in_bucket(request, row, path)
    number = version_of(request, row)
    file = open_file(versions.steps_of(row, number), path) if row.state != State.DELETING else None
    if file is None:
        raise Http404
    with file:
        shown = preview.preview_of(file, path)
    folder, _, last = path.rpartition("/")
    context = {
        "dataset": row,
        "path": path,
        "folder": folder,
        "name": last,
        "number": number,
        "at": f"version={number}" if number != row.version else "",
        **shown,
    }
    return render(request, "datasets/file.html", context)


def open_file(base: tuple[str, ...], path: str) -> BinaryIO | None:
    """Open a regular file below `base` without following any link; None when there is none."""
    steps = (*base, *path.split("/"))
    try:
        names.file_path(path)
        info = tree.status(steps)
        if info is None or not stat.S_ISREG(info.st_mode):
            return None
        return tree.reader(steps)
    except (Refused, OSError, ValueError):
        return None


def send(request, file: BinaryIO, steps: tuple[str, ...], kind: str = "") -> HttpResponse:
    """Send the open file as a download, or for display when `kind` is an image's; nginx does it if it can."""
    return downloads.send(request, file, steps[-1], FILES + href(*steps).removeprefix("/data"), kind)
