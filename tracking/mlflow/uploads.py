"""Uploads of artifacts, in the two steps in which nginx asks (supervision/data.conf.tmpl): may this body be sent, and
store the body that was spooled. No byte passes through Python.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from datasets.webdav import inflight
from datasets.webdav.gate import for_subrequest, from_nginx
from datasets.webdav.put.admit import size_class
from jobs.artifacts import files, space
from jobs.artifacts import multipart as parts
from jobs.models import Job
from kernel import storage
from kernel.dispatch import Direct, ViewApplication
from kernel.effects import SUBMIT
from kernel.errors import Fault
from mlflow_protocol import protocol
from mlflow_protocol.protocol import Call, MlflowError
from mlflow_protocol.reading import Fields, WrongField

from . import artifact_paths, multipart, writing
from .artifact_paths import Place
from .multipart import Part

log = logging.getLogger(__name__)

ADDRESS = re.compile(r"/mlflow/(?:ajax-)?api/[23]\.0/mlflow-artifacts/artifacts/(.+)", re.DOTALL)


@dataclass(frozen=True)
class Upload:
    """A body that is to be stored: an artifact, or a part of one. `length` is None where the client has not declared
    it.
    """

    job: Job
    path: str
    part: Part | None
    length: int | None
    chunked: bool
    peer: str  # the client's `{address}:{port}`


def guarded(view):
    """Decorate a view that only nginx may call; every exception becomes an answer in MLflow's form."""

    @csrf_exempt
    @wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        if not from_nginx(request):
            return protocol.unknown(request)
        try:
            return view(request)
        except Exception as problem:
            return protocol.refusal(request, problem)

    return wrapper


def in_a_header(view):
    """Decorate a view whose errors are sent as a header: they must be ASCII."""

    @wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        response = view(request)
        if response.status_code >= 400 and "X-Data-Status" not in response:
            response.content = json.dumps(json.loads(response.content))
        return response

    return wrapper


@for_subrequest
@in_a_header
@guarded
def may(request: HttpRequest) -> HttpResponse:
    """Answer 204 when the upload may be sent; for a body of unknown length the class of nginx's locations that just
    holds what is left (datasets.webdav.put.admit).
    """
    storage.spool_dir()
    upload = read(request)
    replaced = files.size(upload.job, upload.path) if upload.part is None else 0
    try:
        left = _room(upload, replaced)
    except BaseException:
        inflight.end(upload.peer)
        raise
    if upload.chunked:
        return HttpResponse(
            status=403, headers={"X-Data-Status": "chunked", "X-Data-Class": size_class(left + replaced)}
        )
    return HttpResponse(status=204)


def _room(upload: Upload, replaced: int) -> int:
    """Return how many bytes may be stored beside what other uploads in flight will store. A body without a length
    reserves half of them. Raises NoRoom, DiskFull.
    """
    size = space.require(upload.job, 0) // 2 if upload.length is None else upload.length
    name = f"{upload.job.pk}/{upload.path}/{upload.part.number if upload.part else ''}"
    others = inflight.begin(upload.peer, space.places(upload.job), name, size)
    return space.require(upload.job, (upload.length or 0) - replaced, others)


@guarded
def store(request: HttpRequest) -> HttpResponse:
    """Move a spooled body to its place. A part is answered with its ETag."""
    upload, response = read(request), protocol.reply({})
    with spooled(request) as body:
        inflight.end(upload.peer)
        if upload.part is None:
            files.put(upload.job, upload.path, body)
        else:
            etag = parts.add(upload.part.upload, upload.job, upload.part.number, body)
            response["ETag"] = f'"{etag}"'
    if upload.part is None:
        writing.PAGES.wake(upload.job.pk, upload.job.user.username, upload.job.name)
    return response


def read(request: HttpRequest) -> Upload:
    """Return the upload that nginx's headers describe. Raises MlflowError, WrongField or Refused."""
    meta = request.META
    address, length = meta.get("HTTP_X_DATA_URI", ""), meta.get("HTTP_X_DATA_LENGTH", "")
    if meta.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise WrongField("Content-Encoding is not supported; upload the file unencoded")
    part = multipart.part_of(address)
    if part is None:
        place = _place(request, address)
        job, path = place.job, place.path
    else:
        job, path = part.job, part.upload.path
    return Upload(
        job=job, path=path, part=part,
        length=int(length) if length.isascii() and length.isdigit() else None,
        chunked="chunked" in meta.get("HTTP_X_DATA_CHUNKED", "").lower(), peer=meta.get("HTTP_X_DATA_PEER", ""),
    )  # fmt: skip


def _place(request: HttpRequest, address: str) -> Place:
    call = Call(request, protocol.caller_of(request, SUBMIT), Fields({}))
    protocol.check_workspace(call)
    match = ADDRESS.fullmatch(address.partition("?")[0])
    if match is None:
        raise MlflowError("ENDPOINT_NOT_FOUND", "artifacts are uploaded to mlflow-artifacts/artifacts/{path}")
    return artifact_paths.place(call, artifact_paths.decoded(match[1]), write=True, file=True)


@contextmanager
def spooled(request: HttpRequest) -> Iterator[Path]:
    """Give the file of a body; what is left of it afterwards is removed. nginx writes none for an empty body.

    Raises Fault for a path that is not a file of the spool, which only a wrong configuration of nginx can name.
    """
    folder, given = storage.spool_dir(), request.META.get("HTTP_X_DATA_FILE", "")
    if given:
        body = folder / Path(given).name
        if Path(given).parent.resolve() != folder.resolve() or not stat.S_ISREG(body.lstat().st_mode):
            log.error("nginx named %r as an upload's body, which is not a file of the spool", given)
            raise Fault()
        yield body
        return
    empty = folder / f"empty-{secrets.token_hex(12)}"
    empty.touch(mode=0o600, exist_ok=False)
    try:
        yield empty
    finally:
        empty.unlink(missing_ok=True)


urlpatterns = [path("may", may), path("store", store)]
DIRECT = {
    f"/internal/mlflow/{urlpattern.pattern}": Direct(ViewApplication(urlpattern.callback)) for urlpattern in urlpatterns
}
