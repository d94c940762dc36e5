"""Traces that are taken a second, here and by an MLflow server on the same PostgreSQL with as many web processes.

Both get the same requests in turns: OpenTelemetry's protobuf with traces of three spans, as a call of a language model
within an agent has them, one or a hundred traces in a request, over four connections; then MLflow's own client with
four threads, which waits for each trace. The senders share the machine's cores with the servers. At the end each
database has every trace and span that was answered 200.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import bars
import instance
import mlflow_server
import peers
import psycopg
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

LANES = 4
ROUNDS = 3
TRACES = int(os.environ.get("BENCH_TRACES", "400"))  # of a round, one in a request; ten times as many in large ones
LARGE = 100  # traces of a large request
SPANS = 3
LEAST = 0.8  # of the other server's rate: it should be reached, and a busy machine moves both
QUESTION = "Summarise the incident of last night for the people who were asleep. " * 8
CHAT = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-4o-mini", "gen_ai.usage.input_tokens": 420,
    "gen_ai.usage.output_tokens": 90,
    "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]),
    "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": QUESTION}]}]),
}  # fmt: skip
CLIENT = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
import mlflow

mlflow.set_experiment("client")

@mlflow.trace(span_type="CHAT_MODEL")
def chat(messages):
    mlflow.get_current_active_span().set_attribute("gen_ai.request.model", "gpt-4o-mini")
    return messages[-1]["content"]

@mlflow.trace(span_type="RETRIEVER")
def search(question):
    return [question]

@mlflow.trace(name="answer", span_type="AGENT")
def answer(question):
    search(question)
    return chat([{"role": "user", "content": question}])

def lane(count):
    for _ in range(count):
        answer(sys.argv[2])

lane(5)
began = time.perf_counter()
with ThreadPoolExecutor(4) as lanes:
    list(lanes.map(lane, [int(sys.argv[1]) // 4] * 4))
print(time.perf_counter() - began)
"""
COUNT = {
    "platform": "SELECT (SELECT count(*) FROM trace), (SELECT count(*) FROM trace_span)",
    "MLflow": "SELECT (SELECT count(*) FROM trace_info), (SELECT count(*) FROM spans)",
}


@dataclass
class Target:
    """A server that takes traces. `database` is the address of what it has stored; `sent` counts traces."""

    name: str
    uri: str
    token: str
    database: str
    experiment: str = ""
    sent: int = 0

    def call(self, route: str, body: dict) -> dict:
        request = self._request("POST", f"/api/2.0/mlflow/{route}", json.dumps(body).encode(), "application/json")
        return json.loads(request)

    def _request(self, method: str, path: str, data: bytes, kind: str) -> bytes:
        lane = self.connect()
        headers = {"Content-Type": kind, **self.headers}
        lane.request(method, urllib.parse.urlsplit(self.uri).path + path, data, headers)
        return _body(lane)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(urllib.parse.urlsplit(self.uri).netloc, timeout=300)

    @property
    def headers(self) -> dict[str, str]:
        given = {"X-MLflow-Experiment-Id": self.experiment} if self.experiment else {}
        return {**given, "Authorization": f"Bearer {self.token}"} if self.token else given

    def take(self, bodies: list[bytes]) -> float:
        """Send the bodies over LANES connections; return the seconds until all are answered."""
        headers = {"Content-Type": "application/x-protobuf", **self.headers}
        path = urllib.parse.urlsplit(self.uri).path + "/v1/traces"

        def lane(number: int) -> None:
            link = self.connect()
            for body in bodies[number::LANES]:
                link.request("POST", path, body, headers)
                _body(link)
            link.close()

        began = time.perf_counter()
        with ThreadPoolExecutor(LANES) as lanes:
            list(lanes.map(lane, range(LANES)))
        return time.perf_counter() - began


def _body(link: http.client.HTTPConnection) -> bytes:
    """Return the body of an answer. Raises SystemExit for one that is not 200."""
    answer = link.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{answer.status} {data[:300]!r}")
    return data


