"""The load check as a program: which file it chooses and what it reports. Serving is in apps/tests/test_formats.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import onnx
import pytest
from django.conf import settings

from models_app.launching import PROGRAM


def test_a_folder_with_several_models_is_refused(tmp_path):
    for name in ("a.pt", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    done = subprocess.run(
        [settings.RUN_PYTHON, str(PROGRAM), str(tmp_path), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "which file is the model? There are a.pt, b.onnx" in done.stdout


PREDICTOR = "class Predictor:\n    inputs = %s\n    def predict(self, inputs):\n        return inputs\n"


def loaded(folder) -> tuple[int, str]:
    command = [settings.RUN_PYTHON, str(PROGRAM), str(folder), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_a_signature_file_describes_the_model(tmp_path):
    (tmp_path / "predictor.py").write_text(PREDICTOR % [])
    signature = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 3]}]}
    (tmp_path / "signature.json").write_text(json.dumps(signature))
    assert loaded(tmp_path)[0] == 0
    assert json.loads((tmp_path / "inspection.json").read_text()) == {"format": "predictor", **signature, "outputs": []}


@pytest.mark.parametrize(
    "signature",
    ["[", "[]", '{"inputs": [{}]}', '{"inputs": [{"name": "x", "datatype": "NO"}]}',
     '{"inputs": [{"name": "x", "shape": [-2]}]}'],
)  # fmt: skip
def test_a_wrong_signature_does_not_load(tmp_path, signature):
    (tmp_path / "predictor.py").write_text(PREDICTOR % [])
    (tmp_path / "signature.json").write_text(signature)
    code, words = loaded(tmp_path)
    assert (code, "signature.json: must be" in words) == (1, True)


def test_a_predictor_that_describes_itself_wrongly_does_not_load(tmp_path):
    (tmp_path / "predictor.py").write_text(PREDICTOR % [{"name": "x", "datatype": "float"}])
    code, words = loaded(tmp_path)
    assert (code, "float is no datatype" in words) == (1, True)


@pytest.mark.long
def test_torchscript_can_contain_its_signature(tmp_path):
    signature = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, 3]}], "outputs": []}
    code = (
        "import json, sys, torch\n"
        "class Twice(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x\n"
        "torch.jit.trace(Twice(), torch.ones(1)).save(sys.argv[1], _extra_files={'signature.json': sys.argv[2]})"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "model.pt"), json.dumps(signature)]
    subprocess.run(command, check=True)
    assert loaded(tmp_path)[0] == 0
    assert json.loads((tmp_path / "inspection.json").read_text()) == {"format": "torchscript", **signature}


def test_onnxruntime_keeps_no_identity_of_the_machine(tmp_path):
    """With its telemetry on, it stores one in the home folder."""
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "negative", ends[:1], ends[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model, home, work = (tmp_path / name for name in ("model", "home", "work"))
    for folder in (model, home, work):
        folder.mkdir()
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), model / "model.onnx")
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"} | {"HOME": str(home)}
    command = [settings.RUN_PYTHON, str(PROGRAM), str(model), str(work)]
    subprocess.run(command, env=environment, check=True)
    assert json.loads((work / "inspection.json").read_text())["format"] == "onnx"
    assert not list(home.iterdir())
