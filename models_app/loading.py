"""Opens a model of any format the platform takes, and checks that it loads. No Django, nothing else of the platform.

As a program, in a run of its own: `python loading.py MODEL_FOLDER OUT_FOLDER` loads the model and writes
OUT_FOLDER/told.json; exit 0 only when it loads. Imported by apps/serving, which is such a run too. Loading may run
whatever the model's maker put in (a pickle, a predictor.py): never import a model in a process of the platform.

Which file is the model: `predictor.py`, else the file called model.*, else the only file of a known kind; those nearest
to the top first. Tensors are dicts of the Open Inference Protocol: name, datatype, shape, data (a numpy array).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import numpy as np

FORMATS = {
    ".pt": "torchscript",
    ".pt2": "torch.export",
    ".onnx": "onnx",
    ".skops": "skops",
    ".joblib": "joblib",
    ".pkl": "joblib",
}
DATATYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip
ONNX_TYPES = {
    "tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(float16)": "FP16", "tensor(int64)": "INT64",
    "tensor(int32)": "INT32", "tensor(int16)": "INT16", "tensor(int8)": "INT8", "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16", "tensor(uint32)": "UINT32", "tensor(uint64)": "UINT64", "tensor(bool)": "BOOL",
    "tensor(string)": "BYTES",
}  # fmt: skip


class NotAModel(Exception):
    """The folder holds no model that can be opened; the words say why."""


def datatype(array: np.ndarray) -> str:
    """The protocol's name of an array's type; strings and bytes are BYTES."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    for name, kind in DATATYPES.items():
        if array.dtype == np.dtype(kind):
            return name
    raise ValueError(f"{array.dtype} has no datatype in the protocol")


def tensor(name: str, array) -> dict:
    found = np.ascontiguousarray(array)
    return {"name": name, "datatype": datatype(found), "shape": list(np.shape(array)), "data": found}


def find(folder: Path) -> tuple[str, Path]:
    """(format, file). Raises NotAModel naming what is there."""
    files = sorted(
        (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()),
        key=lambda path: (len(path.relative_to(folder).parts), str(path)),
    )
    for path in files:
        if path.name == "predictor.py":
            return "predictor", path
    known = [path for path in files if path.suffix in FORMATS]
    called = [path for path in known if path.stem == "model"]
    if called or len(known) == 1:
        path = (called or known)[0]
        return FORMATS[path.suffix], path
    if known:
        names = ", ".join(str(path.relative_to(folder)) for path in known[:5])
        raise NotAModel(f"which file is the model? There are {names}; name the file as src, or call it model.*")
    raise NotAModel("no predictor.py and no file *" + ", *".join(FORMATS) + " is there")


class Loaded:
    """A model in memory. `inputs` and `outputs`: dicts of name, datatype, shape (-1: any), empty where not known."""

    def __init__(self, kind: str, call, inputs: list[dict], outputs: list[dict], batches: bool):
        self.format, self.call, self.inputs, self.outputs, self.batches = kind, call, inputs, outputs, batches

    def predict(self, tensors: list[dict]) -> list[dict]:
        return self.call(tensors)


def load(folder: Path) -> Loaded:
    """Raises NotAModel, and whatever the libraries and the model's own code raise."""
    kind, path = find(Path(folder))
    openers = {"torchscript": _torchscript, "torch.export": _exported, "onnx": _onnx, "predictor": _predictor}
    return openers.get(kind, _sklearn)(kind, path)


def _torch_call(module, device):
    import torch

    def call(tensors: list[dict]) -> list[dict]:
        with torch.inference_mode():
            found = module(*(torch.from_numpy(np.array(one["data"])).to(device) for one in tensors))
        named = found.items() if isinstance(found, dict) else None
        if named is None:
            many = found if isinstance(found, tuple | list) else [found]
            named = ((f"output__{index}", one) for index, one in enumerate(many))
        return [tensor(name, one.detach().cpu().numpy()) for name, one in named]

    return call


