"""The data service behind nginx (mlp/supervisor/data.conf.tmpl): may this upload be, take this upload, everything else.

    PUT   nginx asks `may` before it reads the body, spools the body itself, then hands its path to `store`
    else  nginx asks `verb`, which answers, or points nginx at the file to send (X-Accel-Redirect)

No byte of a file passes through Python. nginx alone reaches these views: it shows `internal_key`. The usual HTTP codes
are answered, each refusal as `{"msg"}`. Routed by datasets.data_urls.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import logging
import os
import re
import stat
import time
from errno import EDQUOT, EEXIST, EISDIR, ELOOP, ENAMETOOLONG, ENOSPC, ENOTDIR, ENOTEMPTY
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.utils import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from accounts import tokens
from accounts.auth import basic, bearer
from accounts.tokens import Holder
from mlp.kernel import storage
from mlp.kernel.errors import Fault, Refused

from . import webdav_flight
from . import webdav_tree as tree
from .models import Dataset
from .webdav_paths import Answer, Target, parse
from .webdav_room import admit_write, claim, clear, own, writing
from .webdav_verbs import METHODS

log = logging.getLogger(__name__)

ASK = 'Basic realm="data", charset="UTF-8"'
DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")
SPOOL_KEEP_S = 600  # a body still arriving grows at least every two minutes, nginx drops it else


def internal_key() -> str:
    """What nginx shows to prove that it is nginx; derived, so it is nowhere stored but in its configuration."""
    return hashlib.sha256(b"internal:" + settings.SECRET_KEY.encode()).hexdigest()


def authenticate(request: HttpRequest) -> Holder:
    """The holder of the Bearer token, or of the token sent as HTTP Basic's password. Raises Answer 401."""
    header = request.META.get("HTTP_AUTHORIZATION", "")
    if not header:
        raise Answer(401, "not authenticated: send Authorization: Bearer {token}", WWW_Authenticate=ASK)
    try:
        given = basic(header)
        token = given[1] if given else bearer(header)
    except Refused as refused:
        raise Answer(401, refused.msg, WWW_Authenticate=ASK)
    holder = tokens.person(token) if token else None
    if holder is None or (given and not hmac.compare_digest(given[0].encode(), holder.username.encode())):
        raise Answer(401, "token: not valid", WWW_Authenticate=ASK)
    return holder


def guarded(view):
    """For nginx only; whatever goes wrong becomes an answer with the right code and words."""

    @csrf_exempt
    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        shown = request.META.get("HTTP_X_INTERNAL_KEY", "")
        if not hmac.compare_digest(shown.encode(), internal_key().encode()):
            return _response(Answer(404, "no such address"))
        try:
            return view(request)
        except Answer as answer:
            return _response(answer)
        except Refused as refused:
            return _response(Answer(409, refused.msg))
        except Fault as fault:
            return _response(Answer(503, fault.msg, Retry_After="2"))
        except OSError as problem:
            return _response(_disk_answer(request, problem))
        except DatabaseError:
            log.exception("data service: the database failed in %s", request.path)
            return _response(Answer(503, "the database is not available, try again later", Retry_After="2"))
        except Exception:  # a bug: told to nobody but the log
            log.exception("data service: %s failed", request.path)
            return _response(Answer(503, Fault().msg, Retry_After="2"))

    return wrapper


def for_subrequest(view):
    """auth_request understands 2xx, 401 and 403: a refusal goes as 403 with the true status and words in headers."""

    @functools.wraps(view)
    def wrapper(request: HttpRequest) -> HttpResponse:
        response = view(request)
        if "X-Data-Status" in response:
            return response
        if 400 <= response.status_code < 500 or response.status_code == 507:
            response["X-Data-Status"] = str(response.status_code)
            response["X-Data-Reason"] = response.content.decode()
            response.status_code = 403
        return response

    return csrf_exempt(wrapper)


