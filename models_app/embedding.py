"""Embedding models in Hugging Face's format: an encoder such as BERT, with the modules of sentence-transformers or
without. No Django.

Imported by loading.py and apps/serving, which are runs, too. `modules.json`, as sentence-transformers writes it, says
what follows the encoder: pooling, dense layers, normalization. Without it the vector of a text is the mean of its
tokens, as sentence-transformers has it. Its package is not needed. As for language models (hugging_face.py), nothing of
the folder is executed.
"""

from __future__ import annotations

import json
from pathlib import Path

MODULES, SETTINGS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
ENCODERS = ("Model", "ForMaskedLM")  # ends of the names of architectures without a head that matters here
HEAD = "LMHeadModel"  # which continues texts
MEAN, CLS, LAST, MAX, ROOT, WEIGHTED = "mean", "cls", "lasttoken", "max", "mean_sqrt_len_tokens", "weightedmean"
POOLING = {
    "pooling_mode_cls_token": CLS, "pooling_mode_max_tokens": MAX, "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_mean_sqrt_len_tokens": ROOT, "pooling_mode_weightedmean_tokens": WEIGHTED,
    "pooling_mode_lasttoken": LAST,
}  # fmt: skip
ACTIVATIONS = ("Tanh", "Identity", "ReLU", "GELU")  # of a dense layer, in torch.nn
HIDDEN = "last_hidden_state"  # the output of an encoder that has a vector for each token
SENTENCE = "sentence_embedding"  # what a dense layer takes and gives
JSON_BYTES = 1 << 20
MOST_MODULES = 8


class Unreadable(Exception):
    """A file beside the encoder cannot be followed; the message names it."""


class Modules:
    """What follows the encoder: `pooling` (several are joined), `layers` (folders of dense layers, None: normalize).

    `lower`: texts are written in lower case first; `prompt` is before each; `most` tokens are taken, None: as many as
    the encoder takes.
    """

    def __init__(self) -> None:
        self.pooling: list[str] = [MEAN]
        self.layers: list[Path | None] = []
        self.lower, self.prompt = False, ""
        self.most: int | None = None


def is_one(folder: Path, config: dict) -> bool:
    """Return whether a folder is an embedding model: it says so in modules.json, or its architecture is an encoder of
    texts.
    """
    others = config.get("is_encoder_decoder") or config.get("vision_config") or config.get("audio_config")
    encodes = any(name.endswith(ENCODERS) and not name.endswith(HEAD) for name in config["architectures"])
    return _top(folder) is not None or (encodes and not others)


def _top(folder: Path) -> Path | None:
    """Return the folder of modules.json: the encoder's own, or the one above where it is the first module there."""
    above = [folder.parent] if folder.name.startswith("0_") else []
    return next((place for place in (folder, *above) if (place / MODULES).is_file()), None)


def modules_of(folder: Path) -> Modules:
    """Return what follows the encoder. Raises Unreadable for what is not followed, since vectors would be others."""
    modules, top = Modules(), _top(folder)
    if top is None:
        return modules
    entries = _json(top / MODULES, list)
    if not entries or len(entries) > MOST_MODULES or not all(isinstance(entry, dict) for entry in entries):
        raise Unreadable(f"{MODULES}: must list the modules, at most {MOST_MODULES}")
    kinds = [str(entry.get("type")).rpartition(".")[2] for entry in entries]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise Unreadable(
            f"{MODULES}: must begin with the modules Transformer and Pooling, not {', '.join(kinds)[:200]}"
        )
    modules.pooling = _pooling(_inside(top, entries[1]))
    for kind, entry in zip(kinds[2:], entries[2:], strict=True):
        if kind not in ("Normalize", "Dense"):
            raise Unreadable(f"{MODULES}: {kind[:60]} is not supported, only Transformer, Pooling, Dense and Normalize")
        modules.layers.append(_dense(_inside(top, entry)) if kind == "Dense" else None)
    given = _json(folder / SETTINGS, dict) if (folder / SETTINGS).is_file() else {}
    most = given.get("max_seq_length")
    modules.most = most if type(most) is int and most > 0 else None
    modules.lower = given.get("do_lower_case") is True
    _require_plain_texts(given)
    modules.prompt = _prompt(top)
    return modules


def _require_plain_texts(settings: dict) -> None:
    """Raise Unreadable where sentence-transformers would hand the encoder something other than the text."""
    ways = settings.get("modality_config")
    if isinstance(ways, dict) and "message" in ways:
        raise Unreadable(f"{SETTINGS}: writes texts by the chat template (message), which is not supported")
    text = ways.get("text") if isinstance(ways, dict) else None
    if isinstance(text, dict) and text.get("method_output_name", HIDDEN) != HIDDEN:
        raise Unreadable(f"{SETTINGS}: method_output_name must be {HIDDEN}, no other output is supported")


