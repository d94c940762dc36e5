"""Who may connect to NATS besides the platform: a job, with its token, to publish on its own subjects only.

The server asks on `$SYS.REQ.USER.AUTH` (auth callout) about every connection that is not the platform's own; the ingest
part answers. A job's connection expires after a while and is checked again, so it ends with its token.
"""

from __future__ import annotations

import logging

from django.db import close_old_connections

from jobs.auth import NATS_USER, job_of_token, nats_inbox
from kernel import nats_jwt

from . import recording

log = logging.getLogger(__name__)

SUBJECT = "$SYS.REQ.USER.AUTH"
SECONDS = 3600


def answer(request: bytes) -> bytes | None:
    """Return the response to a server's request; None for anything else. Never raises."""
    try:
        asked = nats_jwt.decode(request)
    except ValueError as problem:
        log.warning("%s: %s", SUBJECT, problem)
        return None
    close_old_connections()
    try:
        return _answer(asked)
    except Exception:  # for example the database is unavailable: the client tries again
        log.exception("a connection to the message bus could not be judged")
        return nats_jwt.issuer().answer(asked, error="not available, try again")


def _answer(asked: dict) -> bytes:
    given = asked["nats"]["connect_opts"]
    job = job_of_token(str(given.get("pass", ""))) if given.get("user") == NATS_USER else None
    if job is None:
        return nats_jwt.issuer().answer(asked, error="not allowed")
    user = job.user.username
    allowed = nats_jwt.issuer().user(
        asked["nats"]["user_nkey"],
        f"{user}.{job.name}",
        publish=[recording.subject(user, job.name), recording.values_subject(user, job.name)],
        subscribe=[f"{nats_inbox(user, job.name)}.>"],
        seconds=SECONDS,
    )
    return nats_jwt.issuer().answer(asked, user=allowed)
