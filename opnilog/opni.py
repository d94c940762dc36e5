"""A model that Opni's own services load, trained beside ours on the same lines.

Its inference service builds one fixed network (Shape's defaults), loads every weight by name, and predicts a masked
word at `<CLS>`. Ours is smaller and predicts each word at its own position, so no conversion of its weights would do:
the exported network is a second one, trained by Opni's objective. Neither feedback nor the texts of the training are
in it, since its file has no place for them.

The file holds the bare weights. Opni's reader takes a dictionary with `optimizer_state_dict`, or else the weights
themselves; the optimizer would double the size, and nothing continues such a training.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from .model import Attention, FeedForward, LogModel, Norm, Shape
from .store import MODEL, VOCAB
from .tokenizer import LONGEST, MASK, MAX_WORDS, PAD, Tokenizer, pad

FOLDER = "opni"  # in the version's folder
RATE, DECAY, BETAS = 1e-3, 0.005, (0.9, 0.999)  # Opni's
CLIP = 1.0
SAMPLES = 256  # masked copies a step
PASSES = 12
LEAST_STEPS, MAX_STEPS = 120, 600


def steps(tokens: int) -> int:
    """Return the number of steps for texts with so many words in total."""
    return min(MAX_STEPS, max(LEAST_STEPS, PASSES * tokens // SAMPLES))


def vocabulary(words: Tokenizer) -> Tokenizer:
    """Return the same words in a vocabulary of Opni's size: unused numbers are `<TMPn>`."""
    wide = Tokenizer(MAX_WORDS)
    wide.numbers, wide.used = dict(words.numbers), words.used
    return wide


def fit(
    rows: Sequence[Sequence[int]],
    counts: Sequence[int],
    most_steps: int,
    report: Callable[[int, int, float], None],
    device: str,
    seed: int = 1,
) -> LogModel:
    """Return a network of Opni's shape that predicts each masked word of the rows at `<CLS>`."""
    chance = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = LogModel(Shape()).to(device).train()
    best = torch.optim.Adam(model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY)
    weights = torch.tensor([math.sqrt(count) for count in counts], dtype=torch.double)
    total = min(most_steps, steps(sum(map(len, rows))))
    for step in range(1, total + 1):
        numbers, true = _samples(rows, weights, chance)
        loss = functional.cross_entropy(model.from_start(numbers.to(device)), true.to(device))
        best.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        best.step()
        report(step, total, loss.detach())
    return model.eval()


def _samples(rows: Sequence[Sequence[int]], weights: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return SAMPLES texts [count, length] with one word masked in each, and these words."""
    drawn = torch.multinomial(weights, SAMPLES, replacement=True, generator=chance).tolist()
    numbers = torch.tensor(pad([rows[index] for index in drawn]))
    lengths = (numbers != PAD).sum(1)
    places = 1 + (torch.rand(len(numbers), generator=chance) * (lengths - 1)).long()
    true = numbers.gather(1, places[:, None])
    return numbers.scatter(1, places[:, None], MASK), true[:, 0]


def write(folder: Path, model: LogModel, words: Tokenizer) -> None:
    """Write Opni's two files into the folder, which is made."""
    folder.mkdir()
    torch.save(weights_of(model), folder / MODEL)
    words.save(folder / VOCAB)


def weights_of(model: LogModel) -> dict[str, Tensor]:
    """Return all weights that Opni's network has. Its decoder takes no part in predictions; its shape must be right."""
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    shape = model.shape
    unused: dict[str, torch.nn.Module] = {"norm": Norm(shape.width)}
    for layer in range(shape.layers):
        at = f"layers.{layer}"
        unused |= {f"{at}.{name}": Attention(shape.width, shape.heads, 0) for name in ("self_attn", "src_attn")}
        unused[f"{at}.feed_forward"] = FeedForward(shape.width, shape.inner, 0)
        unused |= {f"{at}.sublayer.{number}.norm": Norm(shape.width) for number in range(3)}
    for name, part in unused.items():
        state |= {f"decoder.{name}.{key}": value for key, value in part.state_dict().items()}
    # A copy, since saved tensors that share their memory stay tied when they are loaded.
    state["tgt_embed.0.lut.weight"] = state["src_embed.0.lut.weight"].clone()
    state["tgt_embed.1.pe"] = state["src_embed.1.pe"].clone()
    assert state["src_embed.1.pe"].shape[1] == LONGEST
    return state