def request_of(traces: int) -> bytes:
    """Return a request with so many new traces."""
    request, now = ExportTraceServiceRequest(), time.time_ns()
    spans = request.resource_spans.add().scope_spans.add().spans
    for _ in range(traces):
        trace, keys = secrets.token_bytes(16), [secrets.token_bytes(8) for _ in range(SPANS)]
        for number, name in enumerate(("answer", "search", "chat gpt-4o-mini")):
            span = spans.add(trace_id=trace, span_id=keys[number], name=name, kind=1)
            span.parent_span_id = keys[0] if number else b""
            span.start_time_unix_nano, span.end_time_unix_nano = now - 10**9 + number, now - number
            given = CHAT if number == 2 else {"input.value": QUESTION, "output.value": QUESTION}
            for key, value in given.items():
                pair = span.attributes.add(key=key)
                if isinstance(value, int):
                    pair.value.int_value = value
                else:
                    pair.value.string_value = value
    return request.SerializeToString()


def in_turns(what: str, targets: list[Target], traces: int, seconds) -> None:
    """Measure each target ROUNDS times, in turns, and print the medians of the traces a second."""
    rates: dict[str, list[float]] = {target.name: [] for target in targets}
    for _ in range(ROUNDS):
        for target in targets:
            rates[target.name].append(traces / seconds(target))
            target.sent += traces
    medians = {name: statistics.median(some) for name, some in rates.items()}
    ratio = medians["platform"] / medians["MLflow"]
    for name, rate in medians.items():
        spread = f"{min(rates[name]):.0f} to {max(rates[name]):.0f}"
        print(f"{what:<36} {name:<9} {rate:7.0f} traces/s   ({spread})", flush=True)
    print(f"{what:<36} ratio {ratio:.2f} {instance.load()}", flush=True)
    bars.note(f"traces, {what}, beside MLflow's server", ratio, "times", least=LEAST)


def by_requests(count: int, traces: int):
    """Return what sends so many requests with so many traces each, and returns the seconds."""
    return lambda target: target.take([request_of(traces) for _ in range(count)])


def by_client(python: Path, traces: int):
    """Return what has MLflow's client send traces, and returns the seconds."""

    def seconds(target: Target) -> float:
        environment = {
            **os.environ, "MLFLOW_TRACKING_URI": target.uri, "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }  # fmt: skip
        if target.token:
            environment["MLFLOW_TRACKING_TOKEN"] = target.token
        target.sent += 5  # before the measurement
        with tempfile.TemporaryDirectory() as folder:
            command = [str(python), "-c", CLIENT, str(traces), QUESTION]
            done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        return float(done.stdout.split()[-1])

    return seconds


def is_complete(target: Target) -> bool:
    """Return whether the database has what was sent, once."""
    with psycopg.connect(target.database) as link:
        traces, spans = link.execute(COUNT[target.name].encode()).fetchone()
    print(f"{target.name} has {traces} traces and {spans} spans of {target.sent} and {SPANS * target.sent} sent")
    return (traces, spans) == (target.sent, SPANS * target.sent)


def main() -> int:
    with instance.running() as platform, mlflow_server.server(platform) as other:
        ours = f"{platform.url}/mlflow"
        targets = [
            Target("platform", ours, platform.token, mlflow_server.database_url(platform)),
            Target("MLflow", other.uri, "", other.database.replace("postgresql+psycopg:", "postgresql:")),
        ]
        for target in targets:
            target.experiment = target.call("experiments/create", {"name": "raw"})["experiment_id"]
            target.take([request_of(1) for _ in range(2 * LANES)])  # the first ones load code
            target.sent += 2 * LANES
        for what, count, size in (("one in a request", TRACES, 1), (f"{LARGE} in a request", 10 * TRACES, LARGE)):
            in_turns(what, targets, count, by_requests(count // size, size))
        python = peers.peer("mlflow", mlflow_server.MLFLOW, "psycopg[binary]") / "python"
        in_turns("by MLflow's client", targets, TRACES, by_client(python, TRACES))
        complete = [is_complete(target) for target in targets]
        bars.note("every trace that was answered is stored, once", float(all(complete)), least=1)
    return 0 if all(complete) else 1


if __name__ == "__main__":
    sys.exit(main())
