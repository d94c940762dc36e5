"""Callers who leave, requests that end the process, and visitors whom the gateway does not count."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket

import pytest
import requests

import runners
from apps import demand, launching, proof, scaling, sleeping
from apps.models import Application
from kernel import sockets
from kernel.tests.nats_tools import until as seen
from mlp.tests.patience import LIMIT_S

from .test_replicas import KILL, PASS, calls, holding, in_work, serve

__all__ = ["calls", "holding", "serve"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)


def waiting(app: Application) -> int:
    """Return how many requests of the application wait, as the gateway last said."""
    return sum(json.loads(row)[2] for row in demand.broker().client.hvals(demand.KEY.format(pk=app.pk)))


@pytest.mark.long
def test_callers_who_disconnect_leave_the_queue(serve, calls, until, service):
    app = serve(1, min=1, max=1, target=1)
    ask = calls(app)
    held = [ask.later()]
    until(lambda: in_work(app) == [1])
    held.append(ask.later(PASS))
    until(lambda: demand.read(app.pk)[0] == 2)
    bearer = ask.headers["Authorization"]
    head = f"GET /alice/{app.name}/schema HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n"
    leaving = [socket.create_connection(("127.0.0.1", service.app_port)) for _number in range(99)]
    for one in leaving:
        one.sendall(head.encode())
    until(lambda: demand.read(app.pk)[0] == 101)
    for one in leaving:
        one.close()
    until(lambda: demand.read(app.pk)[0] == 2)
    held += [ask.later(PASS) for _number in range(50)]
    until(lambda: demand.read(app.pk)[0] == 52)
    ask.go()
    assert {future.result(LIMIT_S)[0] for future in held} == {200}


@pytest.mark.long
def test_a_request_that_ends_the_process_ends_two_at_most(serve, calls, until):
    app = serve(3, min=3, max=3, target=1)
    names = [app.run_name, *app.replicas.values_list("run_name", flat=True)]

    def up() -> int:
        return sum(runners.get().poll(name).state == "running" for name in names)

    ask = calls(app)
    held = [ask.later(), ask.later()]
    until(lambda: sum(in_work(app)) == 2)
    killing = ask.later(KILL)
    seen(lambda: up() == 2)  # from here on nothing is started again
    seen(lambda: waiting(app) == 1)  # for one of the two
    ask.go()
    assert killing.result(LIMIT_S)[0] == 503
    assert {future.result(LIMIT_S)[0] for future in held} == {200}
    seen(lambda: up() == 1)
    assert ask.now()[0] == 200


def test_a_body_of_more_than_20_mib_reaches_an_application(serve, calls, until, settings, as_alice):
    app = serve(1, min=1, max=1)
    ask = calls(app)

    def status() -> int:
        return requests.post(ask.url, data=b"x" * (21 << 20), headers=ask.headers, timeout=LIMIT_S).status_code

    assert status() == 400  # the body is not JSON
    settings.APP_IDLE_S = 0
    as_alice.call("put", f"users/alice/apps/{app.name}/replicas", {"min": 0})
    until(lambda: Application.objects.get(pk=app.pk).asleep)
    settings.APP_IDLE_S = 1000
    waking = ask.pool.submit(status)
    until(waking.done)
    assert waking.result() == 400


def test_it_does_not_sleep_while_a_visitor_with_a_session_waits(serve, calls, until, settings, alice, client):
    app = serve(1, min=0, max=1)
    client.force_login(alice)
    ask, name = calls(app), settings.SESSION_COOKIE_NAME
    ask.headers = {"Cookie": f"{name}={client.cookies[name].value}"}
    held = ask.later()
    until(lambda: in_work(app) == [1])
    settings.APP_IDLE_S = 0
    for _round in range(3):
        scaling.step(app.pk)
    assert not Application.objects.get(pk=app.pk).asleep
    ask.go()
    assert held.result(LIMIT_S)[0] == 200
    until(lambda: Application.objects.get(pk=app.pk).asleep)


def test_what_came_in_the_last_moment_before_it_sleeps_has_its_whole_time(serve, calls, until):
    app = serve(1, min=0, max=1)
    ask = calls(app)
    held = ask.later()
    until(lambda: in_work(app) == [1])
    assert sleeping.rest(app.pk, app.run_name, "test")
    Application.objects.update(not_before=None)  # no gateway remembers it any more
    for _round in range(3):
        launching.stop(app.pk, app.run_name, False)
    assert not (runners.get().folder / app.run_name / "stop.json").exists()
    ask.go()
    assert held.result(LIMIT_S)[0] == 200


@pytest.mark.long
def test_a_replica_reports_its_load_also_while_nothing_changes(serve):
    app = serve(1, min=1, max=1)
    with contextlib.closing(http.client.HTTPConnection("replica", timeout=LIMIT_S)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(LIMIT_S)
        connection.sock.connect(sockets.parse(app.address))
        connection.request("GET", f"{proof.LOAD}?follow=1", headers=proof.headers(app.run_name))
        answer = connection.getresponse()
        assert [answer.readline() for _number in range(3)] == [b"0 0\n"] * 3
