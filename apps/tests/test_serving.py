"""The serving process by the Open Inference Protocol: JSON, binary tensors, batches, errors, graceful shutdown."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
from django.conf import settings

from apps.launching import SERVING
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import watch
from models_app.launching import PROGRAM

TORCH = """
import sys, torch
torch.set_num_threads(1)

class Double(torch.nn.Module):
    def forward(self, x):
        return x * 2

torch.jit.trace(Double(), torch.zeros(1, 3)).save(sys.argv[1])
"""


@contextlib.contextmanager
def serving(folder: Path, name: str = "double"):
    """Yield (url, process) of the server of a model's folder; it must stop when asked to at the end."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [settings.RUN_PYTHON, "-u", str(SERVING / "server.py"), "--model", str(folder), "--name", name]
    environment = {**os.environ, "MLP_LOADING": str(PROGRAM), "OMP_NUM_THREADS": "1"}
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log)
    watch(process)
    url = f"http://127.0.0.1:{port}"
    end = time.monotonic() + LIMIT_S
    while not ready(url):
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        assert time.monotonic() < end, (folder / "log").read_text()[-2000:]
        time.sleep(0.05)
    yield url, process
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) in (0, -signal.SIGTERM)


def ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/v2/health/ready", timeout=LIMIT_S).ok
    except requests.RequestException:
        return False


def refuses(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((address.hostname, address.port)) == errno.ECONNREFUSED


def waits(process: subprocess.Popen) -> int:
    """Return how often the first thread of a process has waited for something."""
    status = Path(f"/proc/{process.pid}/task/{process.pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)$", status, re.MULTILINE)[1])


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    subprocess.run([sys.executable, "-c", TORCH, str(folder / "model.pt")], check=True)
    with serving(folder) as url:
        yield url


GOOD = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}], %s}'


def infer(url: str, rows: int) -> list:
    data = [float(index) for index in range(rows * 3)]
    body = {"id": "7", "inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": data}]}
    answer = requests.post(f"{url}/v2/models/double/infer", json=body, timeout=LIMIT_S).json()
    assert answer["id"] == "7"
    (output,) = answer["outputs"]
    assert output["shape"] == [rows, 3]
    assert output["data"] == [2 * value for value in data]
    return output["data"]


def test_while_it_moves_it_answers_to_the_name_of_the_other_model(served):
    url, _process = served
    where, moving = f"{url}/v2/models/other", {"X-App-Also": "other"}  # what the gateway says while a canary is up
    assert requests.get(where, timeout=LIMIT_S).status_code == 404
    assert requests.get(where, headers=moving, timeout=LIMIT_S).json()["name"] == "double"
    answer = requests.post(f"{where}/infer", data=GOOD % b'"id": "7"', headers=moving, timeout=LIMIT_S)
    assert answer.json()["outputs"][0]["data"] == [2, 4, 6]


def test_health_and_metadata(served):
    url, _process = served
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/double/ready"):
        assert requests.get(url + path).status_code == 200
    assert requests.get(f"{url}/v2").json()["extensions"][0] == "binary_tensor_data"
    metadata = requests.get(f"{url}/v2/models/double").json()
    assert (metadata["name"], metadata["platform"], metadata["inputs"][0]["name"]) == ("double", "torchscript", "x")


def test_binary_tensors_both_ways(served):
    url, _process = served
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    tensor = {"name": "x", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": array.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    answer = requests.post(f"{url}/v2/models/double/infer", data=head + array.tobytes(), headers=headers)
    length = int(answer.headers["Inference-Header-Content-Length"])
    answer_head = json.loads(answer.content[:length])
    assert answer_head["outputs"][0]["parameters"]["binary_data_size"] == array.nbytes
    assert np.array_equal(np.frombuffer(answer.content[length:], np.float32).reshape(2, 3), array * 2)


def test_concurrent_requests_get_their_own_answers(served):
    url, _process = served
    with ThreadPoolExecutor(16) as pool:
        assert len(list(pool.map(lambda index: infer(url, 1 + index % 4), range(200)))) == 200


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"{}", b'{"inputs": [{"name": "x"}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "NO", "shape": [1], "data": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": ["a"]}]}',
        GOOD % b'"parameters": []', GOOD % b'"outputs": "y"', GOOD % b'"outputs": [{"name": 1}]',
        GOOD % b'"outputs": [{"name": "none"}]', GOOD % b'"outputs": [{"name": "output__0", "parameters": 1}]',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1, 2, 3], "parameters": [1]}]}',
        b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]},'
        b' {"name": "z", "datatype": "FP32", "shape": [1], "data": [1]}]}',
    ],
)  # fmt: skip
def test_an_invalid_request_is_refused_in_the_protocols_form(served, body):
    url, _process = served
    answer = requests.post(f"{url}/v2/models/double/infer", data=body)
    assert (answer.status_code, set(answer.json())) == (400, {"error"})


@pytest.mark.parametrize("path", ["/predict", "/v2/models/double/infer"])
@pytest.mark.parametrize("value", [b"[]", b"{}"])
def test_json_that_unpacks_to_gigabytes_is_refused_before(served, path, value):
    url, _process = served
    answer = requests.post(url + path, data=b"[" + (value + b",") * (2 << 20) + value + b"]", timeout=LIMIT_S)
    assert answer.status_code == 400
    assert "too much for JSON" in answer.json()["error"]


def test_a_form_of_countless_parts_is_refused(served):
    url, _process = served
    answer = requests.post(f"{url}/predict", files=[("x", ("x.json", b"[[1, 2, 3]]"))] * 1001, timeout=LIMIT_S)
    assert answer.status_code == 400
    assert "1000 parts" in answer.json()["error"]


