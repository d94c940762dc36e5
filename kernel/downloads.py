"""A user's file as a response that a browser does not treat as a page of the platform; nginx sends the bytes if it is
in front.
"""

from __future__ import annotations

from typing import BinaryIO

from django.http import FileResponse, HttpRequest, HttpResponse
from django.utils.http import content_disposition_header

# The sandbox gives what is opened by itself an origin of its own, and nothing in it runs.
SAFE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
BYTES = "application/octet-stream"


def send(request: HttpRequest, file: BinaryIO, name: str, internal: str, kind: str = "") -> HttpResponse:
    """Send the open file as a download called `name`, or to be shown when `kind` is a media type that is safe to show.

    `internal` is nginx's internal address of the same file (supervision/gateway.conf.tmpl), which follows no link.
    """
    content_type = kind or BYTES
    if not is_behind_nginx(request):
        return FileResponse(file, as_attachment=not kind, filename=name, content_type=content_type, headers=SAFE)
    file.close()
    response = HttpResponse(content_type=content_type, headers=SAFE)
    response["Content-Disposition"] = content_disposition_header(not kind, name)
    response["X-Accel-Redirect"] = internal
    return response


def is_behind_nginx(request: HttpRequest) -> bool:
    """Return whether nginx passed the request on, by a header that it adds (supervision/gateway.conf.tmpl)."""
    return request.META.get("HTTP_X_SENDFILE_TYPE") == "X-Accel-Redirect"
