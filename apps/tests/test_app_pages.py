"""The pages of applications: list, form, one application with its log, test requests."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient

from accounts import lifecycle as accounts
from apps import launching, playground
from apps.models import Application
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import EVIL, fill, markup, visible_text, visitor
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from models_app.models import Model

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice, home):
    return visitor(alice)


def form(**fields) -> dict:
    return {"name": "calc", "model_name": "net", "cpu": "0.5", "gpu": "0", "ram": "400", **fields}


class TestCreation:
    def test_a_models_page_proposes_a_name_for_its_application(self, alice_client, alice):
        put(Model, alice, "net", "ready")
        values = markup(alice_client.get("/models/net")).values
        fields = {name: values[name] for name in ("name", "model_name")}
        assert fields == {"name": "net", "model_name": "net"}
        response = alice_client.post("/apps", fields, follow=True)
        assert response.redirect_chain == [("/apps/net", 302)]
        assert "starting" in visible_text(response)
        assert markup(alice_client.get("/models/net")).values["name"] == "netb"
        assert "net" in visible_text(alice_client.get("/models/net"))

    @pytest.mark.parametrize(("capacity", "asked"), few([(8, 1), (1.75, 0.7), (1.05, 1)], 1))
    def test_the_proposed_cpu_is_at_most_what_is_left(self, alice_client, alice, capacity, asked):
        put(Model, alice, "net", "ready")
        type(alice.tenant).objects.update(cpu=capacity)
        alice_client.post("/apps", {"name": "first", "model_name": "net", "cpu": "1"})
        assert float(markup(alice_client.get("/models/net")).values["cpu"]) == asked
        assert float(markup(alice_client.get("/apps?model=net")).values["cpu"]) == asked

    def test_the_form_takes_everything(self, alice_client, alice):
        put(Model, alice, "net", "ready")
        assert markup(alice_client.get("/apps?model=net")).values["model_name"] == "net"
        assert alice_client.post("/apps", form(public="1"))["Location"] == "/apps/calc"
        app = Application.objects.get()
        assert (app.model.name, app.cpu, app.gpu, app.ram, app.public) == ("net", 0.5, 0, 400, True)

    def test_submitted_twice_it_is_created_once(self, alice_client, alice):
        put(Model, alice, "net", "ready")
        fields = form(mark=markup(alice_client.get("/apps")).values["mark"])
        for _ in range(2):
            assert alice_client.post("/apps", fields)["Location"] == "/apps/calc"
        assert Application.objects.count() == 1

    @pytest.mark.parametrize(
        ("field", "typed", "words"),
        few(
            [
                ("name", "", "required"),
                ("name", EVIL, "1 to 50 lowercase letters"),
                ("name", "taken", "you already have an application named taken"),
                ("model_name", "none", "you have no model named none"),
                ("model_name", "coming", "it can be served once it is ready"),
                ("model_name", EVIL, "1 to 50 lowercase letters"),
                ("cpu", "0", "must be"),
                ("cpu", "8.5", "requested"),
                ("gpu", "x", "whole number"),
                ("ram", "1", "must be"),
            ],
            4,
        ),
    )
    def test_wrong_fields(self, alice_client, alice, field, typed, words):
        put(Application, alice, "taken", "ready")
        put(Model, alice, "coming", "creating")
        response = alice_client.post("/apps", form(**{field: typed}))
        assert response.status_code == 403
        assert words in visible_text(response)
        assert markup(response).values[field] == typed
        assert markup(response).inline == []
        assert Application.objects.count() == 1

    def test_another_users_model_cannot_be_deployed(self, alice_client, bob):
        put(Model, bob, "net", "ready")
        assert alice_client.post("/apps", form()).status_code == 403


class TestDetail:
    def test_another_users_application_is_not_found(self, alice_client, bob, staff):
        put(Application, bob, "theirs", "ready")
        for who in (alice_client, visitor(staff)):
            for address in ("/apps/theirs", "/apps/theirs/log", "/apps/theirs/log/download"):
                assert who.get(address).status_code == 404
            for address in ("/apps/theirs", "/apps/theirs/delete"):
                assert who.post(address, {"input": "[1]"}).status_code == 404
        assert Application.objects.get().state == "ready"

    def test_it_can_be_deleted_in_a_final_state_only(self, alice_client, alice):
        fill(alice)
        assert "Wait until it is ready" in visible_text(alice_client.post("/apps/begins/delete", follow=True))
        assert alice_client.post("/apps/calc/delete")["Location"] == "/apps"
        assert Application.objects.get(name="calc").trashed is not None
        assert alice_client.get("/apps/calc/delete").status_code == 405

    def test_the_page_shows_its_address_and_log(self, alice_client, alice, settings):
        fill(alice)
        words = visible_text(alice_client.get("/apps/calc"))
        for part in (f"http://testserver:{settings.APP_GATEWAY_PORT}/alice/calc/predict", "epoch 1", "net", "Bearer"):
            assert part in words
        settings.APP_GATEWAY_URL = "https://apps.example.org"
        Application.objects.filter(name="calc").update(public=True)
        words = visible_text(alice_client.get("/apps/calc"))
        assert "https://apps.example.org/alice/calc/predict" in words
        assert "Bearer" not in words
        assert "exit code 1" in visible_text(alice_client.get("/apps/broken"))

    def test_the_whole_log_is_a_file(self, alice_client, alice):
        fill(alice)
        answer = alice_client.get("/apps/calc/log/download")
        assert b"epoch 1" in b"".join(answer.streaming_content)
        assert answer["Content-Disposition"].startswith("attachment")

    def test_a_symlink_instead_of_the_log_is_not_followed(self, alice_client, alice, tmp_path):
        fill(alice)
        log = launching.log_path(Application.objects.get(name="calc"))
        (tmp_path / "secret").write_text("of the platform")
        log.unlink()
        log.symlink_to(tmp_path / "secret")
        assert "of the platform" not in alice_client.get("/apps/calc").content.decode()
        assert b"".join(alice_client.get("/apps/calc/log/download").streaming_content) == b""


class TestLog:
    @pytest.mark.django_db(transaction=True)
    def test_it_is_followed_until_the_application_has_ended(self, alice):
        app = put(Application, alice, "calc", "ready")
        path = launching.log_path(app)
        path.parent.mkdir(parents=True)
        path.write_text("one\n")

        @sync_to_async
        def erase():
            app.erase(by="test")
            app.save()

        headers = {"authorization": f"Bearer {accounts.token_of(alice)}"}

        async def read():
            answer = await AsyncClient().get("/api/v1/users/alice/apps/calc/log?offset=1&follow=1", headers=headers)
            pieces = aiter(answer.streaming_content)
            assert await anext(pieces) == b"ne\n"
            with path.open("a") as log:
                log.write("two\n")
            assert await anext(pieces) == b"two\n"
            await erase()
            assert [piece async for piece in pieces] == []

        async_to_sync(read)()


class TestExamples:
    @pytest.mark.parametrize(
        ("inputs", "text", "python"),
        [
            ([{"name": "x", "datatype": "FP32", "shape": [-1, 2]}], {"x": [[0.5, 0.5]]}, "{'x': [[0.5] * 2]}"),
            ([{"name": "n", "datatype": "INT64", "shape": [2]}, {"name": "w", "datatype": "BYTES", "shape": []}],
             {"n": [1, 1], "w": "text"}, "{'n': [1] * 2, 'w': 'text'}"),
            ([], {"input": [0.5]}, "{'input': [0.5]}"),
            ([{"name": 1}, "x", None], {"input": [0.5]}, "{'input': [0.5]}"),
            ([{"name": "x", "shape": ["a", None, True]}], {"x": [[[1]]]}, "{'x': [[[1]]]}"),
            ([{"name": "x", "shape": [10**9, 10**9]}], {"x": [1]}, "{'x': [1]}"),
        ],
    )  # fmt: skip
    def test_examples_match_the_models_signature(self, inputs, text, python):
        example = playground.example_of({"inputs": inputs})
        assert json.loads(example.json) == text
        assert example.python == python

    def test_a_large_example_is_a_python_expression_only(self):
        example = playground.example_of({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3, 224, 224]}]})
        assert (example.json, example.python) == ("", "{'x': [[[[0.5] * 224] * 224] * 3]}")

    @pytest.mark.parametrize("signature", [None, [], {"inputs": 7}, {"inputs": None}])
    def test_invalid_signatures_give_the_default_example(self, signature):
        assert json.loads(playground.example_of(signature).json) == {"input": [0.5]}


class FakeApplication(BaseHTTPRequestHandler):
    """A fake application; it answers as the request's body asks."""

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        echo = json.dumps({"path": self.path, "headers": list(self.headers), "got": given}).encode()
        body = b"x" * given["long"] if isinstance(given, dict) and "long" in given else echo
        body = given["raw"].encode() if isinstance(given, dict) and "raw" in given else body
        self.send_response(given.get("status", 200) if isinstance(given, dict) else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class TestAnswers:
    def test_a_short_row_of_numbers_is_a_picture(self):
        text, scores = playground._readable(b'{"y": [[1, 5, 3.5]], "z": ["<b>"]}')
        assert text == '{\n  "y": [[1, 5, 3.5]],\n  "z": ["<b>"]\n}'
        assert scores == ((0, 1, 0), (1, 5, 100), (2, 3.5, 62))

    @pytest.mark.parametrize(
        "body",
        [b"\xff", b"[" * 90_000, b"7", b"{}", b'{"y": []}', b'{"y": [1, true]}', b'{"y": [[1, 2], [3, 4]]}',
         b'{"y": [NaN, 1]}', b'{"error": 7}'],
    )  # fmt: skip
    def test_other_outputs_are_shown_as_text(self, body):
        assert playground._readable(body)[1] == ()

    def test_an_error_is_shown_with_its_line_breaks(self):
        assert playground._readable(b'{"error": "one\\ntwo"}') == ("one\ntwo", ())


class TestPlayground:
    @pytest.fixture
    def app(self, alice):
        server = ThreadingHTTPServer(("127.0.0.1", 0), FakeApplication)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        app = put(Application, alice, "calc", "ready")
        Application.objects.filter(pk=app.pk).update(address=f"127.0.0.1:{server.server_port}")
        yield app
        server.shutdown()
        server.server_close()

    def test_the_answer_is_shown_and_the_input_kept(self, alice_client, app):
        response = alice_client.post("/apps/calc", {"input": '{"x": [1, "<b>"]}'})
        assert response.status_code == 200
        words = visible_text(response)
        assert '"path": "/predict"' in words
        assert '{"x": [1, "<b>"]}' in words
        shown = response.content.decode().partition('id="answer"')[2].partition("</pre>")[0]
        assert "Content-Length" in shown
        assert not any(word in shown for word in ("Cookie", "Authorization", "<b>"))

    def test_the_applications_refusals_are_shown_unchanged(self, alice_client, app):
        response = alice_client.post("/apps/calc", {"input": '{"status": 500}'})
        assert response.status_code == 200
        assert "500" in visible_text(response)

    @pytest.mark.parametrize(
        "raw",
        few([r'{"y": ["\ud800"]}', r'{"\udfff": 1}', r'{"error": "\ud800\u0000"}', "\x00",
             '{"y": [1, 1%s]}' % ("0" * 320), '{"y": [1, -1%s]}' % ("0" * 5000), '{"y": [-1e308, 1e308]}',
             '{"y": [0, 1.5e307]}', '{"y": [1e400, 1]}'], 3),
    )  # fmt: skip
    def test_an_invalid_response_is_shown(self, alice_client, app, raw):
        response = alice_client.post("/apps/calc", {"input": json.dumps({"raw": raw})})
        assert response.status_code == 200
        assert "\x00" not in response.content.decode()
        assert "after" in visible_text(response)

    def test_a_long_answer_is_cut(self, alice_client, app):
        response = alice_client.post("/apps/calc", {"input": '{"long": 3000000}'})
        assert "Only the beginning is shown" in visible_text(response)
        assert len(response.content) < 1_000_000

    @pytest.mark.parametrize("text", few(["", "{", "NaN,", "[" * 100_000, EVIL], 2))
    def test_invalid_json_is_refused_at_its_field(self, alice_client, app, text):
        response = alice_client.post("/apps/calc", {"input": text})
        assert response.status_code == 403
        assert "must be JSON" in visible_text(response)
        assert markup(response).inline == []

    def test_an_application_that_is_not_running_is_reported(self, alice_client, alice):
        put(Application, alice, "calc", "creating")
        response = alice_client.post("/apps/calc", {"input": "[1]"})
        assert "It answers once it is ready" in visible_text(response)

    def test_a_deleted_application_is_not_a_server_error(self, alice_client, app):
        Application.objects.update(address="127.0.0.1:9")
        response = alice_client.post("/apps/calc", {"input": "[1]"})
        assert response.status_code == 200
        assert "no answer" in visible_text(response)

    @pytest.mark.parametrize("begin", few([b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.0 200 OK\r\n\r\n{"], 1))
    def test_a_dripping_application_does_not_block_others(self, alice_client, app, monkeypatch, begin):
        monkeypatch.setattr(playground, "LIMIT_S", 1)
        ended = threading.Event()
        server = socket.create_server(("127.0.0.1", 0))

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(begin)
                for _ in range(5 * LIMIT_S):
                    if ended.wait(0.2):
                        return
                    connection.sendall(b" ")

        threading.Thread(target=drip, daemon=True).start()
        Application.objects.update(address=f"127.0.0.1:{server.getsockname()[1]}")
        assert "answer within 1 s" in visible_text(alice_client.post("/apps/calc", {"input": "[1]"}))
        ended.set()
        server.close()

    def test_only_one_test_request_at_a_time(self, alice_client, app, alice):
        playground.cache.add(f"apps.try.{alice.pk}", 1, 60)
        assert "The previous request is still running" in visible_text(
            alice_client.post("/apps/calc", {"input": "[1]"})
        )
        playground.cache.delete(f"apps.try.{alice.pk}")
        assert alice_client.post("/apps/calc", {"input": "[1]"}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_real_application_answers_the_example_of_its_page(alice_client, deploy, ready, adder):
    Model.objects.update(signature={"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]})
    ready(deploy())
    response = alice_client.post("/apps/calc", {"input": '{"x": [0.5]}'})
    words = visible_text(response).partition("after ")[2]
    assert json.loads(words[words.index("{") : words.index("}") + 1]) == {"y": [1.5]}
    assert "serving adder" in visible_text(response)
