"""What callers say of answers, by the id of their request: a value and a comment, several for each answer.

It is for recorded requests only. One that was answered a moment ago may still be in the queue or the files of its run,
so these are written and stored first where an id is not known.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import re

from django.db import transaction

from kernel import after_commit, disk, outbound, sanitize, stored
from kernel.errors import Refused
from kernel.messages import Message

from .. import places, proof
from ..models import AppKey, Application, Feedback, Record, Recording
from . import collecting

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
MAX_LABEL, MAX_COMMENT, MAX_OF_ONE = 200, 2000, 100
WRITE, WRITE_S = "/-records", 1.0  # serving/recorder.py
KNOWN = {"id", "value", "comment"}


FORM = Message('send {"id": "…", "value": 1, "comment": "…"}: the X-Request-Id of the answer, a value, and a comment '
               "where there is one")  # fmt: skip

OFF = Message("the application records no requests, so there is none with this id")
NONE = Message("no recorded request has this id: it was not in the sample, or its record was deleted")


class Unknown(Refused):
    """No record of the application has this id."""


def give(app_id: int, key: int | None, given) -> Feedback:
    """Store `{"id": …, "value": …, "comment": …}` of a caller with a key, or of the owner.

    Raises Refused, Unknown; DiskFull.
    """
    request_id, value, comment = _checked(given)
    app = Application.objects.select_related("user").get(pk=app_id)
    if not Record.objects.filter(app=app, request_id=request_id).exists():
        _require_known(app, request_id)
    disk.require()
    stored.require(app.user_id)
    caller = AppKey.objects.filter(pk=key).values_list("name", flat=True).first() or "" if key is not None else ""
    with transaction.atomic():
        # One at a time for an id, so that they are counted; the record may have been deleted meanwhile.
        known = Record.objects.filter(app=app, request_id=request_id).order_by("pk")
        if known.select_for_update(no_key=True).first() is None:
            raise Unknown(NONE, field="id")
        if Feedback.objects.filter(app=app, request_id=request_id).count() >= MAX_OF_ONE:
            raise Refused("an answer takes at most %(limit)s of these", field="id", limit=MAX_OF_ONE)
        row = Feedback.objects.create(
            app=app, user_id=app.user_id, request_id=request_id, caller=caller, value=value, comment=comment
        )
    after_commit.changed(app.user.username, "application", app.name, moving=True)
    return row


def _require_known(app: Application, request_id: str) -> None:
    """Store what the runs have recorded, and raise Unknown where that has no such id either."""
    _let_runs_write(app)
    collecting.collect_app(app.pk)
    if Record.objects.filter(app=app, request_id=request_id).exists():
        return
    row = Recording.objects.filter(app=app).first()
    if row is None or not row.on:
        raise Unknown(OFF, field="id")
    raise Unknown(NONE, field="id")


def _let_runs_write(app: Application) -> None:
    """Let the processes of an application write what they have queued; one that does not answer has been asked."""
    place = places.place_of(app.user.username, app.name)
    for target in place.targets if place is not None else ():
        headers = {proof.HEADER: target.secret}
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            outbound.exchange(target.address, "GET", WRITE, headers=headers, limit_s=WRITE_S, most=100)


def _checked(given) -> tuple[str, object, str]:
    """Return id, value and comment. Raises Refused."""
    if not isinstance(given, dict) or set(given) - KNOWN or not {"id", "value"} <= set(given):
        raise Refused(FORM)
    request_id, value, comment = given["id"], given["value"], given.get("comment", "")
    if not isinstance(request_id, str) or not ID.fullmatch(request_id):
        raise Refused("must be the X-Request-Id of an answer", field="id")
    if isinstance(value, str):
        good, value = 0 < len(value) <= MAX_LABEL, sanitize.text(value)
    else:
        good = isinstance(value, bool | int | float) and (isinstance(value, bool) or abs(value) < math.inf)
        good = good and abs(value) < 1e300
    if not good:
        raise Refused("must be a number, true, false or a text of at most %(limit)s characters",
                      field="value", limit=MAX_LABEL)  # fmt: skip
    if not isinstance(comment, str) or len(comment) > MAX_COMMENT:
        raise Refused("must be a text of at most %(limit)s characters", field="comment", limit=MAX_COMMENT)
    return request_id, value, sanitize.text(comment)
