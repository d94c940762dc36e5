"""Followed logs through real nginx: followers occupy no thread of the web server."""

from __future__ import annotations

import contextlib
import json
from http.client import HTTPConnection, HTTPResponse

import pytest
import requests
from django.utils import timezone

from accounts import lifecycle as accounts
from datasets.tests.live import Service
from jobs.models import Job
from mlp.tests.patience import LIMIT_S
from supervision.parts import WEB_THREADS, WEB_WORKERS

pytestmark = pytest.mark.django_db(transaction=True)

# Django reads each of them as 1; nginx would not.
SPELLINGS = ("follow=%31", "follow=01", "follow=0&follow=1", "%66ollow=1")
FOLLOWERS = ("follow=1&offset=2", *SPELLINGS * (1 + WEB_WORKERS * WEB_THREADS // len(SPELLINGS)))


@pytest.fixture
def front(tmp_path, transactional_db):
    service = Service(tmp_path)
    service.start_requests()
    service.start_websockets()
    service.start_nginx()
    yield service
    for process in (service.nginx, service.websockets, service.web):
        service.stop(process)
    service.end()


@pytest.fixture
def quiet(front, alice):
    """A running job of alice's that has written some output and writes no more."""
    job = Job.objects.create(
        user=alice, tenant=alice.tenant, name="fit", entry="fit.py", cpu=1, ram=100, state="running", run_name="none"
    )
    path = front.root / "jobs" / "alice" / "fit" / "log" / "job.log"
    path.parent.mkdir(parents=True)
    path.write_text("begun\n")
    return job


def follow(front, query: str, user, method: str = "GET") -> HTTPResponse:
    """Open a followed log and return once its headers have arrived. The query is sent unchanged, without encoding."""
    link = HTTPConnection("127.0.0.1", front.port, timeout=LIMIT_S)
    headers = {"Authorization": f"Bearer {accounts.token_of(user)}", "Connection": "close"}
    link.request(method, f"/api/v1/users/alice/jobs/fit/log?{query}", headers=headers)
    return link.getresponse()


@pytest.mark.long
def test_followers_of_a_silent_job_do_not_block_the_web_server(front, quiet, alice, bob):
    with contextlib.ExitStack() as stack:
        followers = []
        for spelling in FOLLOWERS:
            answer = stack.enter_context(follow(front, spelling, alice))
            assert answer.readline() == (b"gun\n" if "offset=2" in spelling else b"begun\n"), spelling
            followers.append((spelling, answer))
        others = {"Authorization": f"Bearer {accounts.token_of(bob)}"}
        answer = requests.get(f"{front.url}/api/v1/users/bob/jobs", headers=others, timeout=LIMIT_S)
        assert (answer.status_code, answer.json()) == (200, [])
        with follow(front, "follow=%31", alice, "HEAD") as head:
            assert (head.status, head.read()) == (200, b"")
        with follow(front, "follow=%31", bob) as refusal:
            assert (refusal.status, set(json.load(refusal))) == (403, {"msg"})
        assert requests.get(f"{front.url}/-followed", timeout=LIMIT_S).status_code == 403
        accounts.rotate_token(user=alice, by="test")
        for spelling, answer in followers:
            assert answer.read() == b"", spelling  # a rotated token ends the responses that it opened
        last = stack.enter_context(follow(front, "follow=1", alice))
        assert last.readline() == b"begun\n"
        Job.objects.filter(pk=quiet.pk).update(state="finished", ended=timezone.now(), run_name="")
        assert last.read() == b""
    first = followers[0][1]
    assert (first.headers["Content-Type"], first.headers["Cache-Control"]) == ("text/plain; charset=utf-8", "no-store")
