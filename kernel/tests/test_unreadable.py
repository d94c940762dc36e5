"""What gunicorn answers where it cannot read a request."""

from __future__ import annotations

import http.client
import json
import socket

from gunicorn import util
from gunicorn.config import Config
from gunicorn.glogging import Logger
from gunicorn.http.errors import InvalidHeader
from gunicorn.workers.gthread import ThreadWorker

from mlp import wsgi

PROBLEM = InvalidHeader("X-NAME")


def answered(problem: Exception) -> http.client.HTTPResponse:
    """Return what a worker answers where reading a request has failed."""
    config = Config()
    worker = ThreadWorker(0, 0, [], None, 1, config, Logger(config))
    ours, theirs = socket.socketpair()
    worker.handle_error(None, ours, None, problem)
    answer = http.client.HTTPResponse(theirs)
    answer.begin()
    ours.close()
    return answer


def test_a_header_with_a_control_character_is_refused_in_json():
    assert wsgi.application
    answer = answered(PROBLEM)
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json")
    words = "the request is not valid HTTP: Invalid HTTP Header: 'X-NAME'"
    assert json.loads(answer.read()) == {
        "msg": words, "code": 400, "message": words, "error_code": "INVALID_PARAMETER_VALUE"
    }  # fmt: skip


def test_a_fault_of_the_server_is_a_page():
    assert util.write_error.__module__ == "kernel.unreadable"
    assert answered(ValueError("a bug")).status == 500
