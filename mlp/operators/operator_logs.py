"""The administrators' pages of component logs and effective settings."""

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
from kernel.environment import MASK

TAIL_BYTES = 1 << 20
LINES = 500
LEVELS = ("ERROR", "WARNING", "INFO")
# Settings of Django and the libraries, or long ones of no use to an administrator.
LEFT_OUT = {"UNFOLD", "SPECTACULAR_SETTINGS", "REST_FRAMEWORK", "TEMPLATES", "LOGGING", "INSTALLED_APPS", "MIDDLEWARE"}
PASSWORD_IN_URL = re.compile(r"(://[^:@/\s'\"]*):[^@/\s'\"]+@")
SECRET_IN_QUERY = re.compile(r"([?&][\w-]*(?:pass|secret|token|key)[\w-]*=)[^&\s'\"]+", re.IGNORECASE)


def logs(request: HttpRequest) -> HttpResponse:
    """Show the end of a component's log, newest line last; `?q=` and `?level=` filter it."""
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
    return render(request, "admin/operator_logs/logs.html", context)


def components() -> dict[str, list[Path]]:
    """Return the components that have written logs, with the files of each, oldest first."""
    files_of = {}
    for folder in sorted(storage.log_dir("").iterdir()) if storage.log_dir("").is_dir() else []:
        files = (
            [path for path in folder.iterdir() if path.is_file() and not path.is_symlink()] if folder.is_dir() else []
        )
        if files:
            files_of[folder.name] = sorted(files, key=lambda path: path.stat().st_mtime)
    return files_of


def tail(files: list[Path]) -> list[str]:
    """Return the last lines of a component's newest files, at most TAIL_BYTES in all."""
    chunks: list[bytes] = []
    left = TAIL_BYTES
    for path in reversed(files):
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - left))
            data = file.read(left)
        chunks.insert(0, data)
        left -= len(data)
        if left <= 0:
            break
    return b"".join(chunks).decode(errors="replace").splitlines()


def shown_settings(request: HttpRequest) -> HttpResponse:
    """Show every setting with its value; secrets are masked."""
    operators_only(request)
    safe = SafeExceptionReporterFilter().get_safe_settings()
    names = sorted(name for name in safe if settings.is_overridden(name) and name not in LEFT_OUT)
    rows = [(name, without_passwords(str(safe[name]))) for name in names]
    context = {**admin.site.each_context(request), "title": gettext("Effective settings"), "rows": rows}
    return render(request, "admin/operator_logs/settings.html", context)


def without_passwords(text: str) -> str:
    """Mask the passwords of URLs, which stand before the host or in the query."""
    return SECRET_IN_QUERY.sub(rf"\1{MASK}", PASSWORD_IN_URL.sub(rf"\1:{MASK}@", text))


def operators_only(request: HttpRequest) -> None:
    if not request.user.is_superuser:
        raise PermissionDenied
