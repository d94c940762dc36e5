"""Training of the network and its use: fitting on distinct texts, and the surprise of each word of a text.

Several words are masked in each pass, texts of similar length are batched, the head is computed for masked words only.
A text is weighted by the square root of its frequency. While fitting, rare words are sometimes hidden as unknown, so
that the model learns where unknown words are to be expected (in a user's name) and where not (in a fixed phrase).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .model import LogModel, Shape
from .tokenizer import MASK, PAD, UNK, buckets, pad

GROUPS = 4  # passes over a text when it is scored: every fourth word masked in each
SHARE = 0.25  # of the words masked while fitting
SCORE_TOKENS = 8192
CLIP = 1.0


@dataclass(frozen=True)
class Fitting:
    """The duration and rate of training. Steps follow the number of distinct texts, between the two bounds."""

    width: int = 64
    inner: int = 128
    heads: int = 4
    layers: int = 2
    rate: float = 4e-3
    decay: float = 0.01
    batch: int = 1024  # words a step, padding included
    passes: int = 40
    least_steps: int = 250
    most_steps: int = 2500
    seed: int = 1

    def shape(self, words: int) -> Shape:
        return Shape(words=words, width=self.width, inner=self.inner, heads=self.heads, layers=self.layers)

    def steps(self, tokens: int) -> int:
        """Return the number of steps for texts with so many words in total."""
        return min(self.most_steps, max(self.least_steps, self.passes * tokens // self.batch))


def hidden_shares(rows: Sequence[Sequence[int]], words: int) -> Tensor:
    """Return [words]: how often a word is hidden as unknown: half the time when it is in one text
    only, seldom in many.
    """
    counts = torch.zeros(words)
    for row in rows:
        counts[list(set(row[1:]))] += 1
    shares = 0.5 / counts.clamp(min=1)
    shares[: UNK + 1] = 0
    return torch.where(counts > 0, shares, torch.zeros(()))


def fit(
    rows: Sequence[Sequence[int]],
    counts: Sequence[int],
    words: int,
    how: Fitting,
    report: Callable[[int, int, float], None] = lambda step, steps, loss: None,
    device: str = "cpu",
) -> LogModel:
    """Return a model of the rows (numbers of words, CLS first), each seen `counts` times. report(step, steps, loss)."""
    chance = torch.Generator().manual_seed(how.seed)
    torch.manual_seed(how.seed)
    model = LogModel(how.shape(words)).to(device).train()
    weights = torch.tensor([math.sqrt(count) for count in counts], dtype=torch.double)
    hidden = hidden_shares(rows, words)
    steps = how.steps(sum(map(len, rows)))
    best = torch.optim.AdamW(model.parameters(), lr=how.rate, weight_decay=how.decay, betas=(0.9, 0.99))
    plan = torch.optim.lr_scheduler.LambdaLR(best, lambda step: _pace(step, steps))
    step, queue = 0, []
    while step < steps:
        if not queue:
            drawn = torch.multinomial(weights, max(64, len(rows)), replacement=True, generator=chance).tolist()
            groups = buckets([len(rows[index]) for index in drawn], how.batch)
            queue = [[drawn[place] for place in group] for group in groups]
            queue = [queue[place] for place in torch.randperm(len(queue), generator=chance).tolist()]
        numbers = torch.tensor(pad([rows[index] for index in queue.pop()]))
        loss = _loss(model, *_masked(numbers, hidden, chance), device)
        best.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        best.step()
        plan.step()
        step += 1
        report(step, steps, loss.detach())
    return model.eval()


def _pace(step: int, steps: int) -> float:
    """Return the learning rate's factor: rising over the first twentieth, then falling along a cosine."""
    rise = max(1, steps // 20)
    return (step + 1) / rise if step < rise else 0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2


def _masked(numbers: Tensor, hidden: Tensor, chance: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return the model's input, the masked positions, and the words there."""
    dice = torch.rand(numbers.shape, generator=chance)
    numbers = torch.where(dice < hidden[numbers], torch.full_like(numbers, UNK), numbers)
    dice = torch.rand(numbers.shape, generator=chance)
    dice[numbers == PAD] = 2
    dice[:, 0] = 2
    places = dice < SHARE
    places[torch.arange(len(numbers)), dice.argmin(1)] = True  # at least one
    return torch.where(places, torch.full_like(numbers, MASK), numbers), places, numbers[places]


def _loss(model: LogModel, seen: Tensor, places: Tensor, words: Tensor, device: str) -> Tensor:
    return functional.cross_entropy(model.at(seen.to(device), places.to(device)), words.to(device))


@torch.inference_mode()
def surprises(model: LogModel, rows: Sequence[Sequence[int]], device: str = "cpu") -> list[list[float]]:
    """Return for each row the surprise of each word (without CLS) in nats: −log of the word's probability."""
    result: list[list[float]] = [[] for _ in rows]
    longest = model.shape.longest
    for group in buckets([len(row) for row in rows], SCORE_TOKENS // GROUPS):
        numbers = torch.tensor(pad([rows[index] for index in group], longest))
        grid = torch.zeros(numbers.shape)
        place = torch.arange(numbers.shape[1]) % GROUPS
        words = (numbers != PAD) & (torch.arange(numbers.shape[1]) > 0)
        passes = torch.stack([words & (place == turn) for turn in range(GROUPS)])
        seen = torch.where(passes, torch.full_like(numbers, MASK), numbers)
        used = passes.any(-1)  # a short text needs fewer passes
        seen, places = seen[used].to(device), passes[used].to(device)
        logits = model.at(seen, places).float()
        true = numbers.expand(GROUPS, -1, -1)[used][passes[used]].to(device)
        cost = functional.cross_entropy(logits, true, reduction="none").cpu()
        spots = passes.nonzero()
        grid[spots[:, 1], spots[:, 2]] = cost
        for row, index in zip(grid.tolist(), group, strict=True):
            result[index] = row[1 : min(len(rows[index]), longest)]
    return result
