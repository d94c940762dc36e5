"""Each model format, from its file or a job's output to correct predictions, with Triton's own client."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import requests
import tritonclient.http as triton

from jobs import reconcile as jobs_reconcile
from jobs.models import Job
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import few
from models_app import reconcile as models_reconcile
from models_app.models import Model

from .conftest import NAMES, bearer_of
from .test_serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

X = np.array([[1.0, 2.0], [-3.0, 0.5]])
WANTED = X @ [[2.0], [10.0]] + 1  # what each of the models below computes

TORCH = """
import torch
net = torch.nn.Linear(2, 1).eval()
net.load_state_dict({"weight": torch.tensor([[2.0, 10.0]]), "bias": torch.tensor([1.0])})
"""
ONNX = """
import numpy, onnx
from onnx import TensorProto, helper, numpy_helper
value = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
held = [numpy_helper.from_array(numpy.array(data, numpy.float32), name)
        for name, data in (("w", [[2.0], [10.0]]), ("b", [1.0]))]
nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
graph = helper.make_graph(nodes, "net", [value("x", "n", 2)], [value("y", "n", 1)], held)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "model.onnx")
"""
SKLEARN = """
from sklearn.linear_model import LinearRegression
x = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
net = LinearRegression().fit(x, [[2 * a + 10 * b + 1] for a, b in x])
"""
PREDICTOR = """
class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    outputs = [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}]

    def predict(self, inputs):
        (x,) = inputs
        sums = [2 * a + 10 * b + 1 for a, b in zip(x["data"][::2], x["data"][1::2])]
        return [{"name": "y", "datatype": "FP32", "shape": [x["shape"][0], 1], "data": sums}]
"""
EXPORTED = "torch.export"  # its compiler takes seconds to load
MAKE = {
    "torchscript": (TORCH + "torch.jit.trace(net, torch.zeros(1, 2)).save('model.pt')", "FP32", "input"),
    EXPORTED: (
        TORCH + "sides = {'input': {0: torch.export.Dim('n')}}\n"
        "torch.export.save(torch.export.export(net, (torch.zeros(2, 2),), dynamic_shapes=sides), 'model.pt2')",
        "FP32", "input",
    ),
    "onnx": (ONNX, "FP32", "x"),
    "joblib": (SKLEARN + "import joblib\njoblib.dump(net, 'model.joblib')", "FP64", "input"),
    "skops": (SKLEARN + "import skops.io\nskops.io.dump(net, 'model.skops')", "FP64", "input"),
    "predictor": (f"open('predictor.py', 'w').write('''{PREDICTOR}''')", "FP32", "x"),
}  # fmt: skip
ESTIMATOR = """
import joblib
from sklearn.linear_model import LogisticRegression
joblib.dump(LogisticRegression().fit([[0.0], [1.0]], ["no", "yes"]), "model.joblib")
"""
MAKE_ALL = """
import gc, json, os, sys
gc.disable()  # else a third of the time goes to the modules that stay anyway
for folder, code in json.load(sys.stdin).items():
    os.mkdir(folder)
    os.chdir(folder)
    exec(code, {})
gc.freeze()
"""
TRAINING = '''
import os
import numpy
from safetensors.numpy import save_file

os.makedirs("net")
weights = {"w": numpy.array([[2.0], [10.0]], numpy.float32), "b": numpy.array([1.0], numpy.float32)}
save_file(weights, "net/model.safetensors")
open("net/predictor.py", "w").write("""
import os
from safetensors.numpy import load_file


class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}]
    arrays, batches = True, True

    def __init__(self):
        self.held = load_file(os.path.join(os.environ["MLP_MODEL"], "model.safetensors"))

    def predict(self, inputs):
        (x,) = inputs
        return [{"name": "y", "datatype": "FP32", "data": x["data"] @ self.held["w"] + self.held["b"]}]
""")
'''


@pytest.fixture
def served(as_alice, until, ready):
    """Create a model of `src` and an application of it over REST, and wait until both are ready."""

    def serve(src: str):
        assert as_alice.call("post", "users/alice/models", {"name": "net", "src": src}).status_code == 201

        def checked() -> bool:
            models_reconcile.run()
            return Model.objects.get().state in ("ready", "error")

        until(checked)
        model = Model.objects.get()
        assert model.state == "ready", model.reason
        order = {"name": next(NAMES), "model_name": "net", "cpu": 1, "ram": 1000}
        assert as_alice.call("post", "users/alice/apps", order).status_code == 201
        from_order = model.served_by.get()
        return model, ready(from_order)

    return serve


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Return a folder with a folder of each kind, all made by one process, since the imports take seconds."""
    folder = tmp_path_factory.mktemp("formats")
    codes = {str(folder / kind): code for kind, (code, *_) in MAKE.items() if kind != EXPORTED}
    make(codes | {str(folder / "classifier"): ESTIMATOR})
    return folder