@for_subrequest
@guarded
def may(request: HttpRequest) -> HttpResponse:
    """May this PUT be? Asked before its body is read; judges what can be known by then."""
    storage.spool_dir()  # made anew should it have vanished: nginx makes it at its start only
    target, length = _put_target(request, authenticate(request)), _length(request)
    row, left = admit_write(target, length)
    if row is not None:
        webdav_flight.begin(request.META.get("HTTP_X_DATA_ID", ""), row.pk, length)
    if "chunked" in request.META.get("HTTP_X_DATA_CHUNKED", "").lower():
        # no length to be judged by: nginx takes the body in the location that allows just enough
        headers = {"X-Data-Status": "chunked", "X-Data-Class": _class(left)}
        return HttpResponse(status=403, headers=headers)
    return HttpResponse(status=204)


@guarded
def store(request: HttpRequest) -> HttpResponse:
    """Takes the body that nginx has spooled: checks it under the dataset's lock, accounts, renames it into place.

    The caller is asked for again: the token may have died, and the dataset moved on, while the body came.
    """
    target = _put_target(request, authenticate(request))
    spool, made = _spooled(request)
    try:
        info = spool.stat(follow_symlinks=False)
        if info.st_size >= webdav_flight.WORTH_NOTING:
            webdav_flight.end(request.META.get("HTTP_X_DATA_ID", ""))
        _verify_digest(request, spool)
        os.chmod(spool, 0o644)
        only_new = request.META.get("HTTP_IF_NONE_MATCH", "").strip() == "*"
        replaced = _place_quickly(target, spool, info.st_size) if not only_new else None
        if replaced is None:
            replaced = _place(target, spool, info.st_size, only_new)
    finally:
        if made:
            spool.unlink(missing_ok=True)
    return HttpResponse(status=204 if replaced else 201)


@guarded
def verb(request: HttpRequest) -> HttpResponse:
    """Every method but PUT."""
    method = METHODS.get(request.method)
    if method is None:
        raise Answer(405, f"method: {request.method[:20]} is not known here", Allow=", ".join(["PUT", *METHODS]))
    if request.method == "OPTIONS":  # asked without credentials by many clients; tells nothing of anybody
        return method(request, None, Target())
    holder = authenticate(request)
    target = parse(request.META.get("HTTP_X_DATA_URI", ""))
    own(holder, target)
    return method(request, holder, target)


def list_files(dataset: Dataset) -> list[dict]:
    """The dataset's files as {path, size, sha256?}: what an interrupted upload asks to go on from there."""
    steps = (dataset.user.username, dataset.name)
    found = []
    for parts, info in tree.walk(steps):
        if stat.S_ISREG(info.st_mode):
            entry = {"path": "/".join(parts), "size": info.st_size}
            if digest := tree.known_sha256(steps + parts):
                entry["sha256"] = digest
            found.append(entry)
    return sorted(found, key=lambda entry: entry["path"])


def sweep_spool(older_than_s: float = 3600) -> int:
    """Removes what a killed nginx or application left in the spool; returns how many. Called by the reconcile loop.

    It also keeps the datasets alive whose uploads still grow there.
    """
    webdav_flight.keep_alive()
    deadline = time.time() - max(older_than_s, SPOOL_KEEP_S)
    removed = 0
    for path in storage.spool_dir().iterdir():
        with contextlib.suppress(FileNotFoundError):
            if path.name.startswith("trash-") or path.lstat().st_mtime < deadline:
                clear(path)
                removed += 1
    return removed


def _put_target(request: HttpRequest, holder: Holder) -> Target:
    target = parse(request.META.get("HTTP_X_DATA_URI", ""))
    own(holder, target)
    if not target.parts or target.slash:
        raise Answer(405, "path: PUT takes a file's path: /data/{user}/{dataset}/{file}")
    if "HTTP_CONTENT_RANGE" in request.META:
        raise Answer(400, "Content-Range: a file is uploaded whole")
    if request.META.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise Answer(415, "Content-Encoding: a file is uploaded as it is")
    return target


def _length(request: HttpRequest) -> int | None:
    told = request.META.get("HTTP_X_DATA_LENGTH", "")
    return int(told) if told.isascii() and told.isdigit() else None


