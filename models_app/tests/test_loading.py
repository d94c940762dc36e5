"""loading.py as the program it is: what it takes for the model, and that each format opens and computes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from models_app.launching import PROGRAM

MAKE = {
    "torchscript": """
import torch
torch.jit.trace(torch.nn.Linear(2, 1).eval(), torch.zeros(1, 2)).save("model.pt")
""",
    "torch.export": """
import torch
torch.export.save(torch.export.export(torch.nn.Linear(2, 1).eval(), (torch.zeros(1, 2),)), "model.pt2")
""",
    "joblib": """
import joblib
from sklearn.linear_model import LogisticRegression
joblib.dump(LogisticRegression().fit([[0.0, 0.0], [1.0, 1.0]], [0, 1]), "model.joblib")
""",
    "skops": """
import skops.io
from sklearn.linear_model import LogisticRegression
skops.io.dump(LogisticRegression().fit([[0.0, 0.0], [1.0, 1.0]], [0, 1]), "model.skops")
""",
}
COMPUTE = """
import sys, numpy
sys.path.insert(0, sys.argv[1])
import loading
kind = numpy.float64 if loading.find(loading.Path("."))[1].suffix in (".skops", ".joblib") else numpy.float32
print(loading.load(".").predict([loading.tensor("x", numpy.ones((1, 2), kind))])[0]["shape"])
"""


@pytest.mark.parametrize("kind", MAKE)
def test_each_format_opens_and_computes(tmp_path, kind):
    subprocess.run([sys.executable, "-c", MAKE[kind]], check=True, cwd=tmp_path)
    subprocess.run([sys.executable, str(PROGRAM), str(tmp_path), str(tmp_path)], check=True, cwd=tmp_path)
    assert json.loads((tmp_path / "told.json").read_text())["format"] == kind
    command = [sys.executable, "-c", COMPUTE, str(PROGRAM.parent)]
    told = subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, text=True)
    assert told.stdout.strip() in ("[1, 1]", "[1]")


def test_a_folder_of_several_models_is_told_apart_or_refused(tmp_path):
    for name in ("a.pt", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    told = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 1
    assert "which file is the model? There are a.pt, b.onnx" in told.stdout
