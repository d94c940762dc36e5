"""The Code tab of a job: its files, what it ran with, a comparison with another job."""

from __future__ import annotations

import shlex

from django.http import Http404
from django.shortcuts import render
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.utils.translation import gettext_noop as noop
from django.views.decorators.http import require_GET

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.frame import frame, own
from jobs.models import Capture, Job
from snapshots.manifest import REASONS, Manifest

from . import capture, diffs, highlighting, reading
from .api import FORMS, archive_response

SKIPPED_SHOWN = 200
OFFERED = 100
SETTINGS = {"script": gettext_lazy("Script"), "runtime": gettext_lazy("Runtime"), "image": gettext_lazy("Image")}
NOTES = {
    "binary": noop("not text, or too long to compare"),
    "long": noop("too many lines differ to compare them"),
    "ends": noop("only line ends or the mode differ"),
    "uncompared": noop("not compared: too many files differ"),
}


@shareable
@require_GET
def code(request, name):
    """Show one file of the code (`?file=`, by default the script) and what the run recorded."""
    row = own(request, name)
    kept = reading.manifest_of(row)
    path = request.GET.get("file", row.entry)
    file = kept.file(path) if kept else None
    if kept and file is None and "file" in request.GET:
        raise Http404
    text = reading.text_of(row, path) if file else None
    notes = Capture.objects.filter(job=row).first()
    context = {
        **frame(row, "job_code"),
        "kept": kept,
        "tree": _tree(kept, path) if kept else [],
        "file": file,
        "lines": highlighting.lines(text, path) if text is not None else None,
        "path": path,
        "skipped": [(each, _(REASONS[each.reason])) for each in kept.skipped[:SKIPPED_SHOWN]] if kept else [],
        "hidden": max(0, len(kept.skipped) - SKIPPED_SHOWN) + kept.more if kept else 0,
        "git": notes and notes.git,
        "datasets": (notes and notes.datasets) or {},
        "environment": capture.environment_of(row),
        "command": shlex.join([row.entry, *row.args]),
        "others": _others(request, row),
    }
    return render(request, "jobs/code.html", context)


@shareable
@require_GET
def archive(request, name):
    """Send all saved files: `?format=zip`, or tar."""
    form = request.GET.get("format", "tar")
    if form not in FORMS:
        raise Http404
    return archive_response(own(request, name), form)


@shareable
@require_GET
def diff(request, name):
    """Show the differences between the job and the one in `?with=`, from the older to the newer one: code, arguments,
    environment, packages.
    """
    row = own(request, name)
    other = own(request, request.GET.get("with", ""))
    old, new = sorted((row, other), key=lambda job: (job.created, job.pk))
    difference = diffs.between(old, new)
    split = request.GET.get("view") == "split"
    for file in difference["files"]:
        file["says"] = _(NOTES[file["note"]]) if file["note"] else ""
        file["pairs"] = diffs.sides(file["lines"] or []) if split else None
    context = {
        **frame(row, "job_code"),
        "other": other,
        "old": _link(old),
        "new": _link(new),
        "diff": difference,
        "settings": [{**each, "name": SETTINGS[each["name"]]} for each in difference["settings"]],
        "split": split,
        "args_pairs": diffs.sides(difference["args"]) if split else None,
        "same": not any(difference.values()),
        "recorded": all(capture.environment_of(job) for job in (row, other)),
        "others": _others(request, row),
    }
    return render(request, "jobs/code_diff.html", context)


def _link(job: Job) -> SafeString:
    return format_html('<a href="{}">{}</a>', access.address(job, "job_code"), job.shown_name)


def _others(request, row: Job) -> list[tuple[str, str]]:
    """Return names and titles of the owner's newest other jobs; a reader compares by the address alone."""
    if row.reading is not None:
        return []
    rows = Job.objects.filter(user=row.user, trashed=None).exclude(pk=row.pk).order_by("-pk")
    return list(rows.values_list("name", "title")[:OFFERED])


def _tree(kept: Manifest, current: str) -> list[dict]:
    """Return the folders and files in order, each with its depth."""
    rows, seen = [], set()
    for file in sorted(kept.files, key=lambda each: each.path.split("/")):
        parts = file.path.split("/")
        for depth in range(len(parts) - 1):
            folder = "/".join(parts[: depth + 1])
            if folder not in seen:
                seen.add(folder)
                rows.append({"name": f"{parts[depth]}/", "depth": min(depth, 9), "path": ""})
        rows.append(
            {
                "name": parts[-1],
                "depth": min(len(parts) - 1, 9),
                "path": file.path,
                "size": file.size,
                "current": file.path == current,
            }
        )
    return rows
