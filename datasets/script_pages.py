"""Scripts in the browser: the files of the user's `.home`, a form to upload more, and an editor."""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from functools import partial
from itertools import islice

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.timezone import datetime, get_current_timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kernel import names, storage
from kernel.errors import Refused
from kernel.messages import translate
from kernel.pages import (
    Problems,
    address,
    problems_of,
)

from .file_pages import open_file, send
from .webdav import tree
from .webdav.admission import clear, discard, writing
from .webdav.errors import HttpError
from .webdav.paths import HOME, Target

FILES_SHOWN = 500
EDITED_BYTES = 256 << 10  # bytes; the longest file that can be edited
SCRIPT_BYTES = 5 << 20  # bytes; the largest upload by the form, larger ones go through the data service
EXAMPLE = "plain_python/train.py"


@login_required
@require_http_methods(["GET", "POST"])
def scripts(request):
    """List the files in `.home`, with a form to upload more."""
    problems = Problems()
    if request.method == "POST":
        problems = problems_of(lambda: _upload_scripts(request), ("path", "file"))
        if not problems:
            return redirect("scripts")
    files = list(islice(storage.files(storage.home_dir(request.user.username)), FILES_SHOWN + 1))
    rows = [
        {"path": path, "size": info.st_size, "modified": _moment(info.st_mtime), "runs": path.endswith(".py")}
        for path, info in files[:FILES_SHOWN]
    ]
    context = {
        "rows": rows,
        "more": len(files) > FILES_SHOWN,
        "shown": FILES_SHOWN,
        "problems": problems,
        "form": request.POST,
        "gateway": address(request),
    }
    return render(request, "datasets/scripts.html", context, status=problems.status if problems else 200)


def _upload_scripts(request) -> None:
    """Store the files of the form, or say how many the page's own script has stored (`stored`).

    Several files are stored below the folder `path`: those that can be, whatever is wrong with others.
    """
    if (stored := request.POST.get("stored", "")).isdecimal() and len(stored) < 10:
        _say_stored(request, int(stored))
        return
    files = request.FILES.getlist("file")
    if not files or any(file.size > SCRIPT_BYTES for file in files):
        raise Refused("choose files of at most 5 MiB each; use the data client for larger files", field="file")
    given, replace = request.POST.get("path", "").strip(), bool(request.POST.get("replace"))
    if len(files) == 1:
        path = given or files[0].name
        save_in_home(request.user, path, files[0].read(), replace=replace)
        messages.success(request, _("%(path)s is saved.") % {"path": path})
        return
    failed = 0
    for file in files:
        path = f"{given.rstrip('/')}/{file.name}" if given else file.name
        save = partial(save_in_home, request.user, path, file.read(), replace=replace)
        if problem := problems_of(save, ("path",)):
            failed += 1
            messages.error(request, f"{path}: {problem.fields.get('path') or problem.general}")
    _say_stored(request, len(files) - failed)


def _say_stored(request, count: int) -> None:
    if count:
        messages.success(
            request, ngettext("%(count)d file is saved.", "%(count)d files are saved.", count) % {"count": count}
        )


@login_required
@require_http_methods(["GET", "POST"])
def script(request, path=""):
    """Edit one script; without a path a new one, with `?example=1` filled with the example."""
    problems, text, digest, too_much = Problems(), "", "", False
    if path:
        data = _read(request.user.username, path)
        text, too_much = _text(data)
        digest = _digest(data)
        if too_much and request.method == "POST":
            raise Http404
    elif request.GET.get("example"):
        text = (settings.BASE_DIR / "examples" / EXAMPLE).read_text()
    if request.method == "POST":
        text = request.POST.get("text", "").replace("\r\n", "\n")
        problems = problems_of(lambda: _save_edited(request, path, text), ("path",))
        if not problems:
            name = path or request.POST["path"].strip()
            messages.success(request, _("%(path)s is saved.") % {"path": name})
            return redirect("script", path=name)
        digest = request.POST.get("was", "")
    context = {
        "path": path,
        "name": request.POST.get("path", "train.py" if request.GET.get("example") else ""),
        "text": text,
        "digest": digest,
        "too_much": too_much,
        "problems": problems,
    }
    return render(request, "datasets/script.html", context, status=problems.status if problems else 200)


def _save_edited(request, path: str, text: str) -> None:
    if path:
        there = _digest(_read(request.user.username, path))
        if there != request.POST.get("was") and not request.POST.get("replace"):
            raise Refused("the script has changed since you opened it; tick “Overwrite if it exists” to replace it")
    replace = bool(path) or bool(request.POST.get("replace"))
    save_in_home(request.user, path or request.POST.get("path", "").strip(), text.encode(), replace=replace)


@login_required
@require_GET
def script_file(request, path):
    file = open_file((request.user.username, HOME), path)
    if file is None:
        raise Http404
    return send(request, file, (request.user.username, HOME, *path.split("/")))


@login_required
@require_POST
def delete_script(request, path):
    target = _target(request.user, path)
    try:
        with writing(target) as (quota,):
            if tree.status(target.steps) is None:
                raise Http404
            quota.charge(-tree.size(target.steps))
            trash = discard(target.steps)
        clear(trash)
    except HttpError as answer:
        messages.error(request, translate(answer.msg))
    else:
        messages.success(request, _("%(path)s is deleted.") % {"path": path})
    return redirect("scripts")


def _target(user, path: str) -> Target:
    try:
        names.file_path(path)
    except Refused:
        raise Http404
    return Target(user.username, HOME, tuple(path.split("/")))


def save_in_home(user, path: str, data: bytes, *, replace: bool) -> None:
    """Store a file in `.home` as the data service does: within its quota, and atomically. Raises Refused."""
    names.entry(path, "path")
    target = Target(user.username, HOME, tuple(path.split("/")))
    spool = storage.spool_dir() / f"page-{uuid.uuid4().hex}"
    try:
        spool.write_bytes(data)
        with writing(target) as (quota,), tree.folder(target.steps[:-1], make=True) as parent:
            there = tree.status(target.steps)
            if there is not None and stat.S_ISDIR(there.st_mode):
                raise Refused("a folder of that name already exists", field="path")
            if there is not None and not replace:
                raise Refused("a file of that name already exists", field="path")
            quota.charge(len(data) - (there.st_size if there else 0))
            os.rename(spool, target.steps[-1], dst_dir_fd=parent)
    except HttpError as answer:
        raise Refused(answer.problem, field=answer.field)
    except (NotADirectoryError, FileExistsError):
        raise Refused("a parent folder is a file or a symbolic link", field="path")
    finally:
        spool.unlink(missing_ok=True)


def _read(username: str, path: str) -> bytes:
    """Return a script's bytes, at most one more than the editor takes. Raises Http404."""
    file = open_file((username, HOME), path)
    if file is None:
        raise Http404
    with file:
        return file.read(EDITED_BYTES + 1)


def _text(data: bytes) -> tuple[str, bool]:
    """Return (text, False), or ("", True) for what is too long for the editor or not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "", True
    return ("", True) if len(data) > EDITED_BYTES or "\x00" in text else (text, False)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _moment(stamp: float):
    return datetime.fromtimestamp(stamp, get_current_timezone())
