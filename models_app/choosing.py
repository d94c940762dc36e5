"""Which file of a folder is the model. No Django, nothing else of the platform: used by loading.py, in runs.

The file that is the model: `predictor.py`, else the file named model.*, else the only file of a known format; those
nearest to the top first. A folder with an MLmodel file is a model in MLflow's format (mlmodel.py), one with Hugging
Face's config.json a language model (hugging_face.py). A GGUF file is one, too, of which several parts are one file
(gguf.py); beside safetensors it is the same model once more and does not count.
"""

from __future__ import annotations

from pathlib import Path

FORMATS = {
    ".pt": "torchscript", ".pt2": "torch.export", ".onnx": "onnx", ".skops": "skops", ".joblib": "joblib",
    ".pkl": "joblib", ".gguf": "gguf",
}  # fmt: skip
MODULES = {  # of MLflow's python_function, its `loader_module`: the flavours that mlmodel.py opens without mlflow
    "mlflow.sklearn": "sklearn", "mlflow.xgboost": "xgboost", "mlflow.onnx": "onnx", "mlflow.pytorch": "pytorch",
}  # fmt: skip
NAMED = {"MLmodel": "mlflow", "predictor.py": "predictor"}


class NotAModel(Exception):
    """The folder has no model that can be loaded; the message says why."""


def find(folder: Path, hugging_face, gguf) -> tuple[str, Path]:
    """Return (format, file) of the model in a folder. Raises NotAModel, which names the candidates."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    files.sort(key=lambda path: (len(path.relative_to(folder).parts), str(path)))
    for path in files:
        if path.name in NAMED:
            return NAMED[path.name], path
    parts = [path for path in files if path.suffix == gguf.SUFFIX]
    further = set(parts) - set(gguf.first_parts(parts))
    if any(path.suffix == ".safetensors" for path in files):
        further = set(parts)
    known = [path for path in files if path.suffix in FORMATS and path not in further]
    called = [path for path in known if path.stem == "model"]
    language = None if called else _language_model(files, known, hugging_face)
    if language is not None:
        return "transformers", language
    if called or len(known) == 1:
        path = (called or known)[0]
        return FORMATS[path.suffix], path
    if known:
        names = ", ".join(str(path.relative_to(folder)) for path in known[:5])
        raise NotAModel(f"which file is the model? There are {names}; name the file as src, or call it model.*")
    raise NotAModel(f"no predictor.py, no config.json of a language model and no file *{', *'.join(FORMATS)} is there")


def _language_model(files: list[Path], known: list[Path], hugging_face) -> Path | None:
    """Return the config.json of a language model, unless a file of another format is the model. Raises NotAModel."""
    try:
        config = hugging_face.config_of(files)
    except hugging_face.Unusable as problem:
        raise NotAModel(str(problem))
    weights = config is not None and any(path.suffix == ".safetensors" for path in config.parent.iterdir())
    others = [path for path in known if path.suffix != ".pt"] if weights else known  # .pt: what a trainer leaves
    return None if others else config
