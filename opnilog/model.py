"""The transformer: Opni's shape, names and numbers, so that its checkpoints load. Used by training and scoring.

Masked words are predicted in two ways from the same layers. Opni's: one word masked in each pass, read at `<CLS>`
(`from_start`). Ours: several masked in each pass, each read at its own position (`at`), with the head computed for
those only. The decoder is in Opni's checkpoints but takes no part in any prediction; ours are written without it.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from .tokenizer import LONGEST, MAX_WORDS, PAD

STATE = "model_state_dict"
UNUSED = ("decoder.", "tgt_embed.")


@dataclass(frozen=True)
class Shape:
    """The sizes of a model; the defaults are Opni's. `words` is the size of the vocabulary."""

    words: int = MAX_WORDS
    width: int = 256
    inner: int = 256
    heads: int = 8
    layers: int = 1
    longest: int = LONGEST

    def as_dict(self) -> dict:
        return asdict(self)


class Norm(nn.Module):
    """A norm: a_2 · (x − mean) / (std + 1e-6) + b_2 with the unbiased deviation (torch's own LayerNorm has the biased
    one).
    """

    def __init__(self, width: int):
        super().__init__()
        self.a_2 = nn.Parameter(torch.ones(width))
        self.b_2 = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().sum(-1, keepdim=True) / (x.shape[-1] - 1)
        return self.a_2 * centred / (variance.sqrt() + 1e-6) + self.b_2


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.linears = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x [batch, length, width] after attention; mask [batch, 1, 1, length] is true where a word is."""
        batch, length, width = x.shape
        parts = [
            linear(x).view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for linear in self.linears[:3]
        ]
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=dropout)
        return self.linears[3](mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int, dropout: float):
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, inner), nn.Linear(inner, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.dropout(functional.relu(self.w_1(x))))


class Residual(nn.Module):
    """The norm and the dropout after a sub-layer, under Opni's name of it."""

    def __init__(self, width: int, dropout: float):
        super().__init__()
        self.norm, self.dropout = Norm(width), nn.Dropout(dropout)

    def forward(self, x: Tensor, change: Tensor) -> Tensor:
        return self.norm(x + self.dropout(change))


class Layer(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.self_attn = Attention(shape.width, shape.heads, dropout)
        self.feed_forward = FeedForward(shape.width, shape.inner, dropout)
        self.sublayer = nn.ModuleList(Residual(shape.width, dropout) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.sublayer[0](x, self.self_attn(x, mask))
        return self.sublayer[1](x, self.feed_forward(x))


class Encoder(nn.Module):
    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.layers = nn.ModuleList(Layer(shape, dropout) for _ in range(shape.layers))
        self.norm = Norm(shape.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x)


class Words(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.lut = nn.Embedding(shape.words, shape.width)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.lut(numbers) * math.sqrt(self.lut.embedding_dim)


class Places(nn.Module):
    """The positional encoding: sinusoids added to the words."""

    def __init__(self, shape: Shape, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        place = torch.arange(shape.longest, dtype=torch.float).unsqueeze(1)
        pace = torch.exp(torch.arange(0, shape.width, 2, dtype=torch.float) * -(math.log(10_000.0) / shape.width))
        table = torch.zeros(1, shape.longest, shape.width)
        table[0, :, 0::2], table[0, :, 1::2] = torch.sin(place * pace), torch.cos(place * pace)
        self.register_buffer("pe", table)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.pe[:, : x.shape[1]])


class Generator(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.proj = nn.Linear(shape.width, shape.words)


class LogModel(nn.Module):
    def __init__(self, shape: Shape, dropout: float = 0.1):
        super().__init__()
        self.shape = shape
        self.src_embed = nn.Sequential(Words(shape), Places(shape, dropout))
        self.encoder = Encoder(shape, dropout)
        self.generator = Generator(shape)
        for weights in self.parameters():
            if weights.dim() > 1:
                nn.init.xavier_uniform_(weights)

    def encode(self, numbers: Tensor) -> Tensor:
        """Return [batch, length, width] of numbers [batch, length] with PAD after the end."""
        mask = (numbers != PAD)[:, None, None, :]
        return self.encoder(self.src_embed(numbers), mask)

    def at(self, numbers: Tensor, places: Tensor) -> Tensor:
        """Return logits [count, words] of the positions that are true in `places` [batch, length], in reading order."""
        return self.generator.proj(self.encode(numbers)[places])

    def from_start(self, numbers: Tensor) -> Tensor:
        """Return logits [batch, words] read at `<CLS>`: Opni's way."""
        return self.generator.proj(self.encode(numbers)[:, 0])


def shape_of(state: dict[str, Tensor], heads: int | None = None) -> Shape:
    """Return the shape of saved weights. The number of heads is not in them: Opni's 8 unless given.
    Raises ValueError.
    """
    try:
        words, width = state["src_embed.0.lut.weight"].shape
        inner = state["encoder.layers.0.feed_forward.w_1.weight"].shape[0]
        longest = state["src_embed.1.pe"].shape[1]
    except (KeyError, ValueError, IndexError, AttributeError) as problem:
        raise ValueError(f"not a log model: {problem} is missing")
    layers = 1 + max(int(name.split(".")[2]) for name in state if name.startswith("encoder.layers."))
    return Shape(words=words, width=width, inner=inner, heads=heads or 8, layers=layers, longest=longest)


def save(model: LogModel, path: Path, **more) -> None:
    torch.save({STATE: {name: value.cpu() for name, value in model.state_dict().items()}, **more}, path)


def load(path: Path, heads: int | None = None, device: str = "cpu") -> LogModel:
    """Read a checkpoint, with or without its optimizer, or bare weights; nothing in the file is executed.

    Raises ValueError when it is not a model of this kind.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            saved = torch.load(path, map_location="cpu", weights_only=True)
        state = saved.get(STATE, saved)
        state = {name: value for name, value in state.items() if not name.startswith(UNUSED)}
    except Exception as problem:  # torch raises many kinds of errors for a broken file
        raise ValueError(f"{path.name}: not a model: {problem}")
    model = LogModel(shape_of(state, heads))
    try:
        model.load_state_dict(state)
    except RuntimeError as problem:
        raise ValueError(f"{path.name}: not a log model: {problem}")
    return model.to(device).eval()
