"""The reporting module against a real HTTP server that answers, fails, hangs, goes away and comes back."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from mlp.tests.patience import LIMIT_S

PACKAGE = Path(__file__).parents[1] / "report" / "mlp_report"
METRICS = "/api/v1/users/alice/job_metrics/train"
VALUES = "/api/v1/users/alice/jobs/train/values"
HEARTBEAT = "/api/v1/users/alice/jobs/train:heartbeat"


class Platform:
    """A server of the two calls. `answers` are returned first, one per request; then 200. Records requests."""

    def __init__(self, port: int = 0):
        self.requests: list[tuple[str, str, object, dict]] = []
        self.answers: list[int | threading.Event] = []  # a status, or until when it hangs before it says nothing
        self.refuses = lambda body: False  # what is answered with 403
        platform = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = platform.answers.pop(0) if platform.answers else 403 if platform.refuses(body) else 200
                platform.requests.append((self.command, self.path, body, dict(self.headers) | {"answer": answer}))
                if isinstance(answer, threading.Event):
                    answer.wait(LIMIT_S)
                    self.close_connection = True
                    return
                data = b'""' if answer == 200 else b'{"msg": "loss: is wrong"}'
                self.send_response(answer)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_PUT = do_POST

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def taken(self, path: str = METRICS) -> list:
        """Return the bodies that were answered with 200, lists of metrics flattened."""
        bodies = [body for _, at, body, headers in self.requests if at == path and headers["answer"] == 200]
        return [value for body in bodies for value in body] if path == METRICS else bodies


@pytest.fixture
def platform():
    platform = Platform()
    yield platform
    platform.close()


@pytest.fixture(scope="module")
def module():
    name = "mlp_report_under_test"
    specification = importlib.util.spec_from_file_location(
        name, PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    sys.modules[name] = importlib.util.module_from_spec(specification)
    return importlib.import_module(f"{name}.sending")


@pytest.fixture
def fast(module, monkeypatch):
    monkeypatch.setattr(module, "BATCH_S", 0.05)
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr(module, "TIMEOUT_S", LIMIT_S)
    return module


def environment(port: int, **more: str) -> dict[str, str]:
    names = {"MLP_API_URL": f"http://127.0.0.1:{port}", "MLP_TOKEN": "secret", "MLP_USER": "alice"}
    return names | {"MLP_JOB": "train", "MLP_ATTEMPT": "2"} | more


def run(script: str, env: dict[str, str]) -> subprocess.CompletedProcess:
    """Run the module as a script does: on the path, in a separate process."""
    command = [sys.executable, "-c", script]
    env = env | {"PYTHONPATH": str(PACKAGE.parent), "PATH": os.defpath}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S)


# Notes whatever the script's own thread does that may take long, once the thread that sends has begun with its report.
WAITS = """
import http.client, threading, time
import mlp_report
mlp_report.report(epoch=0)
waits = []
def watch(kind, name):
    real = getattr(kind, name)
    def watched(*args, **more):
        if waits is not None and threading.current_thread() is threading.main_thread():
            waits.append(name)
        return real(*args, **more)
    setattr(kind, name, watched)
