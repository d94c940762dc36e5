"""Tokenizer, vocabulary file and network: compatibility with Opni's checkpoints and files."""

from __future__ import annotations

import math

import pytest
import torch

from opnilog import model as models
from opnilog.learning import surprises
from opnilog.model import LogModel, Norm, Shape
from opnilog.score import Scorer
from opnilog.tokenizer import MASK, Tokenizer, buckets, pad

SMALL = Shape(words=20, width=16, inner=16, heads=8, layers=1)


def test_golden_tokens():
    assert Tokenizer().encode("hello world", learning=True) == [1, 5, 6]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", [1, 5]), ("new a1 12 a22b", [1, 3, 3, 4, 4]), ("Hello  WORLD", [1, 5, 6]), ("<num> <MASK>", [1, 3, 3])],
)
def test_tokens_after_learning(text, numbers):
    tokenizer = Tokenizer()
    tokenizer.encode("hello world", learning=True)
    assert tokenizer.encode(text) == numbers


def test_words_after_the_last_number_are_unknown():
    tokenizer = Tokenizer(size=7)
    assert tokenizer.encode("a b c a", learning=True) == [1, 5, 6, 3, 5]


def test_the_vocabulary_file_is_opnis(tmp_path):
    tokenizer = Tokenizer()
    tokenizer.encode("hello world", learning=True)
    tokenizer.save(tmp_path / "vocab.txt")
    lines = (tmp_path / "vocab.txt").read_text().split("\n")
    assert lines[:2] == ["10000", "7"]
    assert lines[2:10] == ["<PAD>", "<CLS>", "<MASK>", "<UNK>", "<NUM>", "hello", "world", "<TMP7>"]
    assert len(lines) == 10_003
    assert Tokenizer.load(tmp_path / "vocab.txt").encode("world hello sun") == [1, 6, 5, 3]


@pytest.mark.parametrize("text", ["", "10", "x\ny\n", "3\n9\na\nb\nc\n", "10\n6\na\nb\n"])
def test_an_invalid_vocabulary_is_refused(tmp_path, text):
    (tmp_path / "vocab.txt").write_text(text)
    with pytest.raises(ValueError, match="not a vocabulary"):
        Tokenizer.load(tmp_path / "vocab.txt")


def test_short_texts_are_not_padded_to_long_ones():
    groups = buckets([3, 60, 4, 3, 61], most_tokens=130)
    assert groups == [[0, 3, 2], [1, 4]]
    assert pad([[1, 2], [1, 2, 3, 4]], longest=3) == [[1, 2, 0], [1, 2, 3]]


def opnis_state(shape: Shape) -> dict:
    """Return weights under Opni's names, including the unused decoder."""
    torch.manual_seed(3)
    state = LogModel(shape).state_dict()
    for part in ("self_attn.linears.0.weight", "src_attn.linears.0.weight", "sublayer.2.norm.a_2"):
        state[f"decoder.layers.0.{part}"] = torch.ones(4)
    return {**state, "tgt_embed.0.lut.weight": torch.ones(4, 4)}


def test_parameter_names_are_opnis():
    names = set(LogModel(SMALL).state_dict())
    wanted = {
        "src_embed.0.lut.weight",
        "src_embed.1.pe",
        "generator.proj.weight",
        "encoder.norm.a_2",
        "encoder.norm.b_2",
    }
    wanted |= {f"encoder.layers.0.self_attn.linears.{number}.bias" for number in range(4)}
    wanted |= {f"encoder.layers.0.feed_forward.w_{number}.weight" for number in (1, 2)}
    wanted |= {f"encoder.layers.0.sublayer.{number}.norm.a_2" for number in (0, 1)}
    assert wanted <= names
    opnis = LogModel(Shape())
    assert opnis.state_dict()["src_embed.1.pe"].shape == (1, 64, 256)
    assert opnis.state_dict()["generator.proj.weight"].shape == (10_000, 256)


