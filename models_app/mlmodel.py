"""Models in MLflow's format, a folder with an MLmodel file, without the mlflow package. Imported by loading.py only.

Opened are the flavours scikit-learn, XGBoost, ONNX and PyTorch; `python_function` says which of them predicts. What
else it names, such as its own models (`mlflow.pyfunc.PythonModel`), is loaded by the mlflow package (pyfunc.py).

The signature becomes the one of the Open Inference Protocol: a tensor is one input, a table an input for each column.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import yaml

COLUMNS = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
    "binary": "BYTES", "datetime": "BYTES",
}  # fmt: skip
TENSORS = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64", "str": "BYTES", "object": "BYTES"}
TENSORS |= {f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)}
MAX_BYTES = 1 << 20  # of an MLmodel file


class Features:
    """The inputs that a signature declares, and how they become what a model takes: an array, or a table."""

    def __init__(self, declared: list[dict], kit: SimpleNamespace):
        self.kit = kit
        self.named = any("name" in entry for entry in declared)
        self.table = bool(declared) and all(entry.get("type") != "tensor" for entry in declared)
        self.inputs = _described(declared, kit.NotAModel)
        of_table = list(zip(self.inputs, declared, strict=True)) if self.table else []
        self.columns = {spec["name"]: column["type"] for spec, column in of_table}
        self.optional = frozenset(spec["name"] for spec, column in of_table if column.get("required") is False)
        self.frames = False  # whether the model takes data frames, in which a text may be missing

    def of_estimator(self, estimator):
        """Return the function that makes the features of a request. An estimator that was fitted on arrays gets arrays,
        any other one the table as a data frame: it may choose columns by name (ColumnTransformer).
        """
        on_arrays = hasattr(estimator, "n_features_in_") and not hasattr(estimator, "feature_names_in_")
        self.frames = self.table and not on_arrays
        return self.frame if self.frames else self.of

    def frame(self, tensors: list[dict]):
        """Return the features of a request as a data frame."""
        import pandas  # here: half a second and 42 MiB, which other models do without

        frame = pandas.DataFrame(self._columns(tensors))
        for name in frame.columns:
            if self.columns[name] == "datetime":
                frame[name] = self._dates(name, frame[name], pandas)
        return frame

    def _dates(self, name: str, words, pandas):
        try:
            try:
                return pandas.to_datetime(words)
            except ValueError:  # each may be written in another way
                return pandas.to_datetime(words, format="mixed")
        except (ValueError, TypeError, OverflowError) as problem:
            raise self.kit.WrongInput(f"{name}: a column of type datetime takes dates ({problem})")

    def of(self, tensors: list[dict]):
        """Return the features of a request as an array."""
        if not self.table:
            return self.kit.texts(tensors[0])
        columns = self._columns(tensors)
        missing = [spec["name"] for spec in self.inputs if spec["name"] not in columns]
        if missing:
            raise self.kit.WrongInput(f"{missing[0]}: this model needs the column, though it is optional")
        if any(column.dtype == np.object_ for column in columns.values()):
            return np.column_stack([column.astype(np.object_) for column in columns.values()])
        return np.column_stack(list(columns.values()))

    def rows(self, tensors: list[dict], kind: str) -> np.ndarray:
        """Return a table as the only input of a model, of this datatype."""
        try:
            return self.kit.exact("inputs", self.of(tensors), kind)
        except self.kit.WrongInput:
            raise
        except (ValueError, TypeError) as problem:
            raise self.kit.WrongInput(str(problem))

    def _columns(self, tensors: list[dict]) -> dict[str, np.ndarray]:
        """Return the columns of a request by name, in the signature's order. Those that are missing are filled, but for
        whole numbers and BOOL, which have no value that says so: these stay away.
        """
        given = {tensor["name"]: self._cells(tensor) for tensor in tensors}
        counts = {len(cells) for cells in given.values()}
        if len(counts) != 1:
            raise self.kit.WrongInput(f"inputs: the columns {', '.join(given)} must be of the same length")
        (rows,) = counts
        for spec in self.inputs:
            if spec["name"] not in given and spec["datatype"].startswith("FP"):
                given[spec["name"]] = np.full(rows, np.nan, self.kit.DATATYPES[spec["datatype"]])
            elif spec["name"] not in given and spec["datatype"] == "BYTES" and self.frames:
                given[spec["name"]] = np.full(rows, None, np.object_)
        return {spec["name"]: given[spec["name"]] for spec in self.inputs if spec["name"] in given}

    def _cells(self, tensor: dict) -> np.ndarray:
        shape = list(tensor["shape"])
        if len(shape) > 2 or not shape or shape[1:] not in ([], [1]):
            raise self.kit.WrongInput(f"{tensor['name']}: a column must have the shape [-1], given was {shape}")
        binary = self.columns.get(tensor["name"]) == "binary"
        return (np.asarray(tensor["data"]) if binary else self.kit.texts(tensor)).reshape(-1)


def _described(declared: list[dict], wrong: type[Exception]) -> list[dict]:
    """Return inputs or outputs of a signature; several without names are called by their position, as MLflow does."""
    table = bool(declared) and all(entry.get("type") != "tensor" for entry in declared)
    named = [
        {**entry, "name": str(entry.get("name", at if len(declared) > 1 else "input"))}
        for at, entry in enumerate(declared)
    ]
    return [_column(entry, wrong) if table else _tensor(entry, wrong) for entry in named]


def _column(entry: dict, wrong: type[Exception]) -> dict:
    kind = COLUMNS.get(entry.get("type"))
    if kind is None:
        raise wrong(f"MLmodel: a column of type {entry.get('type')} cannot be served; tables have simple columns")
    return {"name": entry["name"], "datatype": kind, "shape": [-1]}


def _tensor(entry: dict, wrong: type[Exception]) -> dict:
    spec = entry.get("tensor-spec", {})
    kind = TENSORS.get(spec.get("dtype"))
    if kind is None:
        raise wrong(f"MLmodel: a tensor of type {spec.get('dtype')} cannot be served")
    return {"name": entry["name"], "datatype": kind, "shape": [int(side) for side in spec["shape"]]}


def load(path: Path, kit: SimpleNamespace):
    """Load the model whose MLmodel file is given. `kit` has what loading.py lends. Raises kit.NotAModel."""
    about = _read(path, kit.NotAModel)
    flavours = about["flavors"]
    pyfunc = flavours.get("python_function") or {}
    name = kit.MODULES.get(pyfunc.get("loader_module", "")) or next(
        (opener for opener in OPENERS if not pyfunc and opener in flavours), ""
    )
    flavour = flavours.get(name)
    by_mlflow = not name and bool(pyfunc.get("loader_module"))
    if not by_mlflow and not isinstance(flavour, dict):
        raise kit.NotAModel(_unsupported(flavours))
    signature = about.get("signature") or {}
    features = Features(_declared(signature, "inputs", kit.NotAModel), kit)
    if by_mlflow:
        return _finished(kit.beside("pyfunc").load(path.parent, about, features, kit), "pyfunc", features)
    for code in (pyfunc.get("code"), flavour.get("code")):
        if code:
            sys.path.insert(0, str(_inside(path.parent, code, kit.NotAModel)))
    outputs = _described(_declared(signature, "outputs", kit.NotAModel), kit.NotAModel)
    try:
        loaded = _finished(OPENERS[name](path.parent, flavour, pyfunc, features, kit), name, features)
    except ModuleNotFoundError as problem:
        raise kit.NotAModel(
            f"the flavour {name} of this model needs the Python package {problem.name}, which is not installed here"
        )
    loaded.certain = loaded.certain or bool(features.inputs and not features.table)
    if len(outputs) == len(loaded.outputs):
        loaded.outputs = [{**spec, "name": known["name"]} for spec, known in zip(outputs, loaded.outputs, strict=True)]
    return loaded


def _finished(loaded, name: str, features: Features):
    """Return a model of this flavour with what the signature says of its inputs."""
    loaded.format = f"mlflow/{name}"
    loaded.inputs, loaded.frames = features.inputs or loaded.inputs, features.frames
    loaded.columns, loaded.optional = features.columns, features.optional
    return loaded


def _read(path: Path, wrong: type[Exception]) -> dict:
    text = path.read_bytes()
    if len(text) > MAX_BYTES:
        raise wrong(f"MLmodel: larger than {MAX_BYTES >> 20} MiB")
    try:
        about = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as problem:
        raise wrong(f"MLmodel: not YAML ({problem})")
    if not isinstance(about, dict) or not isinstance(about.get("flavors"), dict):
        raise wrong("MLmodel: has no flavors")
    return about


def _unsupported(flavours: dict) -> str:
    others = ", ".join(sorted(set(flavours) - {"python_function"})) or "none"
    return (
        f"MLmodel: flavours that can be served are {', '.join(OPENERS)}, and what python_function loads; "
        f"this model has {others}"
    )


def _declared(signature: dict, side: str, wrong: type[Exception]) -> list[dict]:
    try:
        columns = json.loads(signature.get(side) or "[]")
        if not isinstance(columns, list) or not all(isinstance(column, dict) for column in columns):
            raise TypeError("not a list of objects")
    except (ValueError, TypeError, AttributeError) as problem:
        raise wrong(f"MLmodel: the signature's {side} are not understood ({problem})")
    return columns


def _inside(folder: Path, name: str, wrong: type[Exception]) -> Path:
    """Return a file of the model; MLmodel may name none outside of it."""
    path = (folder / str(name)).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.exists():
        raise wrong(f"MLmodel: {name} is not a file of the model")
    return path


# --- flavours --------------------------------------------------------------------------------------------------------
def _sklearn(folder: Path, flavour: dict, pyfunc: dict, features: Features, kit: SimpleNamespace):
    file = _inside(folder, flavour.get("pickled_model", "model.pkl"), kit.NotAModel)
    kind = flavour.get("serialization_format", "pickle")
    if kind == "skops":
        estimator = kit.open_skops(file)
    else:
        with file.open("rb") as source:
            estimator = pickle.load(source)
    return kit.estimator(kind, estimator, file.name, features.of_estimator(estimator), _first(pyfunc))


def _first(pyfunc: dict) -> str:
    return str(pyfunc.get("predict_fn", "predict"))


def _xgboost(folder: Path, flavour: dict, pyfunc: dict, features: Features, kit: SimpleNamespace):
    import xgboost

    file = _inside(folder, flavour.get("data", "model.xgb"), kit.NotAModel)
    name = str(flavour.get("model_class", "xgboost.core.Booster")).rpartition(".")[2]
    maker = getattr(xgboost, name, None)
    if not isinstance(maker, type) or not (name == "Booster" or name.startswith("XGB")):
        raise kit.NotAModel(f"MLmodel: {name} is no model of xgboost")
    model = maker()
    model.load_model(str(file))
    if name != "Booster":
        return kit.estimator("xgboost", model, file.name, features.of_estimator(model), _first(pyfunc))

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        rows = xgboost.DMatrix(np.asarray(features.of(tensors)), feature_names=model.feature_names)
        return [kit.tensor("predict", model.predict(rows))]

    takes = {"name": "input", "datatype": "FP32", "shape": [-1, int(model.num_features())]}
    gives = {"name": "predict", "datatype": "FP32", "shape": [-1]}
    loaded = kit.Loaded("xgboost", call, [takes], [gives], batches=True)
    loaded.features = tuple(model.feature_names or ())
    return loaded


def _onnx(folder: Path, flavour: dict, pyfunc: dict, features: Features, kit: SimpleNamespace):
    loaded = kit.onnx("onnx", _inside(folder, flavour.get("data", "model.onnx"), kit.NotAModel))
    if features.table and len(loaded.inputs) == 1:
        whole, inner = loaded.inputs[0], loaded.call

        def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
            rows = features.rows(tensors, whole["datatype"])
            return inner([{**whole, "shape": list(rows.shape), "data": rows}], wanted)

        loaded.call = call
    else:
        features.inputs, features.columns, features.optional = [], {}, frozenset()  # the file's own are exact
    return loaded


def _pytorch(folder: Path, flavour: dict, pyfunc: dict, features: Features, kit: SimpleNamespace):
    import torch

    data = _inside(folder, flavour.get("model_data", "data"), kit.NotAModel)
    exported, pickled = data / "model.pt2", data / "model.pth"
    if exported.is_file():
        loaded = kit.exported("torch.export", exported)
    else:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            module = torch.jit.load(str(pickled), map_location=device)
        except RuntimeError:  # not TorchScript
            module = torch.load(str(pickled), map_location=device, weights_only=False)
        loaded = kit.Loaded("torch", kit.torch_call(module.eval(), device), [], [], batches=True)
    if features.table:
        inner = loaded.call

        def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
            rows = features.rows(tensors, "FP32")
            return inner([{"name": "input", "datatype": "FP32", "shape": list(rows.shape), "data": rows}], wanted)

        loaded.call = call
    return loaded


OPENERS = {"sklearn": _sklearn, "xgboost": _xgboost, "onnx": _onnx, "pytorch": _pytorch}
