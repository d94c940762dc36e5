"""Writes a folder in MLflow's format with a PythonModel, by MLflow itself; run by an interpreter that has it.

python python_model.py FOLDER KIND     (KIND: table, tensor, named, hints, broken)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import Schema, TensorSpec


class Table(mlflow.pyfunc.PythonModel):
    """Adds the offset of an artifact to a column, and greets."""

    def load_context(self, context):
        self.offset = json.loads(Path(context.artifacts["offset"]).read_text())

    def predict(self, context, model_input, params=None):
        words = [f"hello {name}" for name in model_input["name"]]
        return pd.DataFrame({"sum": model_input["x"] + self.offset, "says": words})


class Array(mlflow.pyfunc.PythonModel):
    """Sums the rows of an array."""

    def predict(self, context, model_input, params=None):
        return model_input.sum(axis=1)


class Named(mlflow.pyfunc.PythonModel):
    """Multiplies two tensors."""

    def predict(self, context, model_input, params=None):
        return {"product": model_input["a"] * model_input["b"]}


class Hints(mlflow.pyfunc.PythonModel):
    """Says its inputs by type hints."""

    def predict(self, model_input: list[str]) -> list[str]:
        return [word.upper() for word in model_input]


class Broken(mlflow.pyfunc.PythonModel):
    """Returns what cannot be answered."""

    def predict(self, context, model_input, params=None):
        return [{"deep": 1}]


def main(folder: str, kind: str) -> None:
    """Save the model; its requirements are what MLflow finds, with its own release."""
    rows = TensorSpec(np.dtype("float64"), (-1, 2))
    vector = [TensorSpec(np.dtype("float64"), (-1,), name) for name in ("a", "b")]
    frame = pd.DataFrame({"x": [1.0], "name": ["Ann"]})
    offset = Path(folder).with_suffix(".json")
    offset.write_text("10")
    kinds = {
        "table": {
            "python_model": Table(), "artifacts": {"offset": str(offset)}, "signature": infer_signature(frame),
        },
        "tensor": {"python_model": Array(), "signature": ModelSignature(Schema([rows]))},
        "named": {"python_model": Named(), "signature": ModelSignature(Schema(vector))},
        "hints": {"python_model": Hints()},
        "broken": {"python_model": Broken()},
    }  # fmt: skip
    mlflow.pyfunc.save_model(path=folder, **kinds[kind])


if __name__ == "__main__":
    main(*sys.argv[1:])
