"""The loader of models in all formats that the platform accepts. No Django, nothing else of the platform.

As a program, in a run of its own: `python loading.py MODEL_FOLDER OUT_FOLDER` loads the model and writes
OUT_FOLDER/inspection.json; exit 0 only when it loads. Imported by apps/serving, which is such a run too. Loading may
execute any code of the model's author (a pickle, a predictor.py): never load a model in a process of the platform.

Which file is the model says choosing.py; mlmodel.py and pyfunc.py open those in MLflow's format, hugging_face.py and
gguf.py check language models, which apps/serving/chat.py serves. Tensors are dicts of the Open Inference Protocol:
name, datatype, shape, data (a numpy array).

Inputs and outputs are those that the file declares; where it does not, `signature.json` beside it, or among the extra
files of TorchScript, declares them: {"inputs": [...], "outputs": [...]} of name, datatype and shape.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np

SIGNATURE = "signature.json"
TORCH_ARRAYS = "sklearn.externals.array_api_compat.torch"
DATATYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip
TYPES = {"bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64"}
TYPES |= {f"{sign}int{bits}": f"{sign}int{bits}".upper() for sign in ("", "u") for bits in (8, 16, 32, 64)}
ONNX_TYPES = {f"tensor({name})": kind for name, kind in TYPES.items()}
ONNX_TYPES |= {"tensor(float)": "FP32", "tensor(double)": "FP64", "tensor(string)": "BYTES"}


def _beside(name: str):
    """Import a module that is beside this file, which need not be on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).absolute().with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


choosing, hugging_face, gguf = map(_beside, ("choosing", "hugging_face", "gguf"))
NotAModel, LANGUAGE = choosing.NotAModel, ("transformers", "gguf")  # formats of language models


def find(folder: Path) -> tuple[str, Path]:
    """Return (format, file) of the model in a folder. Raises NotAModel, which names the candidates."""
    return choosing.find(folder, hugging_face, gguf)


class WrongInput(ValueError):
    """The values of a request do not fit the model; the message names the input."""


def datatype(array: np.ndarray) -> str:
    """Return the protocol's name of an array's type; strings and bytes are BYTES. Raises ValueError."""
    if array.dtype.kind in "OSU":
        return "BYTES"
    for name, kind in DATATYPES.items():
        if array.dtype == np.dtype(kind):
            return name
    raise ValueError(f"{array.dtype} has no datatype in the protocol")


def tensor(name: str, array) -> dict:
    """Return an array as a tensor of the protocol."""
    data = np.ascontiguousarray(array)
    return {"name": name, "datatype": datatype(data), "shape": list(np.shape(array)), "data": data}


class Loaded:
    """A model in memory. `inputs` and `outputs`: dicts of name, datatype, shape (-1: any), empty if not known.

    `frames`: it takes data frames, in which a text may be missing (None). `certain`: inputs have these shapes or are
    refused. `columns`: MLflow's types of the columns of a table by name, of which the `optional` ones may be missing.
    `features`: the columns that it was fitted with.
    """

    frames, columns, features, optional, wrong_input, concurrency = False, {}, (), frozenset(), WrongInput, 1

    def __init__(self, kind: str, call, inputs: list[dict], outputs: list[dict], batches: bool, certain=False):
        self.format, self.call, self.inputs, self.outputs = kind, call, inputs, outputs
        self.batches, self.certain = batches, certain

    def predict(self, tensors: list[dict], wanted: tuple[str, ...] = ()) -> list[dict]:
        """Return the outputs; some formats compute only the `wanted` ones, if any are named."""
        return self.call(tensors, wanted)

    def example(self) -> list[dict]:
        """Return the smallest input of the signature: zeros, empty strings, 1 for each variable dimension."""
        return [_zeros(spec) for spec in self.inputs]


def load(folder: Path) -> Loaded:
    """Load the model in a folder. Raises NotAModel, and whatever the libraries and the model's code raise."""
    kind, path = find(Path(folder))
    if kind in LANGUAGE:
        raise NotAModel("a language model is served by chat.py")
    openers = {"torchscript": _torchscript, "torch.export": _exported, "onnx": _onnx, "predictor": _predictor}
    openers["mlflow"] = _mlflow
    loaded = openers.get(kind, _sklearn)(kind, path)
    signature = path.parent / SIGNATURE
    if signature.is_file():
        loaded.inputs, loaded.outputs = _signature(signature.read_bytes(), loaded)
        loaded.certain = True
    return loaded