def test_bodies_that_wait_together_do_not_fill_the_memory(served):
    url, _process = served
    host, port = url.removeprefix("http://").split(":")
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {60 << 20}\r\n\r\n".encode()
    with contextlib.ExitStack() as opened:
        links = [opened.enter_context(socket.create_connection((host, int(port)), LIMIT_S)) for _ in range(3)]
        for link in links:
            link.sendall(head)
        with contextlib.suppress(ConnectionError):  # one is answered before it has sent all
            for _ in range(50):
                for link in links:
                    link.sendall(bytes(1 << 20))
        answered, _, _ = select.select(links, [], [], LIMIT_S)
        assert answered[0].recv(100).startswith(b"HTTP/1.1 503 ")
    assert infer(url, 1) == [0, 2, 4]


def test_plain_json(served):
    url, _process = served
    answer = requests.post(f"{url}/predict", json=[[1, 2, 3]]).json()
    assert answer == {"output__0": [[2, 4, 6]]}


COUNTING = """
import os, time

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    batches = True

    def predict(self, inputs):
        (x,) = inputs
        with open(os.path.join(os.environ["MLP_MODEL"], "calls"), "a") as calls:
            print(x["shape"][0], file=calls)
        while 7 in x["data"] and not os.path.exists(os.environ["MLP_MODEL"] + "/go"):
            time.sleep(0.01)
        mean = sum(x["data"]) / len(x["data"]) if 9 in x["data"] else 0
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v - mean for v in x["data"]]}]
"""


def sent(url: str, values: list) -> http.client.HTTPConnection:
    """Send a request to the model; `output` waits for the answer."""
    link = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
    link.request("POST", "/predict", json.dumps(values), {"Content-Type": "application/json"})
    return link


def output(link: http.client.HTTPConnection) -> list:
    answer = json.load(link.getresponse())
    link.close()
    return answer["y"]


def calls(folder: Path) -> list[int]:
    """Return the number of rows of each call of the model."""
    return [int(rows) for rows in (folder / "calls").read_text().split()]


def held(folder: Path, url: str) -> http.client.HTTPConnection:
    """Send a request that the model computes until the file `go` is there; return once it does."""
    before, link = len(calls(folder)), sent(url, [7])
    until(lambda: len(calls(folder)) > before, LIMIT_S)
    return link


def together(folder: Path, url: str, requested: list[list]) -> list:
    """Return the outputs of requests that all wait for one before them to end."""
    first = held(folder, url)
    links = [sent(url, values) for values in requested]
    for _ in range(3):
        assert ready(url)  # by the same thread, which has taken those by then
    (folder / "go").touch()
    outputs = [output(link) for link in links]
    assert output(first) in ([7], [0])
    (folder / "go").unlink()
    return outputs


def test_a_model_is_warmed_up_before_it_is_ready(tmp_path):
    (tmp_path / "predictor.py").write_text(COUNTING)
    with serving(tmp_path) as (url, _process):
        assert (tmp_path / "calls").read_text() == "1\n"
        outputs = requests.get(f"{url}/v2/models/double").json()["outputs"]
        assert outputs == [{"name": "y", "datatype": "FP32", "shape": [-1]}]
        assert requests.get(f"{url}/schema").json()["predict"]["example"] == {"x": [0]}


def test_waiting_requests_are_batched_once_batching_is_verified(tmp_path):
    (tmp_path / "predictor.py").write_text(COUNTING)
    requested = [[value, value] for value in range(10, 22)]
    with serving(tmp_path) as (url, _process):
        assert together(tmp_path, url, requested) == requested  # the first time they wait, it is proven
        before = len(calls(tmp_path))
        assert together(tmp_path, url, requested) == requested
        assert calls(tmp_path)[before:] == [1, 24]


def test_a_model_that_mixes_rows_is_never_batched(tmp_path):
    (tmp_path / "predictor.py").write_text(COUNTING.replace("if 9 in x", "if True or x"))
    with serving(tmp_path) as (url, _process):
        for values in ([5] * 8, list(range(10, 18)), list(range(20, 28))):  # equal ones prove nothing
            assert together(tmp_path, url, [[value] for value in values]) == [[0]] * len(values)


def test_a_request_whose_caller_has_gone_is_given_up(tmp_path):
    """Give it up while the model computes it, and while it waits for another one."""
    (tmp_path / "predictor.py").write_text(COUNTING)
    with serving(tmp_path) as (url, _process):
        first, waiting = held(tmp_path, url), sent(url, [5, 5, 5])
        assert ready(url)
        waiting.close()
        first.close()
        assert output(sent(url, [1])) == [1]
        assert calls(tmp_path) == [1, 1, 1]


def test_a_model_that_says_so_computes_several_requests_at_once(tmp_path):
    text = "import threading\nmet = threading.Barrier(2)\n" + COUNTING.replace("batches = True", "concurrency = 2")
    (tmp_path / "predictor.py").write_text(
        text.replace("        mean =", "        8 in x['data'] and met.wait()\n        mean =")
    )
    with serving(tmp_path) as (url, _process):
        links = [sent(url, [8]), sent(url, [8, 8])]
        assert [output(link) for link in links] == [[8], [8, 8]]


def test_a_stop_finishes_open_requests_and_accepts_no_new_ones(tmp_path):
    (tmp_path / "predictor.py").write_text(COUNTING)
    with serving(tmp_path) as (url, process):
        slow = held(tmp_path, url)
        process.send_signal(signal.SIGTERM)
        until(lambda: refuses(url), LIMIT_S)
        enough = waits(process) + 5
        until(lambda: waits(process) >= enough or process.poll() is not None, LIMIT_S)  # it goes on waiting
        (tmp_path / "go").touch()
        assert output(slow) == [7]
        assert process.wait(LIMIT_S) in (0, -signal.SIGTERM)