def _prompt(top: Path) -> str:
    """Return the text that sentence-transformers itself writes before each one."""
    given = _json(top / PROMPTS, dict) if (top / PROMPTS).is_file() else {}
    name, prompts = given.get("default_prompt_name"), given.get("prompts")
    if name is None:
        return ""
    text = prompts.get(name) if isinstance(prompts, dict) and isinstance(name, str) else None
    if not isinstance(text, str):
        raise Unreadable(f"{PROMPTS}: default_prompt_name must be one of prompts")
    return text


def _inside(top: Path, entry: dict) -> Path:
    """Return the folder of a module, which is directly in that of the model."""
    name = entry.get("path")
    if not isinstance(name, str) or not name or Path(name).name != name or name in (".", ".."):
        raise Unreadable(f"{MODULES}: path must name the module's folder")
    return top / name


def _pooling(folder: Path) -> list[str]:
    where, given = f"{folder.name}/config.json", _json(folder / "config.json", dict)
    modes = given.get("pooling_mode")
    if modes is None:  # as sentence-transformers wrote it before its release 6
        modes = [mode for name, mode in POOLING.items() if given.get(name) is True]
    modes = [modes] if isinstance(modes, str) else modes
    if not isinstance(modes, list) or not modes or not all(mode in POOLING.values() for mode in modes):
        raise Unreadable(f"{where}: must name how tokens are pooled: {', '.join(POOLING.values())}")
    if given.get("include_prompt") is False:
        raise Unreadable(f"{where}: include_prompt must not be false, which is not supported")
    return modes


def _dense(folder: Path) -> Path:
    where, given = f"{folder.name}/config.json", _json(folder / "config.json", dict)
    if activation_of(given) not in ACTIVATIONS:
        raise Unreadable(f"{where}: activation_function must be one of {', '.join(ACTIVATIONS)} of torch.nn")
    if any(given.get(name, SENTENCE) != SENTENCE for name in ("module_input_name", "module_output_name")):
        raise Unreadable(f"{where}: a layer of another output than {SENTENCE} is not supported")
    if not (folder / "model.safetensors").is_file():
        raise Unreadable(f"{folder.name}/model.safetensors is missing; pickled weights are refused")
    return folder


def activation_of(config: dict) -> str:
    """Return the name in torch.nn of the function behind a dense layer."""
    return str(config.get("activation_function", "Tanh")).rpartition(".")[2]


def _json(path: Path, kind: type):
    try:
        with path.open("rb") as file:
            text = file.read(JSON_BYTES + 1)
        content = json.loads(text) if len(text) <= JSON_BYTES else None
    except (OSError, ValueError, RecursionError) as problem:
        raise Unreadable(f"{path.parent.name}/{path.name}: cannot be read ({problem})") from None
    if not isinstance(content, kind):
        raise Unreadable(f"{path.parent.name}/{path.name}: must be a JSON {'list' if kind is list else 'object'}")
    return content


# --- with PyTorch ----------------------------------------------------------------------------------------------------
def context_of(model, tokenizer, modules: Modules) -> int | None:
    """Return how many tokens a text may have, None where nothing bounds them."""
    most = [getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None)]
    places = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    if most[0] and getattr(places, "padding_idx", None) is not None:  # the first positions are those of padding
        most[0] -= places.padding_idx + 1
    known = [int(one) for one in (*most, modules.most) if isinstance(one, int | float) and 0 < one < 1e9]
    return min(known, default=None)


def layers_of(modules: Modules, device: str) -> list:
    """Return the layers behind the pooling as functions of vectors. Raises what the libraries raise."""
    import torch
    from safetensors.torch import load_file

    def dense(folder: Path):
        weights = load_file(folder / "model.safetensors", device=device)
        weight, bias = weights["linear.weight"].float(), weights.get("linear.bias")
        bias = bias.float() if bias is not None else None
        activation = getattr(torch.nn, activation_of(_json(folder / "config.json", dict)))()
        return lambda vectors: activation(torch.nn.functional.linear(vectors, weight, bias))

    def normalize(vectors):
        return torch.nn.functional.normalize(vectors, dim=-1)

    return [dense(folder) if folder is not None else normalize for folder in modules.layers]


def pooled(hidden, mask, pooling: list[str]):
    """Return a vector for each row of tokens (batch, tokens, width), of which those with the mask 1 count; padding is
    at the end.
    """
    import torch

    weights = mask.unsqueeze(-1).to(hidden.dtype)
    counts, summed = weights.sum(1), (hidden * weights).sum(1)
    rows, last = torch.arange(len(mask), device=hidden.device), mask.sum(1) - 1
    places = torch.arange(1, mask.shape[1] + 1, device=hidden.device, dtype=hidden.dtype).view(1, -1, 1) * weights
    ways = {
        CLS: lambda: hidden[:, 0],
        MAX: lambda: hidden.masked_fill(weights == 0, float("-inf")).max(1).values,
        MEAN: lambda: summed / counts,
        ROOT: lambda: summed / counts.sqrt(),
        WEIGHTED: lambda: (hidden * places).sum(1) / places.sum(1),
        LAST: lambda: hidden[rows, last],
    }
    return torch.cat([ways[way]() for way in pooling], -1)
