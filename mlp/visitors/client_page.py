"""The address of the command line client, one file for everybody."""

from __future__ import annotations

import hashlib
from functools import cache

from django.http import HttpResponse
from django.views.decorators.http import require_GET

from client.build import build


@cache
def _packed() -> tuple[bytes, str]:
    data = build()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


@require_GET
def client(request):
    """Send the client as one zip application."""
    data, tag = _packed()
    if request.headers.get("If-None-Match") == tag:
        return HttpResponse(status=304, headers={"ETag": tag})
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Disposition": 'attachment; filename="mlp.pyz"'}
    return HttpResponse(data, content_type="application/octet-stream", headers=headers)
