"""A user's file as a response that a browser does not treat as a page of the platform; nginx sends the bytes if it is
in front.
"""

from __future__ import annotations

import os
from typing import BinaryIO
from urllib.parse import quote

from django.http import FileResponse, HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import content_disposition_header

from . import storage

# The sandbox gives what is opened by itself an origin of its own, and nothing in it runs.
SAFE = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox"}
BYTES = "application/octet-stream"
TAG = "X-File-Tag"  # of our response, for nginx, which sends it as the file's ETag


def send(request: HttpRequest, file: BinaryIO, name: str, internal: str, kind: str = "") -> HttpResponse:
    """Send the open file as a download called `name`, or to be shown when `kind` is a media type that is safe to show.

    `internal` is nginx's internal address of the same file (supervision/gateway.conf.tmpl), which follows no link.
    """
    content_type = kind or BYTES
    info = os.fstat(file.fileno())
    if not is_behind_nginx(request) or is_matching(request):
        response = FileResponse(file, as_attachment=not kind, filename=name, content_type=content_type, headers=SAFE)
        return validated(request, response, info)
    file.close()
    response = HttpResponse(content_type=content_type, headers=SAFE)
    response["Content-Disposition"] = content_disposition_header(not kind, name)
    response["X-Accel-Redirect"] = internal
    return validated(request, response, info)


def rest_address(kind: str, user: str, name: str, path: str) -> str:
    """Return nginx's internal address of a file of an object for a REST call, whose answers have no ranges; `kind` is
    the folder `jobs` or `models`.
    """
    return quote(f"/-rest/{kind}/{user}/{name}/") + quote(os.fsencode(storage.on_disk(path)))


def reader(visitor, owner) -> int:
    """Return whose archives those of this visitor count with: a visitor by a link has those of the owner's visitors."""
    return visitor.pk if visitor is not None and visitor.is_authenticated else -owner.pk


def etag(info: os.stat_result) -> str:
    """Return the strong validator of a file (RFC 9110, 8.8.1): another content has another one, also of the same length
    within the same second, which nginx's own cannot tell apart.
    """
    return f'"{info.st_ino:x}-{info.st_mtime_ns:x}-{info.st_size:x}"'


def validated(request: HttpRequest, response: HttpResponse, info: os.stat_result) -> HttpResponse:
    """Return the response with the file's ETag, or 304 or 412 as the request's conditions say (RFC 9110, 13)."""
    tag = etag(info)
    answer = get_conditional_response(request, tag, int(info.st_mtime), response)
    if answer is not response:
        response.close()
    answer["ETag"] = answer[TAG] = tag
    return answer


def is_matching(request: HttpRequest) -> bool:
    """Return whether a request is for one version of a file (`If-Match`), which nginx would judge by its own tag."""
    return request.META.get("HTTP_IF_MATCH", "*").strip() != "*"


def is_behind_nginx(request: HttpRequest) -> bool:
    """Return whether nginx passed the request on, by a header that it adds (supervision/gateway.conf.tmpl)."""
    return request.META.get("HTTP_X_SENDFILE_TYPE") == "X-Accel-Redirect"
