"""Language models in Hugging Face's format: config.json, a tokenizer and weights in safetensors. No Django. What
embedding models have besides is in embedding.py.

Imported by loading.py and apps/serving, which are runs, too. Nothing of the folder is executed: `trust_remote_code`
stays off, `auto_map` and pickled weights are refused, and nothing is fetched. The package transformers is one of the
model's own (requirements.txt beside it, or a named environment); what the files say is verified without it.
"""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

FORMAT, CONFIG, ADAPTER = "transformers", "config.json", "adapter_config.json"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
OTHER_WEIGHTS = (".h5", ".msgpack")
CAUSAL = ("ForCausalLM", "LMHeadModel")  # ends of the names of architectures that continue a text
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
MAY_NAME_CODE = (CONFIG, "tokenizer_config.json", "generation_config.json")
POINTER = b"version https://git-lfs"
JSON_BYTES, HEADER_BYTES = 64 << 20, 100 << 20  # safetensors itself reads no longer header
LOADED_BYTES = 512 << 20  # of weights that the check loads; of larger ones it compares names and shapes
CONTEXT = 2048  # tokens, where neither the model nor its tokenizer says how many
NAMES_SHOWN = 3
LOCAL = {"local_files_only": True, "trust_remote_code": False}  # of what transformers opens


class Unusable(Exception):
    """The folder is no language model that can be served; the message says why."""


def _beside(name: str):
    """Import a module that is beside this file, which need not be on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).absolute().with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


embedding = _beside("embedding")


def config_of(files: list[Path]) -> Path | None:
    """Return the config.json of the language model among files, those nearest to the top first; None without one.
    Raises Unusable where several are equally near.
    """
    found = [path for path in files if path.name == CONFIG and _is_of_transformers(path)]
    if not found and any(path.name == ADAPTER for path in files):
        raise Unusable(f"{ADAPTER}: an adapter is no whole model; merge it into its base model (merge_and_unload)")
    nearest = [path for path in found if len(path.parts) == len(found[0].parts)]
    if len(nearest) > 1:
        folders = ", ".join(path.parent.name for path in nearest[:NAMES_SHOWN])
        raise Unusable(f"which folder is the model? There are {folders}; name the folder as src")
    return nearest[0] if nearest else None


def _is_of_transformers(path: Path) -> bool:
    try:
        config = _json(path)
    except Unusable:  # `verify` says what is wrong with it
        return any(other.suffix == ".safetensors" for other in path.parent.iterdir())
    return isinstance(config.get("architectures"), list) or isinstance(config.get("model_type"), str)


def verify(folder: Path) -> None:
    """Check a model's files without reading the weights. Raises Unusable."""
    config = _json(folder / CONFIG)
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not all(type(one) is str for one in architectures):
        raise Unusable(f"{CONFIG}: architectures must name the model's class")
    for name in MAY_NAME_CODE:
        content = _json(folder / name) if (folder / name).is_file() else {}
        if content.get("auto_map") or content.get("custom_generate"):
            raise Unusable(
                f"{name}: auto_map names code of the model's own, which is never executed; only architectures that "
                "transformers has itself are served"
            )
        if any("/" in str(content.get(key)) for key in ("attn_implementation", "_attn_implementation")):
            raise Unusable(f"{name}: attn_implementation names code to download, which is never executed")
    embeds = embedding.is_one(folder, config)
    if not embeds and not any(name.endswith(CAUSAL) for name in architectures):
        raise Unusable(
            f"{CONFIG}: {', '.join(architectures)[:200]} is no causal language model (…ForCausalLM or …LMHeadModel) "
            "and no encoder of texts (…Model or …ForMaskedLM), the kinds of this format that are served"
        )
    if embeds:
        if config.get("is_encoder_decoder"):
            raise Unusable(f"{CONFIG}: is_encoder_decoder: embeddings are computed by an encoder alone")
        try:
            embedding.modules_of(folder)
        except embedding.Unreadable as problem:
            raise Unusable(str(problem)) from None
    _verify_weights(folder)
    _verify_tokenizer(folder)


def makes_embeddings(folder: Path) -> bool:
    """Return whether a folder that `verify` has passed is an embedding model."""
    return embedding.is_one(folder, _json(folder / CONFIG))


