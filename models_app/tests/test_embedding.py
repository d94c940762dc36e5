"""Embedding models as the load check sees them, without the package transformers: what follows the encoder, by the
files of sentence-transformers. Those that load are in apps/tests/test_language_frameworks.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from models_app.loading import find, hugging_face

from .test_hugging_face import CONFIG, made, write

embedding = hugging_face.embedding
PREFIX = "sentence_transformers.models."


@pytest.fixture
def folder(tmp_path):
    """A folder as sentence-transformers writes it: an encoder, pooling by the first token, a dense layer, length 1."""
    place = made(tmp_path / "embedder")
    write(place, "config.json", {**CONFIG, "architectures": ["BertModel"]})
    entries = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Normalize", "3_Normalize")]
    write(place, "modules.json", [{"type": PREFIX + kind, "path": path} for kind, path in entries])
    for name in ("1_Pooling", "2_Dense"):
        (place / name).mkdir()
    write(place / "1_Pooling", "config.json", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False})
    write(place / "2_Dense", "config.json", {"activation_function": "torch.nn.modules.linear.Identity"})
    save_file({"linear.weight": 2 * np.eye(2, dtype=np.float32)}, place / "2_Dense" / "model.safetensors")
    write(place, "sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": True})
    write(place, "config_sentence_transformers.json", {"default_prompt_name": "q", "prompts": {"q": "query: "}})
    return place


def refusal(folder) -> str:
    with pytest.raises(hugging_face.Unusable) as problem:
        hugging_face.verify(folder)
    return str(problem.value)


def test_the_files_say_what_follows_the_encoder(folder):
    assert find(folder) == ("transformers", folder / "config.json")
    hugging_face.verify(folder)
    assert hugging_face.makes_embeddings(folder)
    modules = embedding.modules_of(folder)
    assert (modules.pooling, modules.most, modules.lower, modules.prompt) == (["cls"], 128, True, "query: ")
    dense, normalize = embedding.layers_of(modules, "cpu")
    assert normalize(dense(torch.tensor([[3.0, 4.0]]))).tolist() == [[0.6000000238418579, 0.800000011920929]]


def test_an_encoder_without_them_has_the_mean_of_its_tokens(tmp_path):
    write(made(tmp_path), "config.json", {**CONFIG, "architectures": ["XLMRobertaModel"]})
    assert embedding.modules_of(tmp_path).pooling == ["mean"]
    assert hugging_face.makes_embeddings(tmp_path)
    assert not hugging_face.makes_embeddings(made(tmp_path / "llama"))
    write(tmp_path / "llama", "config.json", {**CONFIG, "architectures": ["GPT2LMHeadModel"]})
    assert not hugging_face.makes_embeddings(tmp_path / "llama")


def test_a_causal_model_with_modules_makes_embeddings(folder):
    write(folder, "config.json", CONFIG)
    hugging_face.verify(folder)
    assert hugging_face.makes_embeddings(folder)


@pytest.mark.parametrize(
    ("way", "expected"),
    [("cls", [1, 8]), ("mean", [2, 6]), ("max", [3, 8]), ("lasttoken", [3, 4]), ("weightedmean", [7 / 3, 16 / 3]),
     ("mean_sqrt_len_tokens", [4 / 2**0.5, 12 / 2**0.5])],
)  # fmt: skip
def test_padding_does_not_count(way, expected):
    hidden, mask = torch.tensor([[[1.0, 8.0], [3.0, 4.0], [99.0, 99.0]]]), torch.tensor([[1, 1, 0]])
    assert embedding.pooled(hidden, mask, [way])[0].tolist() == pytest.approx(expected)


WRONG = (
    ("modules.json", [{"type": "x.Transformer"}], "must begin with the modules Transformer and Pooling"),
    ("modules.json", {}, "must be a JSON list"),
    ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../1_Pooling"}], "path must name"),
    (
        "modules.json",
        [{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "1_Pooling"}, {"type": "own.Code"}],
        "Code",
    ),
    ("1_Pooling/config.json", {}, "must name how tokens are pooled"),
    ("1_Pooling/config.json", {"pooling_mode": "own"}, "must name how tokens are pooled"),
    ("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}, "include_prompt"),
    ("2_Dense/config.json", {"activation_function": "os.system"}, "activation_function must be one of"),
    ("2_Dense/config.json", {"module_input_name": "token_embeddings"}, "another output"),
    ("sentence_bert_config.json", {"modality_config": {"message": {}}}, "chat template"),
    ("config_sentence_transformers.json", {"default_prompt_name": "x", "prompts": {}}, "must be one of prompts"),
)


@pytest.mark.parametrize(("name", "content", "words"), WRONG)
def test_what_is_not_followed_is_refused(folder, name, content, words):
    """Else the vectors would be others than those of the model's author."""
    write(folder, name, content)
    assert words in refusal(folder)


def test_pickled_layers_are_refused(folder):
    (folder / "2_Dense" / "model.safetensors").rename(folder / "2_Dense" / "pytorch_model.bin")
    assert "pickled weights are refused" in refusal(folder)
