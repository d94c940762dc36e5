"""For operators, beside the dashboard: the logs of the platform's own parts, and the settings it runs with."""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.views.debug import SafeExceptionReporterFilter

from kernel import storage

TAIL_BYTES = 1 << 20
LINES = 500
LEVELS = ("ERROR", "WARNING", "INFO")
# Django's and the libraries' own, or long and of no use to an operator.
LEFT_OUT = {"UNFOLD", "SPECTACULAR_SETTINGS", "REST_FRAMEWORK", "TEMPLATES", "LOGGING", "INSTALLED_APPS", "MIDDLEWARE"}
PASSWORD_IN_URL = re.compile(r"(://[^:@/\s'\"]*):[^@/\s'\"]+@")


def logs(request: HttpRequest) -> HttpResponse:
    """The end of a part's log, newest line last; `?q=` and `?level=` narrow it down."""
    operators_only(request)
    parts = components()
    part, query, level = (
        request.GET.get("part", ""),
        request.GET.get("q", "").strip()[:100],
        request.GET.get("level", ""),
    )
    if part and part not in parts:
        raise Http404
    part = part or ("web" if "web" in parts else next(iter(parts), ""))
    lines = [line for line in tail(parts[part]) if query.lower() in line.lower()] if part else []
    if level in LEVELS:
        lines = [line for line in lines if level in line]
    context = {
        **admin.site.each_context(request),
        "title": gettext("Component logs"),
        "parts": list(parts),
        "part": part,
        "q": query,
        "level": level if level in LEVELS else "",
        "levels": LEVELS,
        "lines": lines[-LINES:],
        "shown": LINES,
    }
    return render(request, "admin/inside/logs.html", context)


def components() -> dict[str, list[Path]]:
    """The parts that have written something, with the files of each, oldest first."""
    found = {}
    for folder in sorted(storage.log_dir("").iterdir()) if storage.log_dir("").is_dir() else []:
        files = (
            [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()] if folder.is_dir() else []
        )
        if files:
            found[folder.name] = sorted(files, key=lambda path: path.stat().st_mtime)
    return found


def tail(files: list[Path]) -> list[str]:
    """The last lines of a part's newest files, together at most TAIL_BYTES."""
    parts: list[bytes] = []
    left = TAIL_BYTES
    for path in reversed(files):
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - left))
            data = file.read(left)
        parts.insert(0, data)
        left -= len(data)
        if left <= 0:
            break
    return b"".join(parts).decode(errors="replace").splitlines()


def shown_settings(request: HttpRequest) -> HttpResponse:
    """Every setting with its value; what is secret is starred out."""
    operators_only(request)
    safe = SafeExceptionReporterFilter().get_safe_settings()
    names = sorted(name for name in safe if settings.is_overridden(name) and name not in LEFT_OUT)
    rows = [(name, PASSWORD_IN_URL.sub(r"\1:********@", str(safe[name]))) for name in names]
    context = {**admin.site.each_context(request), "title": gettext("Effective settings"), "rows": rows}
    return render(request, "admin/inside/settings.html", context)


def operators_only(request: HttpRequest) -> None:
    if not request.user.is_superuser:
        raise PermissionDenied
