"""Models in MLflow's format that only MLflow itself can load: those of `mlflow.pyfunc.PythonModel`, and flavours that
mlmodel.py does not open. Imported by loading.py only, in an environment that has mlflow: it comes from the model's own
requirements.txt (packages.py).
"""

from __future__ import annotations

import os
import platform
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np

OF_CALLER = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")  # codes of MLflow for input that the signature does not allow
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}  # MLflow would report each load to its makers


def load(folder: Path, about: dict, features, kit: SimpleNamespace):
    """Load the model of a folder by `mlflow.pyfunc`; `about` is its MLmodel file, `features` the inputs of its
    signature. Raises kit.NotAModel without mlflow.
    """
    os.environ.update(QUIET)
    beside = str(Path(__file__).absolute().parent)  # where runs see all of the platform there is another mlflow
    sys.path[:] = [path for path in sys.path if path != beside]
    try:
        import mlflow.pyfunc
    except ModuleNotFoundError as problem:
        raise kit.NotAModel(_missing(about, str(problem.name)))
    try:
        model = mlflow.pyfunc.load_model(str(folder))
    except ModuleNotFoundError as problem:
        raise kit.NotAModel(
            f"MLmodel: loading this model needs the Python package {problem.name}, which is not installed here; "
            f"add it to requirements.txt beside MLmodel, or to the packages of the model"
        )
    except Exception as problem:
        if saved_with := _other_python(about):
            traceback.print_exc()
            raise kit.NotAModel(
                f"MLmodel: the model was saved with Python {saved_with} and does not load with "
                f"{platform.python_version()} ({type(problem).__name__}: {problem})"
            )
        raise

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        given = _given(tensors, features, kit)
        try:
            result = model.predict(given)
        except mlflow.exceptions.MlflowException as problem:
            if problem.error_code in OF_CALLER:
                raise kit.WrongInput(problem.message)
            raise
        return [kit.tensor(name, _plain(name, values)) for name, values in _outputs(result)]

    features.frames = features.table
    return kit.Loaded("pyfunc", call, features.inputs, [], batches=False)


def _other_python(about: dict) -> str:
    """Return the Python that the model was saved with, "" where it is this one, or is not said: a pickle of another one
    often cannot be read.
    """
    saved_with = str((about["flavors"].get("python_function") or {}).get("python_version", ""))
    here = platform.python_version_tuple()[:2]
    return saved_with if saved_with and tuple(saved_with.split(".")[:2]) != here else ""


def _missing(about: dict, package: str) -> str:
    version = str(about.get("mlflow_version", ""))
    line = f"mlflow=={version}" if version.replace(".", "").isalnum() else "mlflow"
    loader = (about["flavors"].get("python_function") or {}).get("loader_module")
    return (
        f"MLmodel: a model that {loader} loads needs the Python package {package}, which is not installed here; add "
        f"{line} to requirements.txt beside MLmodel, or to the packages of the model"
    )


def _given(tensors: list[dict], features, kit: SimpleNamespace):
    """Return what MLflow's signature describes: a data frame for a table, a dict for named tensors, else an array."""
    if features.table:
        return features.frame(tensors)
    if features.named or len(tensors) > 1:
        return {tensor["name"]: kit.texts(tensor) for tensor in tensors}
    return kit.texts(tensors[0])


def _outputs(result) -> list[tuple[str, object]]:
    """Return the outputs by name: each column of a data frame, each value of a dict, else one that is `predict`."""
    if hasattr(result, "columns") and hasattr(result, "items"):
        return [(str(name), column) for name, column in result.items()]
    if isinstance(result, dict):
        return [(str(name), values) for name, values in result.items()]
    return [("predict", result)]


def _plain(name: str, values) -> np.ndarray:
    """Return an output as an array of numbers or texts, dates in ISO 8601. Raises ValueError for anything else."""
    try:
        array = np.atleast_1d(np.asarray(values))
        if array.dtype == np.object_:  # a column of pandas, which may hold numbers only
            array = np.asarray(array.tolist())
    except ValueError as problem:  # lists of different lengths
        raise ValueError(f"{name}: the model returned what is no array ({problem})")
    if array.dtype.kind == "M":
        return np.datetime_as_string(array).astype(np.object_)
    if array.dtype == np.object_:
        kinds = {type(value) for value in array.ravel()}
        if not kinds <= {str, bytes}:
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise ValueError(f"{name}: the model returned {names}; what can be answered are numbers and texts")
    return array