watch(http.client.HTTPConnection, "connect")
watch(http.client.HTTPConnection, "request")
watch(threading.Condition, "wait")
watch(time, "sleep")
"""


def test_a_script_reports_and_ends(platform):
    script = "from mlp_report import report\nfor e in range(3): report(epoch=e, accuracy=.5, loss=1, progress=33.4*e)"
    done = run(script, environment(platform.port))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [{**line, "time": None} for line in platform.taken()] == [
        {
            "user": "alice",
            "name": "train",
            "epoch": e,
            "accuracy": 0.5,
            "loss": 1,
            "progress": int(33.4 * e),
            "time": None,
        }
        for e in range(3)
    ]
    assert platform.taken(HEARTBEAT)[-1] == {"state": "running", "progress": 66}
    assert {headers["Authorization"] for _, _, _, headers in platform.requests} == {"Bearer secret"}
    assert [method for method, path, _, _ in platform.requests if path == METRICS] == ["POST"]


def test_reports_of_a_failing_script_are_sent(platform):
    done = run("import mlp_report; mlp_report.report(loss=1); raise SystemExit(3)", environment(platform.port))
    assert done.returncode == 3
    assert len(platform.taken()) == 1


def test_outside_of_a_job_it_prints():
    done = run("import mlp_report as m; m.report(epoch=1, loss=.25, lr=.1); m.progress(40); m.finish()", {})
    assert done.stdout.splitlines() == ["epoch 1  loss 0.25  lr 0.1", "progress 40", "finished"]
    assert done.stderr == ""


def test_custom_metrics_are_sent_with_the_epoch_or_their_own_step(fast, platform):
    reporter, before = fast.Reporter(environment(platform.port)), time.time()
    reporter.report(epoch=3, loss=0.5, learning_rate=1e-3)
    reporter.values(40, norm=2, bad="x", rate=float("nan"))
    reporter.report(batch=7)
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == [3]
    numbers = [line for batch in platform.taken(VALUES) for line in batch]
    assert [(line["step"], line["values"]) for line in numbers] == [
        (3, {"learning_rate": 1e-3}),
        (40, {"norm": 2.0, "rate": pytest.approx(float("nan"), nan_ok=True)}),
        (3, {"batch": 7.0}),
    ]
    assert all(before - 0.001 <= line["time"] <= time.time() + 0.001 for line in numbers)  # milliseconds


def test_an_artifact_is_kept_with_the_output(fast, tmp_path, capsys):
    (tmp_path / "model.bin").write_bytes(b"weights")
    reporter = fast.Reporter({"MLP_WORKSPACE": str(tmp_path / "work")})
    kept = reporter.artifact(str(tmp_path / "model.bin"))
    assert Path(kept) == tmp_path / "work" / "artifacts" / "model.bin"
    assert Path(kept).read_bytes() == b"weights"
    assert reporter.artifact(str(tmp_path / "none")) is None
    assert "could not be kept" in capsys.readouterr().err


def test_reports_are_sent_in_batches(module, platform, monkeypatch):
    monkeypatch.setattr(module, "BATCH_S", LIMIT_S)  # so a batch is sent once it is full, and the rest by flush
    reporter = module.Reporter(environment(platform.port))
    for epoch in range(2500):
        reporter.report(epoch=epoch)
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == list(range(2500))
    posts = [(body, headers["X-Message-Id"]) for method, _, body, headers in platform.requests if method == "POST"]
    assert [len(body) for body, _ in posts] == [1000, 1000, 500]
    for body, number in posts:
        assert number == f"train:2:{reporter.run}:{body[0]['epoch']}"


def test_a_retried_post_is_identical(fast, platform, capsys):
    platform.answers = [503, 503, 429]
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=1, loss=1)
    reporter.report(epoch=2, loss=1)
    assert reporter.flush(LIMIT_S)
    posts = [(body, headers["X-Message-Id"]) for method, _, body, headers in platform.requests if method == "POST"]
    assert len(posts) == 4
    assert all(post == posts[0] for post in posts)
    assert [line["epoch"] for line in platform.taken()] == [1, 2]
    assert capsys.readouterr().err.count("cannot be reached (it answers") == 1


def test_two_processes_never_share_a_message_id(fast, platform):
    first, second = (fast.Reporter(environment(platform.port)) for _ in range(2))
    assert first.run != second.run
    before = first.run
    first.reset()
    assert first.run != before


def test_a_refusal_is_printed_once_and_not_retried(fast, platform, capsys):
    platform.answers = [403, 403, 403]
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=1, progress=1)
    assert reporter.flush(LIMIT_S)
    reporter.report(epoch=2, progress=1)
    assert reporter.flush(LIMIT_S)
    reporter.report(epoch=3, progress=1)
    assert reporter.flush(LIMIT_S)
    assert [body[0]["epoch"] for method, _, body, _ in platform.requests if method == "POST"] == [1, 2, 3]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        f"mlp_report: the platform refuses POST {METRICS}: loss: is wrong",
        f"mlp_report: the platform refuses PUT {HEARTBEAT}: loss: is wrong",
    ]


def test_a_hanging_request_is_aborted_and_retried(fast, platform, monkeypatch):
    monkeypatch.setattr(fast, "TIMEOUT_S", 0.5)
    platform.answers = [threading.Event()]
    (hangs,) = platform.answers
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=1)
    assert reporter.flush(LIMIT_S)
    assert {line["epoch"] for line in platform.taken()} == {1}
    hangs.set()


def test_after_an_outage_all_reports_are_delivered(fast, capsys):
    platform = Platform()
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=0)
    assert reporter.flush(LIMIT_S)
    assert len(platform.taken()) == 1
    platform.close()
    reporter._disconnect()  # the server's open connections live on in this process; a real one's do not
    for epoch in range(1, 50):
        reporter.report(epoch=epoch)
    assert not reporter.flush(0.5)
    again = Platform(platform.port)
    try:
        assert reporter.flush(LIMIT_S)
        assert [line["epoch"] for line in again.taken()] == list(range(1, 50))
    finally:
        again.close()
    assert capsys.readouterr().err.count("cannot be reached") == 1


def test_an_outage_does_not_slow_down_the_training(platform):
    platform.close()
    script = WAITS + "for e in range(1, 5000): mlp_report.report(epoch=e, loss=1)\nprint(waits)\nwaits = None"
    before = time.monotonic()
    done = run(script, environment(platform.port, MLP_REPORT_FLUSH_S="1.5"))
    assert time.monotonic() - before > 1.4
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert "cannot be reached" in done.stderr
    assert "did not take the last 5000 reports in 1.5 s" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "bad",
    [
        {"loss": "low"},
        {"loss": True},
        {"epoch": -1},
        {"epoch": 1.5},
        {"epoch": math.nan},
        {"progress": math.inf},
        {"loss": object()},
        {"progress": [1]},
        {"epoch": 10**400},
    ],
)
def test_values_that_are_not_numbers_are_not_sent(fast, platform, capsys, bad):
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(**bad)
    reporter.report(**bad)
    reporter.report(epoch=3, loss=1)
    assert reporter.flush(LIMIT_S)
    assert [line["epoch"] for line in platform.taken()] == [3]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_loss_that_is_not_finite_is_sent_as_a_value_with_the_others_of_its_line(fast, platform):
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=12, accuracy=0.5, loss=1, progress=10)
    reporter.report(epoch=13, accuracy=0.75, loss=math.nan, progress=20, rate=0.1)
    reporter.report(accuracy=0.8)
    assert reporter.flush(LIMIT_S)
    assert [(line["epoch"], line.get("accuracy"), line.get("loss")) for line in platform.taken()] == [
        (12, 0.5, 1),
        (14, 0.8, None),
    ]
    ((batch,),) = [platform.taken(VALUES)]
    nan = pytest.approx(math.nan, nan_ok=True)
    assert [(line["step"], line["values"]) for line in batch] == [(13, {"accuracy": 0.75, "loss": nan, "rate": 0.1})]
    assert platform.taken(HEARTBEAT)[-1]["progress"] == 20


def test_numbers_of_other_types_are_sent(fast, platform):
    numpy = pytest.importorskip("numpy")
    reporter = fast.Reporter(environment(platform.port))
    reporter.report(epoch=numpy.int64(2), accuracy=numpy.float32(0.5), loss=numpy.array(1.5), progress=1000)
    assert reporter.flush(LIMIT_S)
    (line,) = platform.taken()
    assert (line["epoch"], line["accuracy"], line["loss"], line["progress"]) == (2, 0.5, 1.5, 100)


def test_the_final_report_is_sent_last(fast, platform):
    reporter = fast.Reporter(environment(platform.port))
    for epoch in range(20):
        reporter.report(epoch=epoch, progress=5 * epoch)
    reporter.finish()
    reporter.progress(3)
    reporter.flush(LIMIT_S)
    assert platform.requests[-1][2] == {"state": "finished", "progress": 100}
    assert [body for body in platform.taken(HEARTBEAT) if body["state"] != "running"] == [
        {"state": "finished", "progress": 100}
    ]
    assert len(platform.taken()) == 20


def test_a_failure_prints_its_reason_to_the_log(platform):
    done = run("import mlp_report as m; m.report(loss=1, progress=30); m.fail('no data')", environment(platform.port))
    assert done.stderr == "failed: no data\n"
    assert platform.taken(HEARTBEAT)[-1] == {"state": "error", "progress": 30}


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://[", "http://x:y", "nonsense"])
def test_an_invalid_address_is_printed_once(url):
    done = run("import mlp_report as m\nfor e in 1, 2: m.report(loss=1)", environment(1, MLP_API_URL=url))
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert "MLP_API_URL" in done.stderr


def test_an_invalid_token_is_printed_once(platform):
    done = run("import mlp_report as m; m.report(loss=1)", environment(platform.port, MLP_TOKEN="a\nb"))
    assert done.returncode == 0
    assert "failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_forked_child_has_its_own_message_ids(platform):
    script = (
        "import os, mlp_report as m\n"
        "m.report(epoch=1)\n"
        "pid = os.fork()\n"
        "if not pid: m.report(epoch=2); m.flush(); os._exit(0)\n"
        "os.waitpid(pid, 0)"
    )
    assert run(script, environment(platform.port)).returncode == 0
    assert sorted(line["epoch"] for line in platform.taken()) == [1, 2]
    assert len({headers["X-Message-Id"] for _, path, _, headers in platform.requests if path == METRICS}) == 2


@pytest.mark.parametrize("file", sorted(PACKAGE.glob("*.py")), ids=lambda file: file.name)
def test_it_supports_python_3_8(file):
    compile(file.read_text(), str(file), "exec", dont_inherit=True)
    __import__("ast").parse(file.read_text(), feature_version=(3, 8))


def test_the_remaining_seconds_are_sent_with_the_progress(fast, platform):
    reporter = fast.Reporter(environment(platform.port))
    reporter.progress(40, remaining=90)
    assert reporter.flush(LIMIT_S)
    assert platform.taken(HEARTBEAT) == [{"state": "running", "progress": 40, "remaining": 90.0}]