def _signature(text: bytes, loaded: Loaded) -> tuple[list[dict], list[dict]]:
    try:
        declared = json.loads(text)
        return tuple(
            [_described(entry) for entry in declared.get(side, getattr(loaded, side))] for side in ("inputs", "outputs")
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise NotAModel(f"signature.json: must be inputs and outputs, lists of name, datatype, shape ({problem!r})")


def _described(spec: dict) -> dict:
    """Check a tensor's description and return it. Raises ValueError, KeyError or TypeError."""
    name, kind, shape = str(spec["name"]), spec.get("datatype", "FP32"), list(spec.get("shape", [-1]))
    if kind not in DATATYPES:
        raise ValueError(f"{name}: {kind} is no datatype of the protocol")
    if not all(type(side) is int and side >= -1 for side in shape):
        raise ValueError(f"{name}: a shape is a list of whole numbers, -1 for any")
    return {"name": name, "datatype": kind, "shape": shape}


def _zeros(spec: dict) -> dict:
    shape = [1 if side == -1 else side for side in spec["shape"]]
    kind = spec["datatype"]
    data = np.full(shape, b"", np.object_) if kind == "BYTES" else np.zeros(shape, DATATYPES[kind])
    return {"name": spec["name"], "datatype": kind, "shape": shape, "data": data}


@contextlib.contextmanager
def _no_collections():
    """Import libraries inside without garbage collections, and spare their objects later ones: a third of the processor
    time, since modules stay to the end.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _torch_call(module, device):
    import torch

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        with torch.inference_mode():
            result = module(*(torch.from_numpy(np.array(tensor["data"])).to(device) for tensor in tensors))
        named = result.items() if isinstance(result, dict) else None
        if named is None:
            many = result if isinstance(result, tuple | list) else [result]
            named = ((f"output__{index}", value) for index, value in enumerate(many))
        return [tensor(name, value.detach().cpu().numpy()) for name, value in named]

    return call


def _torchscript(kind: str, path: Path) -> Loaded:
    with _no_collections():
        import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    extra_files = {SIGNATURE: ""}
    module = torch.jit.load(str(path), map_location=device, _extra_files=extra_files).eval()
    names = [argument.name for argument in module.forward.schema.arguments[1:] if not argument.has_default_value()]
    inputs = [{"name": name, "datatype": "FP32", "shape": [-1]} for name in names]
    loaded = Loaded(kind, _torch_call(module, device), inputs, [], batches=True)
    if extra_files[SIGNATURE]:
        loaded.inputs, loaded.outputs = _signature(extra_files[SIGNATURE], loaded)
        loaded.certain = True
        return loaded
    weights = next((each for each in module.parameters() if each.ndim == 2 and each.is_floating_point()), None)
    if len(inputs) == 1 and weights is not None:  # the file has no shape: try rows for the first layer
        guess = [{**inputs[0], "shape": [-1, weights.shape[1]]}]
        with contextlib.suppress(RuntimeError):
            loaded.predict([_zeros(guess[0])])
            loaded.inputs = guess
    return loaded


def _exported(kind: str, path: Path) -> Loaded:
    with _no_collections():  # `load` imports a thousand more modules
        import torch

        program = torch.export.load(str(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    seen = {node.name: node.meta.get("val") for node in program.graph.nodes}
    signature = program.graph_signature
    inputs = [_fake(name, seen.get(name)) for name in signature.user_inputs if isinstance(name, str)]
    outputs = [_fake(f"output__{at}", seen.get(name)) for at, name in enumerate(signature.user_outputs)]
    open_ended = bool(inputs) and all(spec["shape"][:1] == [-1] for spec in inputs)
    call = _torch_call(program.module().to(device), device)
    return Loaded(kind, call, inputs, outputs, batches=open_ended, certain=True)


def _fake(name: str, value) -> dict:
    """Return the description of a tensor in an exported program; dimensions that are not fixed are -1."""
    kind = str(getattr(value, "dtype", "torch.float32")).removeprefix("torch.")
    shape = [side if isinstance(side, int) else -1 for side in getattr(value, "shape", [-1])]
    return {"name": name, "datatype": TYPES.get(kind, "FP32"), "shape": shape}


def _onnx_value(spec) -> dict:
    shape = [side if isinstance(side, int) else -1 for side in spec.shape]
    return {"name": spec.name, "datatype": ONNX_TYPES.get(spec.type, "FP32"), "shape": shape}


def _onnx(kind: str, path: Path) -> Loaded:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # read at the import; else it keeps an id in the home
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    session = onnxruntime.InferenceSession(str(path), options, providers=onnxruntime.get_available_providers())
    inputs, outputs = (list(map(_onnx_value, side)) for side in (session.get_inputs(), session.get_outputs()))

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        names = [output["name"] for output in outputs if not wanted or output["name"] in wanted]
        arrays = session.run(names, {tensor["name"]: tensor["data"] for tensor in tensors}) if names else []
        return [tensor(name, array) for name, array in zip(names, arrays, strict=True)]

    open_ended = all(spec["shape"] and spec["shape"][0] == -1 for spec in inputs)
    return Loaded(kind, call, inputs, outputs, batches=open_ended, certain=True)


def _sklearn(kind: str, path: Path) -> Loaded:
    opened = _open_skops if kind == "skops" else importlib.import_module("joblib").load
    return _estimator(kind, opened(path), path.name, _only_input)


def _open_skops(path: Path):
    # It imports every package of scikit-learn; this one would import torch, seconds for nothing.
    sys.modules[TORCH_ARRAYS] = None
    with _no_collections():
        import skops.io
    del sys.modules[TORCH_ARRAYS]
    return skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))


def _only_input(tensors: list[dict]) -> np.ndarray:
    """Return the data of the only input, its bytes as text."""
    if len(tensors) != 1:
        raise WrongInput(f"inputs: the model takes one input, {len(tensors)} were given")
    return texts(tensors[0])


def texts(given: dict) -> np.ndarray:
    """Return the data of a tensor, bytes as text. Raises WrongInput where they are no UTF-8."""
    data = np.asarray(given["data"])
    if data.dtype != np.object_ or not data.size:
        return data
    try:
        return np.vectorize(lambda word: word.decode() if isinstance(word, bytes) else word, "O")(data)
    except UnicodeDecodeError as problem:
        raise WrongInput(f"{given['name']}: the model takes text in UTF-8 ({problem})")


def exact(name: str, data, kind: str) -> np.ndarray:
    """Return data as an array of the datatype. Raises ValueError, OverflowError where a value would become another."""
    if kind == "BYTES":
        return np.asarray(data, dtype=np.object_)
    array = np.asarray(data)
    if array.dtype == np.float64 and kind == "UINT64" and set(map(type, np.asarray(data, np.object_).flat)) == {int}:
        return np.asarray(data, dtype=np.uint64)  # of large and small whole numbers together NumPy makes floats
    array = np.asarray(array.tolist()) if array.dtype == np.object_ else array
    if array.dtype.kind in "cmM":
        raise ValueError(f"{name}: {array.dtype} does not fit {kind}")
    if array.dtype.kind not in "biuf":
        return np.asarray(data, dtype=DATATYPES[kind])
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(DATATYPES[kind])
    lost = np.isinf(cast) & ~np.isinf(array) if kind.startswith("FP") else cast != array
    if lost.any():
        raise ValueError(f"{name}: {array[lost].flat[0]} does not fit {kind}")
    return cast


def _kind_of(data) -> str:
    """Return the datatype of an output that names none: an array's own; of a list FP32 if it has the numbers."""
    array = np.asarray(data.tolist() if getattr(data, "dtype", None) == np.object_ else data)
    small = array.dtype.kind in "iu" and ((array >= -(1 << 24)) & (array <= 1 << 24)).all()
    return "FP32" if not isinstance(data, np.ndarray) and (small or array.dtype.kind == "f") else datatype(array)


def _estimator(kind: str, estimator, name: str, features_of, first: str = "predict") -> Loaded:
    """Return what has scikit-learn's interface as a model; `first` is the method of its first output."""
    if not hasattr(estimator, first):
        raise NotAModel(f"{name} holds a {type(estimator).__name__}, which cannot {first}")
    given = [name for name in dict.fromkeys((first, "predict", "predict_proba")) if hasattr(estimator, name)]

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        features = features_of(tensors)
        chosen = [name for name in given if not wanted or name in wanted]
        return [tensor(name, np.asarray(getattr(estimator, name)(features))) for name in chosen]

    takes = {"name": "input", "datatype": "FP64", "shape": [-1, int(getattr(estimator, "n_features_in_", -1))]}
    if hasattr(getattr(estimator, "steps", [[None, None]])[0][1], "build_analyzer"):  # a pipeline for text
        takes = {"name": "input", "datatype": "BYTES", "shape": [-1]}
    loaded = Loaded(kind, call, [takes], [], batches=True)
    loaded.features = tuple(map(str, getattr(estimator, "feature_names_in_", ())))
    return loaded


def _mlflow(kind: str, path: Path) -> Loaded:
    """Open a model in MLflow's format by mlmodel.py, which is beside this file."""
    kit = SimpleNamespace(
        Loaded=Loaded, NotAModel=NotAModel, DATATYPES=DATATYPES, tensor=tensor, onnx=_onnx, exported=_exported,
        torch_call=_torch_call, estimator=_estimator, open_skops=_open_skops, WrongInput=WrongInput, texts=texts,
        exact=exact, beside=_beside, MODULES=choosing.MODULES,
    )  # fmt: skip
    return _beside("mlmodel").load(path, kit)


def _predictor(kind: str, path: Path) -> Loaded:
    sys.path.insert(0, str(path.parent))
    os.environ["MLP_MODEL"] = str(path.parent)
    spec = importlib.util.spec_from_file_location("predictor", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["predictor"] = module
    spec.loader.exec_module(module)
    if getattr(module, "Predictor", None) is None:
        raise NotAModel("predictor.py has no class Predictor")
    predictor = module.Predictor()
    if not callable(getattr(predictor, "predict", None)):
        raise NotAModel("Predictor has no method predict(inputs)")
    arrays = getattr(predictor, "arrays", False) is True

    def call(tensors: list[dict], wanted: tuple[str, ...]) -> list[dict]:
        given = [{**each, "data": each["data"] if arrays else each["data"].ravel().tolist()} for each in tensors]
        return [_as_tensor(output, kinds) for output in predictor.predict(given)]

    try:
        inputs, outputs = ([_described(entry) for entry in getattr(predictor, side, None) or []]
                           for side in ("inputs", "outputs"))  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise NotAModel(f"Predictor: inputs and outputs must be lists of name, datatype, shape ({problem!r})")
    kinds = {str(entry["name"]): entry.get("datatype") for entry in getattr(predictor, "outputs", None) or []}
    loaded = Loaded(kind, call, inputs, outputs, batches=getattr(predictor, "batches", False) is True)
    loaded.concurrency = getattr(predictor, "concurrency", 1)
    if type(loaded.concurrency) is not int or loaded.concurrency < 1:
        raise NotAModel("Predictor: concurrency must be a whole number, at least 1")
    return loaded


def _as_tensor(output: dict, declared: dict[str, str]) -> dict:
    kind = output.get("datatype") or declared.get(output["name"]) or _kind_of(output["data"])
    if kind not in DATATYPES:
        raise ValueError(f"{kind} is no datatype of the protocol")
    array = exact(output["name"], output["data"], kind)
    shape = output.get("shape") or list(array.shape)
    return {"name": output["name"], "datatype": kind, "shape": shape, "data": array.reshape(shape)}


def _inspection(folder: Path) -> dict:
    """Load the model and return its format, inputs and outputs. Raises as `load`."""
    kind, path = find(folder)
    if kind not in LANGUAGE:
        loaded = load(folder)
        return {"format": loaded.format, "inputs": loaded.inputs, "outputs": loaded.outputs}
    try:
        return gguf.inspect(path) if kind == "gguf" else hugging_face.inspect(path.parent)
    except (hugging_face.Unusable, gguf.Unusable) as problem:
        raise NotAModel(str(problem))


def main() -> int:
    """Run the load check; return the exit code: EX_TEMPFAIL when the disk is full, which is not the model's fault."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        inspection = _inspection(folder)
        draft = out / ".inspection.json.part"
        draft.write_text(json.dumps(inspection))
    except NotAModel as problem:
        print(problem)
        return 1
    except Exception as problem:
        traceback.print_exc()
        print(f"{type(problem).__name__}: {problem}")
        return os.EX_TEMPFAIL if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT) else 1
    draft.replace(out / "inspection.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
