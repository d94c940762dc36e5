"""The chat form of a language model's page with a script: the answer as it is made, stopped when the page leaves."""

from __future__ import annotations

import json
import re
import socket
import threading

import pytest
import requests

from apps import chat_stream
from apps.models import Application
from kernel.tests.nats_tools import until
from mlp.tests.page_world import visitor
from mlp.tests.patience import LIMIT_S

from .test_language_gateway import gate, spoken
from .test_language_pages import address, speaks
from .test_language_server import release

__all__ = ["address", "gate", "spoken"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def send(alice, address):
    """Return a function that sends the form as the script does and returns the response."""
    browser = visitor(alice)

    def post(words: str, **fields):
        return browser.post(address, {"input": words, **fields}, headers={"Accept": chat_stream.MEDIA})

    return post


def lines(response) -> list[dict]:
    assert (response.status_code, response["Content-Type"]) == (200, chat_stream.MEDIA)
    assert (response["X-Accel-Buffering"], response["Cache-Control"]) == ("no", "no-store")
    return [json.loads(line) for line in b"".join(response.streaming_content).split(b"\n") if line]


def text_of(found: list[dict]) -> str:
    return "".join(line.get("text", "") for line in found)


def next_text(pieces) -> str:
    return next(json.loads(piece)["text"] for piece in pieces if piece.strip())


def test_the_answer_comes_piece_by_piece(send, gate):
    response = send(f"wait {gate} ab")
    pieces = iter(response.streaming_content)
    assert next_text(pieces) == "a"
    release(gate, 1)
    assert next_text(pieces) == "b"
    response.close()
    *found, last = lines(send("hello", temperature="0", max_tokens="3", system="be kind"))
    assert text_of(found) == "HEL"
    assert (last["status"], last["good"], "error" in last) == (200, True, False)
    assert last["words"].startswith("after ")


def test_behind_nginx_too_and_the_model_stops_when_the_browser_has_gone(service, alice, address, gate):
    session, url = requests.Session(), f"http://127.0.0.1:{service.port}{address}"
    session.cookies.set("sessionid", visitor(alice).cookies["sessionid"].value)
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', session.get(url).text)[1]
    form = {"input": f"wait {gate} abc", "csrfmiddlewaretoken": token, "max_tokens": "9"}
    answer = session.post(url, data=form, headers={"Accept": chat_stream.MEDIA}, stream=True, timeout=LIMIT_S)
    pieces = answer.iter_lines(chunk_size=1)
    assert next_text(pieces) == "a"
    release(gate, 1)
    assert next_text(pieces) == "b"
    answer.close()
    until(gate.with_name("gate.cancelled").exists)


def test_without_a_template_the_text_is_continued(send, spoken):
    speaks(spoken, "prompt")
    assert text_of(lines(send("hey"))) == "hey"


def test_a_page_that_leaves_stops_the_model_and_may_ask_again(send, gate):
    response = send(f"wait {gate} ab")
    assert next_text(iter(response.streaming_content)) == "a"
    refused = send("hello")
    assert (refused.status_code, refused.json()) == (
        403, {"error": "The previous request is still running", "field": ""},
    )  # fmt: skip
    response.close()
    until(gate.with_name("gate.cancelled").exists)
    assert text_of(lines(send("hello"))) == "hello"


def test_while_nothing_comes_empty_lines_find_out_whether_the_page_reads(send, gate):
    response = send(f"wait {gate} ab")
    pieces = iter(response.streaming_content)
    next_text(pieces)
    assert next(pieces) == b"\n"
    response.close()


def test_refusals_are_named(send):
    empty = send("")
    assert (empty.status_code, empty.json()) == (403, {"error": "must not be empty", "field": "input"})
    warm = send("a", temperature="warm")
    assert "temperature: must be a number" in warm.json()["error"]
    [long] = lines(send("x" * 300))
    assert (long["status"], long["good"], "200 tokens" in long["error"]) == (400, False, True)
    [failed] = lines(send("fail"))
    assert (failed["status"], failed["error"]) == (500, "the model failed: RuntimeError: out of memory")
    assert text_of(lines(send("<b>&"))) == "<b>&"


def test_others_and_pages_without_a_script_get_pages(send, alice, bob, address):
    assert visitor(bob).post(address, {"input": "a"}, headers={"Accept": chat_stream.MEDIA}).status_code == 404
    assert "text/html" in visitor(alice).post(address, {"input": "a"})["Content-Type"]


def test_an_application_that_is_down_is_reported(send, spoken):
    Application.objects.filter(pk=spoken.pk).update(address="127.0.0.1:9")
    [last] = lines(send("a"))
    assert (last["status"], last["good"], bool(last["error"])) == (0, False, True)
    Application.objects.filter(pk=spoken.pk).update(state="creating")
    assert "it answers once it is ready" in send("a").json()["error"].lower()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "text", "error"),
    [
        (b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n', "a", "The answer ended early."),
        (b'data: {"choices": [{"text": "a"}]}\n\ndata: [DONE]\n\n', "a", ""),
        (b'data: {"choices": [{"text": "a"}]}\n\ndata: {"error": {"message": "late"}}\n\n', "a", "late"),
        (b'data: {"choices": [{"text": 7}]}\n\ndata: {"choices": 7}\n\ndata: {[\n\ndata: [DONE]\n\n', "", ""),
        (b'data: {"choices": [{"text": "\\ud800\\u0000<b>"}]}\n\ndata: [DONE]\n\n', None, ""),
        (b"data: " + b"x" * (2 << 20), "", "Only the beginning is shown."),
    ],
)
def test_odd_servers_are_read_as_far_as_they_make_sense(send, spoken, sent, text, error):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _peer = server.accept()
            with connection:
                received = b""
                while b'"stream": true' not in received:
                    received += connection.recv(1 << 16)
                try:
                    connection.sendall(HEAD + sent)
                except OSError:
                    return  # the reader has enough

        thread = threading.Thread(target=answer)
        thread.start()
        Application.objects.filter(pk=spoken.pk).update(address=f"127.0.0.1:{server.getsockname()[1]}")
        response = send("a")
        *found, last = lines(response)
        response.close()
        thread.join()
    assert last.get("error", "") == error
    assert "\x00" not in text_of(found)
    if text is not None:
        assert text_of(found) == text


def test_an_answer_has_a_time(send, gate, monkeypatch):
    monkeypatch.setattr(chat_stream, "LIMIT_S", 1)
    *found, last = lines(send(f"wait {gate} ab"))
    assert (text_of(found), "within 1 s" in last["error"], last["good"]) == ("a", True, False)
    until(gate.with_name("gate.cancelled").exists)


def test_there_is_a_most_of_streams(send, monkeypatch):
    monkeypatch.setattr(chat_stream.STREAMS, "most", 0)
    assert send("a").json()["error"] == "Too many answers are being shown at the same time. Try again later."
    monkeypatch.undo()
    assert text_of(lines(send("a"))) == "a"
