"""What the server of websockets answers without Django: that it runs."""

from __future__ import annotations

import asyncio
import threading

from asgiref.testing import ApplicationCommunicator
from django.test import RequestFactory

from mlp.asgi import LIVE, application
from supervision import health


def test_that_it_runs_is_answered_as_by_django_and_by_no_other_thread():
    async def ask() -> tuple[dict, dict, int]:
        scope = {"type": "http", "method": "GET", "path": LIVE, "query_string": b"", "headers": []}
        server = ApplicationCommunicator(application, scope)
        before = threading.active_count()
        await server.send_input({"type": "http.request", "body": b"", "more_body": False})
        return await server.receive_output(), await server.receive_output(), threading.active_count() - before

    start, body, threads = asyncio.run(ask())
    known = health.live(RequestFactory().get(LIVE))
    assert (start["status"], body["body"], threads) == (known.status_code, known.content, 0)
    assert {name.decode(): value.decode() for name, value in start["headers"]} == dict(known.items())
