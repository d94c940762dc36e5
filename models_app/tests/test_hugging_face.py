"""Folders in Hugging Face's format as the load check sees them, without the package transformers: what is refused, why.

Those that load are in apps/tests/test_language_frameworks.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from models_app.loading import NotAModel, find, hugging_face

from .test_loading import PREDICTOR, loaded

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def folder(tmp_path):
    """A whole folder, as far as it can be seen without transformers."""
    return made(tmp_path)


def made(place: Path) -> Path:
    place.mkdir(exist_ok=True)
    write(place, "config.json", CONFIG)
    write(place, "tokenizer.json", {"version": "1.0"})
    save_file({"w": np.zeros((2, 2), np.float32)}, place / "model.safetensors")
    return place


def write(place: Path, name: str, content) -> None:
    (place / name).write_text(json.dumps(content))


def shard(place: Path) -> None:
    (place / "model.safetensors").unlink()
    for at, name in enumerate(SHARDS):
        save_file({f"w{at}": np.zeros(2, np.float32)}, place / name)
    write(place, "model.safetensors.index.json", {"weight_map": {f"w{at}": name for at, name in enumerate(SHARDS)}})


def refusal(place: Path) -> str:
    code, words = loaded(place)
    assert code == 1
    return words.strip()


@pytest.mark.long
def test_a_whole_folder_needs_only_the_package(folder):
    assert find(folder) == ("transformers", folder / "config.json")
    assert refusal(folder).startswith("the package transformers is missing: name transformers in the model's packages")
    shard(folder)
    assert refusal(folder).startswith("the package transformers is missing")


def test_pickles_beside_safetensors_are_not_read(folder):
    for name in ("pytorch_model.bin", "optimizer.pt", "training_args.bin"):
        (folder / name).write_bytes(b"cos\nsystem\n")
    assert find(folder)[0] == "transformers"
    assert "transformers is missing" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.pth"])
def test_pickled_weights_alone_are_refused(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    assert refusal(folder).startswith(f"{name}: pickled weights may execute code when they are loaded and are refused")


def test_weights_of_other_kinds_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "model.h5")
    assert refusal(folder).startswith("model.h5: weights of this kind are not loaded")
    (folder / "model.h5").rename(folder / "weights.safetensors")
    assert refusal(folder).startswith("weights.safetensors: weights must be called model.safetensors")
    (folder / "weights.safetensors").unlink()
    assert refusal(folder) == "there are no weights; model.safetensors is missing"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", {**CONFIG, "auto_map": {"AutoModelForCausalLM": "code.Model"}}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": ["code.Tokenizer", None]}}),
        ("generation_config.json", {"custom_generate": "someone/else"}),
    ],
)
def test_code_of_the_folder_is_refused(folder, name, content):
    write(folder, name, content)
    (folder / "code.py").write_text("raise SystemExit('executed')")
    assert refusal(folder).startswith(f"{name}: auto_map names code of the model's own, which is never executed")


def test_code_to_download_is_refused(folder):
    write(folder, "config.json", {**CONFIG, "_attn_implementation": "someone/kernels"})
    assert "names code to download" in refusal(folder)


@pytest.mark.parametrize(
    "architectures", [["BertForSequenceClassification"], ["T5ForConditionalGeneration"], ["CLIPModel"]]
)
def test_other_kinds_of_models_are_refused(folder, architectures):
    write(folder, "config.json", {**CONFIG, "architectures": architectures, "vision_config": {"model_type": "x"}})
    assert f"{architectures[0]} is no causal language model" in refusal(folder)


@pytest.mark.parametrize("architectures", [[], None, "LlamaForCausalLM", [1]])
def test_a_config_without_an_architecture_is_refused(folder, architectures):
    write(folder, "config.json", {**CONFIG, "architectures": architectures})
    assert refusal(folder) == "config.json: architectures must name the model's class"


def test_a_tokenizer_is_needed(folder):
    (folder / "tokenizer.json").write_text("{")
    assert refusal(folder).startswith("tokenizer.json: is no valid JSON")
    (folder / "tokenizer.json").unlink()
    assert refusal(folder) == "the tokenizer is missing: tokenizer.json (tokenizer.save_pretrained)"
    (folder / "tokenizer.model").touch()
    assert refusal(folder) == "tokenizer.model: is empty"


def test_missing_shards_are_named(folder):
    shard(folder)
    (folder / SHARDS[1]).unlink()
    assert refusal(folder) == f"{SHARDS[1]}: named by model.safetensors.index.json, but missing"
    save_file({"other": np.zeros(2, np.float32)}, folder / SHARDS[1])
    assert refusal(folder) == f"{SHARDS[1]}: does not have w1, for which model.safetensors.index.json names it"


@pytest.mark.parametrize("place", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "code.py", 1])
def test_shards_elsewhere_are_refused(folder, place):
    shard(folder)
    write(folder, "model.safetensors.index.json", {"weight_map": {"w0": place}})
    assert "model.safetensors.index.json" in refusal(folder)


@pytest.mark.parametrize("size", [0, 5, 40, -1])
def test_a_truncated_file_is_refused(folder, size):
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:size])
    assert "model.safetensors: is truncated" in refusal(folder)


@pytest.mark.parametrize(
    "header", [b"[]", b"{", b'{"w": 1}', b'{"w": {"data_offsets": []}}', b'{"w": {"data_offsets": [0, "x"]}}', b"\xff"]
)
def test_a_damaged_header_is_refused(folder, header):
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "model.safetensors: is no safetensors file" in refusal(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_pointers_of_git_lfs_are_named(folder, name):
    (folder / name).write_bytes(POINTER)
    assert refusal(folder).startswith(f"{name}: is a pointer of Git LFS, not the file")


def test_an_adapter_is_refused(tmp_path):
    write(tmp_path, "adapter_config.json", {"base_model_name_or_path": "someone/else"})
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / "adapter_model.safetensors")
    assert refusal(tmp_path).startswith("adapter_config.json: an adapter is no whole model")


def test_the_folder_nearest_to_the_top_is_the_model(tmp_path):
    made(tmp_path / "checkpoint-1")
    made(tmp_path / "checkpoint-2")
    with pytest.raises(NotAModel, match="which folder is the model\\? There are checkpoint-1, checkpoint-2"):
        find(tmp_path)
    made(tmp_path)
    assert find(tmp_path) == ("transformers", tmp_path / "config.json")


def test_other_formats_stay_what_they_were(folder):
    (folder / "model.onnx").touch()
    assert find(folder)[0] == "onnx"
    (folder / "model.onnx").rename(folder / "classifier.joblib")
    assert find(folder)[0] == "joblib"
    (folder / "predictor.py").write_text(PREDICTOR % [])
    assert find(folder)[0] == "predictor"


def test_another_programs_config_is_no_language_model(tmp_path):
    write(tmp_path, "config.json", {"lr": 0.1})
    with pytest.raises(NotAModel, match="no config\\.json of a language model"):
        find(tmp_path)


def test_a_context_is_always_known():
    class Settings:
        def __init__(self, **given):
            vars(self).update(given)

    model, words = Settings(config=Settings(max_position_embeddings=64)), Settings(model_max_length=1e30)
    assert hugging_face.context_of(model, words) == 64
    assert hugging_face.context_of(Settings(config=Settings()), words) == hugging_face.CONTEXT
    assert hugging_face.context_of(Settings(config=Settings()), Settings(model_max_length=512)) == 512