def make(codes: dict[str, str]) -> None:
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", MAKE_ALL], input=json.dumps(codes), text=True, check=True, env=one_thread)


@pytest.mark.long
def test_a_classifier_returns_the_requested_outputs(files):
    with serving(files / "classifier", "net") as (url, _process):
        client = triton.InferenceServerClient(url.removeprefix("http://"))
        tensor = triton.InferInput("input", [2, 1], "FP64")
        tensor.set_data_from_numpy(np.array([[-9.0], [9.0]]))
        both = client.infer("net", [tensor])
        assert both.as_numpy("predict").tolist() == [b"no", b"yes"]
        assert np.allclose(both.as_numpy("predict_proba").sum(axis=1), 1)
        result = client.infer("net", [tensor], outputs=[triton.InferRequestedOutput("predict")])
        assert [output["name"] for output in result.get_response()["outputs"]] == ["predict"]
        with pytest.raises(triton.InferenceServerException, match="gives no other"):
            client.infer("net", [tensor], outputs=[triton.InferRequestedOutput("other")])
        client.close()


@pytest.fixture
def ask(front, alice):
    """Return a function that makes one inference with the public client through the application gateway."""
    return functools.partial(infer, front.removeprefix("http://"), bearer_of(alice))


def infer(front: str, headers: dict, app, datatype: str, name: str, *, binary: bool) -> np.ndarray:
    """Make one inference with the public client, after checking that server and model are ready."""
    client = triton.InferenceServerClient(f"{front}/alice/{app.name}")
    try:
        assert client.is_server_live(headers=headers)
        assert client.is_server_ready(headers=headers)
        assert client.is_model_ready("net", headers=headers)
        metadata = client.get_model_metadata("net", headers=headers)
        assert [(spec["name"], spec["datatype"], spec["shape"]) for spec in metadata["inputs"]] == [
            (name, datatype, [-1, 2])
        ]
        (output,) = metadata["outputs"]
        assert output["shape"] == [-1, 1]
        data = X.astype(np.float64 if datatype == "FP64" else np.float32)
        tensor = triton.InferInput(name, list(data.shape), datatype)
        tensor.set_data_from_numpy(data, binary_data=binary)
        wanted = triton.InferRequestedOutput(output["name"], binary_data=binary)
        sent = {**headers}  # it writes into them
        return client.infer("net", [tensor], outputs=[wanted], request_id="1", headers=sent).as_numpy(output["name"])
    finally:
        client.close()


KINDS = [pytest.param(kind, marks=[pytest.mark.long] * (kind == EXPORTED)) for kind in MAKE]


@pytest.mark.parametrize("kind", few(KINDS, 1))
def test_each_format_is_checked_and_served_with_the_right_numbers(home, files, served, ask, front, alice, kind):
    code, datatype, name = MAKE[kind]
    if kind == EXPORTED:
        make({str(files / kind): code})
    shutil.copytree(files / kind, home / "net")
    model, app = served("home/net")
    assert model.format == kind
    for binary in (True, False):
        assert np.allclose(ask(app, datatype, name, binary=binary), WANTED)
    address, headers = f"{front}/alice/{app.name}/predict", bearer_of(alice)
    for wrong in ([[1]],) if kind == "predictor" else ([[1]], [[1, 2, 3]]):  # this predictor takes what it needs
        answer = requests.post(address, json=wrong, headers=headers, timeout=LIMIT_S)
        assert (answer.status_code, "expected 2 numbers in each row" in answer.json()["error"]) == (400, True)


def test_weights_from_a_job_are_served_by_its_predictor(home, as_alice, served, ask, tasks):
    (home / "train.py").write_text(TRAINING)
    order = {"name": "fit", "entry": "train.py", "cpu": 1, "ram": 1000}
    assert as_alice.call("post", "users/alice/jobs", order).status_code == 201
    end = time.monotonic() + LIMIT_S
    while Job.objects.get().state in ("creating", "running") and time.monotonic() < end:
        tasks.run_once()
        jobs_reconcile.run()
        time.sleep(0.05)
    assert Job.objects.get().state == "finished", Job.objects.get().reason
    model, app = served("jobs/fit/net")
    assert (model.format, sorted(model.checksums)) == ("predictor", ["model.safetensors", "predictor.py"])
    assert np.allclose(ask(app, "FP32", "x", binary=True), WANTED)
