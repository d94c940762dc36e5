"""The log of an application: a piece from an offset, its end, or followed. Used by api, pages and admin.

The application may write in the folder, so no link in it is followed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from django.http import HttpRequest, HttpResponse

from jobs import logs

from . import launching
from .models import Application, State

PIECE = 16 << 20


def open_log(app: Application) -> BinaryIO | None:
    """Open the log; None when there is none."""
    return launching.log_file(app).open()


def size(app: Application) -> int:
    """Return the size of the log in bytes."""
    file = open_log(app)
    if file is None:
        return 0
    with file:
        return os.fstat(file.fileno()).st_size


def read(app: Application, offset: int, most: int = PIECE) -> bytes:
    """Return at most `most` bytes from `offset`, none beyond the end."""
    file = open_log(app)
    if file is None:
        return b""
    with file:
        file.seek(min(offset, os.fstat(file.fileno()).st_size))
        return file.read(most)


def end(app: Application, limit: int) -> tuple[str, int, int, bool]:
    """Return (the end of the log as text, its first byte, the byte to continue from, whether it was cut)."""
    return logs.ending(lambda at, most: read(app, at, most), size(app), limit)


def follow(request: HttpRequest, app: Application, offset: int) -> HttpResponse:
    """Return a response that streams the log from `offset` on, until the application should no longer be up."""
    return logs.followed_text(request, app, lambda at, most: read(app, at, most), is_over(app), offset)


def is_over(app: Application) -> Callable[[], bool]:
    """Return a function that returns whether the application is no longer to run."""
    return lambda: not Application.objects.filter(pk=app.pk, state__in=[State.CREATING, State.READY]).exists()