def _place_quickly(target: Target, spool: Path, size: int) -> bool | None:
    """The common case in one statement: the dataset is creating and has room. None: nothing was done, `_place` it.

    The guess of what is replaced is made before the lock and proven under it, which the statement takes.
    """
    guess = tree.look(target.steps)
    if target.is_home or (guess is not None and not stat.S_ISREG(guess.st_mode)):
        return None
    with transaction.atomic():
        if claim(target, size - (guess.st_size if guess else 0)):
            with tree.folder(target.steps[:-1], make=True) as parent:
                replaced = _at(parent, target.steps[-1])
                if (replaced and (replaced.st_ino, replaced.st_size)) == (guess and (guess.st_ino, guess.st_size)):
                    os.rename(spool, target.steps[-1], dst_dir_fd=parent)
                    return replaced is not None
            transaction.set_rollback(True)
    return None


def _place(target: Target, spool: Path, size: int, only_new: bool) -> bool:
    """Renames the spooled body into place under the dataset's lock; returns whether it replaced a file."""
    with writing(target) as (room,), tree.folder(target.steps[:-1], make=True) as parent:
        replaced = _at(parent, target.steps[-1])
        if replaced and only_new:
            raise Answer(412, "path: a file of that name is there already")
        if replaced and stat.S_ISDIR(replaced.st_mode):
            raise Answer(405, "path: a folder of that name is there", Allow="PROPFIND, DELETE, MOVE, COPY")
        room.grow(size - (replaced.st_size if replaced and stat.S_ISREG(replaced.st_mode) else 0))
        os.rename(spool, target.steps[-1], dst_dir_fd=parent)
    return replaced is not None


def _class(room: int) -> str:
    """The smallest of nginx's locations for chunked bodies (1m, 4m, … 1024g) that holds `room` bytes."""
    mebi = 1
    while mebi << 20 < room and mebi < 1 << 20:
        mebi *= 4
    return f"{mebi}m" if mebi < 1024 else f"{mebi >> 10}g"


def _spooled(request: HttpRequest) -> tuple[Path, bool]:
    """The body's file, and whether we made it ourselves (a PUT without any body has none)."""
    told = request.META.get("HTTP_X_DATA_FILE", "")
    folder = storage.spool_dir()
    if not told:
        path = folder / f"empty-{time.time_ns()}-{os.getpid()}-{id(request)}"
        path.touch(mode=0o600, exist_ok=False)
        return path, True
    path = folder / Path(told).name
    # compared as written first: resolving costs more than all the rest
    apart = os.path.dirname(told) != str(folder) and Path(told).parent.resolve() != folder.resolve()
    if apart or not stat.S_ISREG(path.lstat().st_mode):
        log.error("nginx handed over %r, which is no file of the spool", told)
        raise Fault()
    return path, False


def _verify_digest(request: HttpRequest, spool: Path) -> None:
    """A checksum sent along (`Repr-Digest`, RFC 9530) must be that of what arrived."""
    told = request.META.get("HTTP_REPR_DIGEST", "")
    if not told:
        return
    wanted = DIGEST.search(told)
    if wanted is None:
        raise Answer(400, "Repr-Digest: must be sha-256=:{base64}:")
    if tree.digest_header(tree.sha256_of_path(spool)) != f"sha-256=:{wanted[1]}:":
        raise Answer(400, "Repr-Digest: does not belong to the bytes that arrived")


def _at(parent: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _disk_answer(request: HttpRequest, problem: OSError) -> Answer:
    if problem.errno in {ENOTDIR, ELOOP}:
        return Answer(409, "path: a folder on the way is a file or a link")
    if problem.errno in {EISDIR, ENOTEMPTY, EEXIST}:
        return Answer(409, "path: a folder of that name is there")
    if problem.errno in {ENOSPC, EDQUOT}:
        return Answer(507, "the platform's disk is full")
    if problem.errno == ENAMETOOLONG:
        return Answer(400, "path: too long")
    if isinstance(problem, FileNotFoundError):
        return Answer(409, "path: it vanished meanwhile")
    log.error("data service: %s failed", request.path, exc_info=problem)
    return Answer(503, "the platform's storage has a fault, try again later", Retry_After="2")


def _response(answer: Answer) -> HttpResponse:
    return HttpResponse(answer.body(), status=answer.status, content_type="application/json", headers=answer.headers)