def _verify_weights(folder: Path) -> None:
    if (folder / WEIGHTS).is_file():
        _header(folder / WEIGHTS)
        return
    if not (folder / INDEX).is_file():
        raise Unusable(_without_weights(folder))
    places = _json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places or not all(type(name) is str for name in places.values()):
        raise Unusable(f"{INDEX}: weight_map must name the file of each tensor")
    shards = sorted(set(places.values()))
    if odd := [name for name in shards if Path(name).name != name or not name.endswith(".safetensors")]:
        raise Unusable(f"{INDEX}: {odd[0][:100]} is no *.safetensors file beside it")
    if missing := [name for name in shards if not (folder / name).is_file()]:
        more = f" and {len(missing) - NAMES_SHOWN} more" if len(missing) > NAMES_SHOWN else ""
        raise Unusable(f"{', '.join(missing[:NAMES_SHOWN])}{more}: named by {INDEX}, but missing")
    tensors = {name: set(_header(folder / name)) for name in shards}
    for tensor, shard in places.items():
        if tensor not in tensors[shard]:
            raise Unusable(f"{shard}: does not have {tensor[:100]}, for which {INDEX} names it")


def _without_weights(folder: Path) -> str:
    """Return why a folder without the usual files of weights is refused."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if one := next((name for name in names if name.endswith(".safetensors")), ""):
        return f"{one}: weights must be called {WEIGHTS}, or be named by {INDEX}"
    if one := next((name for name in names if name.endswith(PICKLED)), ""):
        return (
            f"{one}: pickled weights may execute code when they are loaded and are refused; save them as safetensors "
            "(model.save_pretrained)"
        )
    if one := next((name for name in names if name.endswith(OTHER_WEIGHTS)), ""):
        return f"{one}: weights of this kind are not loaded; save them as {WEIGHTS}"
    return f"there are no weights; {WEIGHTS} is missing"


def _header(path: Path) -> dict[str, dict]:
    """Return the description of each tensor in a file of weights. Raises Unusable where the file is not whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        first = file.read(8)
        if POINTER.startswith(first) and first:
            raise Unusable(f"{path.name}: is a pointer of Git LFS, not the file; download it with git lfs pull")
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length > size - 8:
            raise Unusable(f"{path.name}: is truncated or no safetensors file")
        if length > HEADER_BYTES:
            raise Unusable(f"{path.name}: is no safetensors file, its header is too long")
        text = file.read(length)
    try:
        header = json.loads(text)
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as problem:
        raise Unusable(f"{path.name}: is no safetensors file ({type(problem).__name__} in its header)") from None
    if 8 + length + end > size:
        raise Unusable(f"{path.name}: is truncated, it has {size} of {8 + length + end} bytes")
    if not tensors:
        raise Unusable(f"{path.name}: has no tensors")
    return tensors


def _verify_tokenizer(folder: Path) -> None:
    present = [name for name in TOKENIZERS if (folder / name).is_file()]
    if not present:
        raise Unusable(f"the tokenizer is missing: {TOKENIZERS[0]} (tokenizer.save_pretrained)")
    for name in present:
        if name.endswith(".json"):
            _json(folder / name)
        elif (folder / name).stat().st_size == 0:
            raise Unusable(f"{name}: is empty")


def _json(path: Path) -> dict:
    """Return the object in a JSON file. Raises Unusable."""
    try:
        with path.open("rb") as file:
            text = file.read(JSON_BYTES + 1)
        if text.startswith(POINTER):
            raise Unusable(f"{path.name}: is a pointer of Git LFS, not the file; download it with git lfs pull")
        if len(text) > JSON_BYTES:
            raise Unusable(f"{path.name}: has more than {JSON_BYTES >> 20} MiB")
        content = json.loads(text)
    except (OSError, ValueError, RecursionError) as problem:
        raise Unusable(f"{path.name}: is no valid JSON ({problem})") from None
    if not isinstance(content, dict):
        raise Unusable(f"{path.name}: must be a JSON object")
    return content


# --- with the package transformers -----------------------------------------------------------------------------------
def inspect(folder: Path) -> dict:
    """Check a model by loading it and computing a token; return its format, inputs and outputs. A model whose weights
    have more than LOADED_BYTES is built without them, and compared with their names and shapes. Raises Unusable, and
    what the libraries raise.
    """
    small = sum(path.stat().st_size for path in folder.glob("*.safetensors")) <= LOADED_BYTES
    verify(folder)
    if makes_embeddings(folder):
        return _inspect_embeddings(folder, small)
    model, tokenizer = opened(folder, weights=small)
    if small:
        import torch

        with torch.inference_mode():
            model(input_ids=torch.zeros((1, 1), dtype=torch.long))
    else:
        _compare(folder, model)
    takes = "messages" if tokenizer.chat_template else "prompt"
    spec = {"datatype": "BYTES", "shape": [-1]}
    return {"format": FORMAT, "inputs": [{"name": takes, **spec}], "outputs": [{"name": "text", **spec}]}


