"""Long responses of threads: some threads are left for everything else, and one user does not take all of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.http import HttpResponse, StreamingHttpResponse

from kernel.dispatch import ViewApplication
from kernel.streams import NGINX_KEEPS, OF_ALL, BoundStreams

pytestmark = pytest.mark.django_db  # the end of a response looks at the connection


@pytest.fixture
def ask(rf, settings):
    """Return a function that gets a response for a user: streamed, without an end that is known, unless told."""
    settings.DOWNLOADS_PER_USER = 4  # in two processes

    def get(user: int, length: int = 0, method: str = "get", make=StreamingHttpResponse):
        response = make([b"a", b"b"], headers={"Content-Length": str(length)} if length else None)
        request = getattr(rf, method)("/")
        request.user = SimpleNamespace(pk=user, is_authenticated=True)
        return BoundStreams(lambda _: response)(request)

    return get


def test_a_user_has_some_and_all_together_leave_threads_free(ask):
    first = [ask(1), ask(1)]
    refused = ask(1)
    assert (refused.status_code, refused["Retry-After"]) == (403, "10")
    assert b"MLP_DOWNLOADS_PER_USER" in refused.content
    others = [ask(user) for user in range(2, OF_ALL)]
    assert [response.status_code for response in others] == [200] * (OF_ALL - 2)
    busy = ask(99)
    assert (busy.status_code, busy["Retry-After"]) == (503, "10")
    first[0].close()
    first[0].close()
    assert ask(99).status_code == 200
    del first, others
    assert ask(1).status_code == 200


def test_what_nginx_takes_at_once_does_not_count(ask):
    short = [ask(1, NGINX_KEEPS) for _ in range(OF_ALL + 1)]
    short += [ask(1, method="head"), *(ask(1, make=HttpResponse) for _ in range(OF_ALL))]
    assert {response.status_code for response in short} == {200}
    long = [ask(1, NGINX_KEEPS + 1).status_code for _ in range(3)]
    assert long == [200, 200, 200], "each has ended before the next"
    held = [ask(1, NGINX_KEEPS + 1) for _ in range(3)]
    assert [response.status_code for response in held] == [200, 200, 403]


def test_it_holds_where_django_is_bypassed(rf, settings):
    settings.DOWNLOADS_PER_USER = 2
    application = ViewApplication(lambda request: StreamingHttpResponse([b"a"]))
    statuses, held = [], []
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        environ = rf.get("/", HTTP_X_REAL_IP=address).environ
        held.append(application(environ, lambda status, headers: statuses.append(status)))
    assert [status[:3] for status in statuses] == ["200", "403", "200"]
