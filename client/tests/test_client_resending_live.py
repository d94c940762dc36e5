"""Answers that are lost on their way: the client asks again, and nothing begins twice."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from client.tests.test_client_ignoring import write

SCHEDULE = '{"name": "daily", "cron": "@daily", "job": {"entry": "fit.py", "cpu": 0.1}}'
PIPELINE = "name: nightly\nsteps: {first: {entry: fit.py, cpu: 0.1}}\n"


@pytest.fixture
def lossy(service):
    """Return (the address of a proxy that hands on everything, the set of requests whose first answer it loses)."""
    place, losing = urlsplit(service.url), set()

    class Handler(BaseHTTPRequestHandler):
        def hand_on(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            upstream = http.client.HTTPConnection(place.hostname, place.port)
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            content = answer.read()
            self.close_connection = True
            for lost in {lost for lost in losing if self.path.endswith(lost) and self.command in ("POST", "PUT")}:
                losing.remove(lost)
                return
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PROPFIND = do_MKCOL = do_OPTIONS = hand_on

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", losing
    server.shutdown()
    server.server_close()


def test_what_was_begun_does_not_begin_twice(alice_client, lossy):
    alice_client.environment["MLP_URL"], losing = lossy
    write(alice_client.here, {"fit.py": "", "nightly.yaml": PIPELINE, "daily.json": SCHEDULE})

    def run(lost: str, *arguments) -> str:
        losing.add(lost)
        done = alice_client.run(*arguments)
        assert not losing
        return done.stdout.strip()

    assert run("/jobs", "run", "fit.py", "-d", "--name", "mine") == "mine"
    again = run("/jobs/mine:rerun", "rerun", "mine", "-d")
    assert sorted(row["name"] for row in alice_client.json("ps")) == sorted(["mine", again])
    assert run("/pipelines/nightly/runs", "pipeline", "run", "nightly.yaml", "-d") == "1"
    assert [row["runs"] for row in alice_client.json("pipeline", "ls")] == [1]
    alice_client.run("schedule", "create", "daily.json")
    run("/schedules/daily:run", "schedule", "run", "daily")
    assert len(alice_client.json("schedule", "show", "daily")["firings"]) == 1
