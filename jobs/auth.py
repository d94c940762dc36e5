"""The job token: it may report the heartbeat and the metrics of its one job, until the job ends."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from rest_framework import authentication

from accounts import auth as accounts_auth
from accounts import tokens
from accounts.models import User
from accounts.tokens import base36, signature
from kernel.database import by_key
from kernel.errors import Refused

from .models import Job

PREFIX = accounts_auth.JOB_PREFIX
NATS_USER = "job"
# What each report of a run is checked by; of the job's seventy columns few are asked for.
NEEDED = ("user", "name", "state", "run_name", "nonce", "registry", "registry_models")


@dataclass(frozen=True)
class JobHolder:
    """The value of `request.auth` for a call made with a job's token."""

    job_id: int
    kind: str = "job"


def job_token(job: Job) -> str:
    return f"{PREFIX}{base36(job.pk)}_{signature('job-token', job.pk, job.nonce)}"


class JobTokenAuthentication(authentication.BaseAuthentication):
    def authenticate(self, request):
        token = accounts_auth.bearer(request.META.get("HTTP_AUTHORIZATION", ""))
        if token is None or not token.startswith(PREFIX):
            return None
        job = job_of_token(token)
        if job is None:
            raise Refused(accounts_auth.BAD_TOKEN, field="token")
        return job.user, JobHolder(job.pk)

    def authenticate_header(self, request):
        return "Bearer"


def job_of_token(token: str) -> Job | None:
    """Return the live job whose token this is; None for any other text."""
    if not token.startswith(PREFIX):
        return None
    number = token[len(PREFIX) :].partition("_")[0]
    if not (number.isascii() and number.isalnum() and len(number) <= 12):
        return None
    job = _live(int(number, 36))
    return job if job and hmac.compare_digest(job_token(job).encode(), token.encode()) else None


def _live(pk: int) -> Job | None:
    """Return the job whose token is valid now, with what its token is checked for; the other columns are read late."""
    job = by_key(Job, pk, *NEEDED)
    user = by_key(User, job.user_id) if job is not None and job.is_live else None
    if user is None or not user.is_active:
        return None
    job.user = user
    return job


def mark(token: str) -> str:
    """Return what a user's or a job's token is recognized by without revealing it: see `holds`."""
    if not token.startswith(PREFIX):
        return tokens.mark(token)
    number = token[len(PREFIX) :].partition("_")[0]
    return f"job:{int(number, 36)}:{signature('mark', token)}"


def holds(marked: str) -> bool:
    """Return whether the token with this mark is valid now."""
    kind, _, rest = marked.partition(":")
    if kind != "job":
        return tokens.holds(marked)
    pk, _, digest = rest.partition(":")
    job = _live(int(pk))
    return job is not None and hmac.compare_digest(signature("mark", job_token(job)).encode(), digest.encode())


def require_own_job(request, job: Job) -> None:
    """Check that a job's token is used for that job alone. Raises Refused."""
    if isinstance(request.auth, JobHolder) and request.auth.job_id != job.pk:
        raise Refused("this token belongs to another job", field="token")


def nats_address(job: Job, endpoint: str | None = None) -> str | None:
    """Return MLP_NATS_URL with the job's credentials; None for an external server, which does not ask the platform.

    `endpoint` is the host and port at which a run reaches the server, where it has a network of its own.
    """
    if not settings.EMBEDDED["nats"]:
        return None
    url = urlsplit(settings.RUN_NATS_URL or settings.NATS_URL)
    return f"{url.scheme}://{NATS_USER}:{job_token(job)}@{endpoint or url.netloc}"


def message_prefix(job: Job) -> str:
    """Return the beginning of the job's message ids, which no other job can guess."""
    return f"{job.pk}.{signature('message-id', job.pk, job.nonce)[:22]}."


def nats_inbox(user: str, job: str) -> str:
    """Return the subject where a job may receive acknowledgements: the usual `_INBOX` would show it all replies."""
    return f"_INBOX_{user}_{job}"