@pytest.mark.parametrize("bare", [True, False])
def test_both_forms_of_a_checkpoint_load(tmp_path, bare):
    state = opnis_state(SMALL)
    whole = {
        "epoch": 3,
        "model_state_dict": state,
        "optimizer_state_dict": {"state": {}, "param_groups": []},
        "loss": 0.7,
    }
    torch.save(state if bare else whole, tmp_path / "model.pt")
    loaded = models.load(tmp_path / "model.pt")
    assert loaded.shape == SMALL
    for name, value in loaded.state_dict().items():
        assert torch.equal(value, state[name])


@pytest.mark.parametrize("content", [b"", b"junk", None])
def test_an_invalid_checkpoint_is_refused(tmp_path, content):
    if content is None:
        torch.save({"a": torch.ones(2)}, tmp_path / "model.pt")
    else:
        (tmp_path / "model.pt").write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.pt|not a log model"):
        models.load(tmp_path / "model.pt")


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path):
    torch.save({"model_state_dict": print}, tmp_path / "model.pt")
    with pytest.raises(ValueError, match="not a model"):
        models.load(tmp_path / "model.pt")


def test_the_norm_uses_the_unbiased_deviation():
    x = torch.tensor([[1.0, 2.0, 4.0, 9.0]])
    assert torch.allclose(Norm(4)(x), (x - x.mean()) / (x.std(unbiased=True) + 1e-6))


def test_the_output_of_a_layer():
    """One forward pass written out: attention, residuals and a norm after each part, one more norm at the end."""
    torch.manual_seed(1)
    shape = Shape(words=9, width=4, inner=6, heads=2, layers=1, longest=8)
    model = LogModel(shape).eval()
    numbers = torch.tensor([[1, 5, 6, 0]])
    state = model.state_dict()

    def linear(name: str, x):
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x):
        return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)

    x = state["src_embed.0.lut.weight"][numbers] * math.sqrt(4) + state["src_embed.1.pe"][:, :4]
    query, key, value = (linear(f"encoder.layers.0.self_attn.linears.{n}", x).view(4, 2, 2) for n in range(3))
    mixed = []
    for head in range(2):
        scores = query[:, head] @ key[:, head].T / math.sqrt(2)
        scores[:, 3] = -1e9
        mixed.append(scores.softmax(-1) @ value[:, head])
    x = norm(x + linear("encoder.layers.0.self_attn.linears.3", torch.cat(mixed, -1)))
    inner = linear("encoder.layers.0.feed_forward.w_1", x).relu()
    x = norm(norm(x + linear("encoder.layers.0.feed_forward.w_2", inner)))
    assert torch.allclose(model.from_start(numbers), linear("generator.proj", x[:, 0]), atol=1e-5)


def test_a_checkpoint_of_opnis_scores_by_its_rule(tmp_path):
    tokenizer = Tokenizer(size=100)
    tokenizer.encode("a b c d e f", learning=True)
    tokenizer.save(tmp_path / "vocab.txt")
    torch.manual_seed(2)
    network = LogModel(Shape(words=100, width=16, inner=16, heads=8))
    torch.save(network.state_dict(), tmp_path / "nulog_model_latest.pt")
    scorer = Scorer.open(tmp_path, device="cpu")
    text = "a b x1 c d"
    [verdict, empty] = scorer.score([text, "x1 y2"])
    row, hits = tokenizer.encode(text), []
    for place in (1, 2, 4, 5):
        seen = torch.tensor([[MASK if at == place else number for at, number in enumerate(row)]])
        likeliest = network.eval().from_start(seen)[0].argsort(descending=True)[:50]
        hits.append(row[place] in likeliest.tolist())
    assert verdict.confidence == pytest.approx(sum(hits) / 4)
    assert verdict.level == ("Anomaly" if sum(hits) / 4 < 0.7 else "Normal")
    assert (empty.confidence, empty.level) == (1.0, "Normal")  # no word is left to ask for


def test_a_score_does_not_depend_on_the_batch():
    torch.manual_seed(4)
    network = LogModel(SMALL).eval()
    rows = [[1, 5, 6], [1, 7], [1, *range(5, 19)], [1, 5, 6, 7, 8]]
    together = surprises(network, rows)
    for row, costs in zip(rows, together, strict=True):
        assert len(costs) == len(row) - 1
        assert costs == pytest.approx(surprises(network, [row])[0], abs=1e-4)