def _inspect_embeddings(folder: Path, small: bool) -> dict:
    """Check an embedding model, by computing a vector where its weights are `small`. Raises as `inspect`."""
    model, _tokenizer = opened(folder, weights=small, embeds=True)
    width = -1
    if small:
        import torch

        modules, ids = embedding.modules_of(folder), torch.zeros((1, 1), dtype=torch.long)
        with torch.inference_mode():
            hidden = getattr(model(input_ids=ids), "last_hidden_state", None)
            if hidden is None:
                raise Unusable(f"{CONFIG}: a model of this architecture has no vectors of tokens")
            vectors = embedding.pooled(hidden.float(), torch.ones_like(ids), modules.pooling)
            for layer in embedding.layers_of(modules, "cpu"):
                vectors = layer(vectors)
        width = vectors.shape[1]
    else:
        _compare(folder, model)
    takes, gives = {"name": "input", "datatype": "BYTES", "shape": [-1]}, {"name": "embedding", "datatype": "FP32"}
    return {"format": FORMAT, "inputs": [takes], "outputs": [{**gives, "shape": [-1, width]}]}


def opened(folder: Path, device: str = "cpu", *, weights: bool = True, embeds: bool = False) -> tuple:
    """Return the model on the device, without `weights` on the meta device, and its tokenizer; `embeds`: without its
    head. Raises Unusable, and what the libraries raise.
    """
    verify(folder)
    tokenizer = tokenizer_of(folder)
    import torch
    import transformers

    kind = transformers.AutoModel if embeds else transformers.AutoModelForCausalLM
    if weights:
        model, report = kind.from_pretrained(
            str(folder), dtype="auto", use_safetensors=True, output_loading_info=True, **LOCAL
        )
        missing = sorted(name for name in report["missing_keys"] if not (embeds and name.startswith("pooler.")))
        if missing:  # else they would be random numbers; the pooler of BERT computes nothing that is used
            raise Unusable(f"the weights do not have {', '.join(missing[:NAMES_SHOWN])}")
        model = model.to(device)
    else:
        config = transformers.AutoConfig.from_pretrained(str(folder), **LOCAL)
        with torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    require_fitting(tokenizer, model.get_input_embeddings().weight.shape[0])
    return model.eval(), tokenizer


def tokenizer_of(folder: Path):
    """Return the tokenizer of a model. Raises Unusable where the packages for it are missing, and what they raise."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        import torch  # noqa: F401
        import transformers
    except ImportError as problem:
        raise Unusable(
            f"the package {problem.name} is missing: name transformers in the model's packages (requirements.txt "
            "beside config.json), or choose an environment that has it"
        ) from None
    return transformers.AutoTokenizer.from_pretrained(str(folder), **LOCAL)


def require_fitting(tokenizer, rows: int) -> None:
    """Raise Unusable where the tokenizer has tokens that are not among the model's, which has so many."""
    if len(tokenizer) > rows:
        raise Unusable(f"the tokenizer has {len(tokenizer)} tokens, the model only {rows}")


def _compare(folder: Path, model) -> None:
    """Raise Unusable where the tensors in the files are not those of the model. Names that only one of them has are no
    fault: transformers renames and joins some while it loads.
    """
    stored = {}
    for path in folder.glob("*.safetensors"):
        stored |= {name: list(entry.get("shape", [])) for name, entry in _header(path).items()}
    head = f"{model.base_model_prefix}."  # of which a model without its head has no names
    stored |= {name.removeprefix(head): shape for name, shape in stored.items()}
    both = [(name, list(value.shape)) for name, value in model.state_dict().items() if name in stored]
    if not both:
        raise Unusable(f"the weights are not those of the architecture that {CONFIG} names")
    for name, shape in both:
        if stored[name] != shape:
            raise Unusable(f"{name}: has the shape {stored[name]} in the files, {CONFIG} says {shape}")


def context_of(model, tokenizer) -> int:
    """Return how many tokens a prompt and its continuation may have together."""
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and most > 0:
        return most
    most = getattr(tokenizer, "model_max_length", None)
    return int(most) if isinstance(most, int | float) and 0 < most < 1e9 else CONTEXT