def _torchscript(kind: str, path: Path) -> Loaded:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = torch.jit.load(str(path), map_location=device).eval()
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    inputs = [{"name": name, "datatype": "FP32", "shape": [-1]} for name in names]
    return Loaded(kind, _torch_call(module, device), inputs, [], batches=True)


def _exported(kind: str, path: Path) -> Loaded:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    program = torch.export.load(str(path))
    names = list(program.graph_signature.user_inputs)
    inputs = [{"name": str(name), "datatype": "FP32", "shape": [-1]} for name in names]
    # A program is exported for certain shapes, so requests are not put together.
    return Loaded(kind, _torch_call(program.module().to(device), device), inputs, [], batches=False)


def _onnx(kind: str, path: Path) -> Loaded:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    session = onnxruntime.InferenceSession(str(path), options, providers=onnxruntime.get_available_providers())
    inputs, outputs = (
        [
            {
                "name": one.name,
                "datatype": ONNX_TYPES.get(one.type, "FP32"),
                "shape": [side if isinstance(side, int) else -1 for side in one.shape],
            }
            for one in side_of
        ]
        for side_of in (session.get_inputs(), session.get_outputs())
    )

    def call(tensors: list[dict]) -> list[dict]:
        found = session.run(None, {one["name"]: one["data"] for one in tensors})
        return [tensor(one["name"], array) for one, array in zip(outputs, found, strict=True)]

    open_ended = all(one["shape"] and one["shape"][0] == -1 for one in inputs)
    return Loaded(kind, call, inputs, outputs, batches=open_ended)


def _sklearn(kind: str, path: Path) -> Loaded:
    if kind == "skops":
        import skops.io

        estimator = skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    else:
        import joblib

        estimator = joblib.load(path)
    if not hasattr(estimator, "predict"):
        raise NotAModel(f"{path.name} holds a {type(estimator).__name__}, which cannot predict")

    def call(tensors: list[dict]) -> list[dict]:
        (features,) = (one["data"] for one in tensors)
        told = [tensor("predict", np.asarray(estimator.predict(features)))]
        if hasattr(estimator, "predict_proba"):
            told.append(tensor("predict_proba", np.asarray(estimator.predict_proba(features))))
        return told

    width = int(getattr(estimator, "n_features_in_", -1))
    return Loaded(kind, call, [{"name": "input", "datatype": "FP64", "shape": [-1, width]}], [], batches=True)


def _predictor(kind: str, path: Path) -> Loaded:
    sys.path.insert(0, str(path.parent))
    os.environ["MLP_MODEL"] = str(path.parent)
    spec = importlib.util.spec_from_file_location("predictor", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["predictor"] = module
    spec.loader.exec_module(module)
    made = getattr(module, "Predictor", None)
    if made is None:
        raise NotAModel("predictor.py has no class Predictor")
    predictor = made()
    if not callable(getattr(predictor, "predict", None)):
        raise NotAModel("Predictor has no method predict(inputs)")

    def call(tensors: list[dict]) -> list[dict]:
        given = [{**one, "data": one["data"].ravel().tolist()} for one in tensors]
        return [_as_tensor(one) for one in predictor.predict(given)]

    inputs, outputs = (list(getattr(predictor, side, None) or []) for side in ("inputs", "outputs"))
    return Loaded(kind, call, inputs, outputs, batches=False)


def _as_tensor(one: dict) -> dict:
    kind = DATATYPES.get(one.get("datatype", "FP32"))
    if kind is None:
        raise ValueError(f"{one.get('datatype')} is no datatype of the protocol")
    array = np.asarray(one["data"], dtype=kind)
    shape = one.get("shape") or list(array.shape)
    return {"name": one["name"], "datatype": one.get("datatype", "FP32"), "shape": shape, "data": array.reshape(shape)}


def main() -> int:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        loaded = load(folder)
        told = {"format": loaded.format, "inputs": loaded.inputs, "outputs": loaded.outputs}
        draft = out / ".told.json.part"
        draft.write_text(json.dumps(told))
    except NotAModel as problem:
        print(problem)
        return 1
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {problem}")
        return 1
    draft.replace(out / "told.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
