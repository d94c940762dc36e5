"""Scores masked texts with a trained model: ours, or one of Opni's. Used by the inference services; one per process.

Repeated texts are scored once, short ones are not padded to long ones, and a text that the model was trained on (or
that has user feedback) never reaches the network.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from . import weighing
from .learning import surprises
from .model import LogModel, load
from .store import MANIFEST, MODEL, VOCAB, verify
from .tokenizer import MASK, Tokenizer, buckets, pad

KIND = "masked-words-1"  # `kind` in the manifest of a model of ours
TOP = 50  # Opni's: a word among that many likeliest is expected
OPNI_TOKENS = 4096
NORMAL, ANOMALY = "Normal", "Anomaly"
TEXTS = "texts.json"  # the most frequent texts of the training, to find the nearest


class Verdict(NamedTuple):
    confidence: float  # 0..1, low for an anomaly
    level: str  # Normal or Anomaly
    unexpected: list[tuple[int, str]]  # (position in the masked text, word)


class Scorer:
    """One loaded model. Not thread-safe."""

    def __init__(self, model: LogModel, tokenizer: Tokenizer, manifest: dict, extras: dict, device: str):
        self.model, self.tokenizer, self.manifest, self.device = model, tokenizer, manifest, device
        self.ours = manifest.get("kind") == KIND
        problem = float(manifest.get("score_threshold", weighing.LEAST))
        # A model of an earlier release has one threshold for all texts.
        self.thresholds = weighing.Thresholds(problem, float(manifest.get("plain_threshold", problem)))
        self.seen = set(extras.get("seen", torch.empty(0)).tolist())
        feedback = [extras[name].tolist() if extras else [] for name in ("told", "told_normal")]
        self.feedback = dict(zip(*feedback, strict=True))  # text's key: whether it is normal
        self.texts: list[str] = []

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> Scorer:
        """Load the model in the folder; without a manifest it is one of Opni's. Raises ValueError with the reason."""
        folder = Path(folder)
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        manifest = verify(folder) if (folder / MANIFEST).exists() else {}
        ours = manifest.get("kind") == KIND
        try:
            tokenizer = Tokenizer.load(folder / VOCAB)
            tokenizer.apart = bool(manifest.get("scripts_apart"))
            heads = manifest.get("shape", {}).get("heads") if ours else None
            model = load(folder / MODEL, heads, device)
            extras = torch.load(folder / MODEL, weights_only=True, map_location="cpu").get("extras", {}) if ours else {}
        except OSError as problem:
            raise ValueError(f"the model cannot be read: {problem}")
        if model.shape.words < tokenizer.size:
            raise ValueError(f"{VOCAB} has {tokenizer.size} words, {MODEL} {model.shape.words}")
        scorer = cls(model, tokenizer, manifest, extras, device)
        if ours:
            scorer.texts = json.loads((folder / TEXTS).read_bytes())
        return scorer

    def score(self, masked: Sequence[str]) -> list[Verdict]:
        """Return the verdict of each text, in order."""
        distinct = list(dict.fromkeys(masked))
        with self._precision():
            results = self._ours(distinct) if self.ours else self._opnis(distinct)
        verdicts = dict(zip(distinct, results, strict=True))
        return [verdicts[text] for text in masked]

    def costs(self, masked: Sequence[str]) -> list[tuple[list[int], list[float]]]:
        """Return the numbers of the words (CLS first) and the surprise of each word, in nats."""
        rows = [self.tokenizer.encode(text) for text in masked]
        return list(zip(rows, surprises(self.model, rows, self.device), strict=True))

    def nearest(self, masked: str) -> str:
        """Return the known text most similar to this one, by the words they share; "" when there is none."""
        words = set(masked.split())

        def similarity(text: str) -> float:
            other = set(text.split())
            return len(words & other) / len(words | other) if other else 0.0

        best = max(self.texts, key=similarity, default="")
        return best if best and similarity(best) else ""

    def _precision(self):
        if self.device.startswith("cuda") and torch.cuda.is_bf16_supported():
            return torch.autocast("cuda", dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def _ours(self, texts: list[str]) -> list[Verdict]:
        keys = [weighing.key_of(text) for text in texts]
        verdicts: list[Verdict | None] = [None] * len(texts)
        new = []
        for place, key in enumerate(keys):
            is_normal = self.feedback.get(key)
            if is_normal is not None:
                verdicts[place] = Verdict(1.0, NORMAL, []) if is_normal else Verdict(0.0, ANOMALY, [])
            elif key in self.seen or not texts[place]:
                verdicts[place] = Verdict(1.0, NORMAL, [])
            else:
                new.append(place)
        for place, (numbers, costs) in zip(new, self.costs([texts[place] for place in new]), strict=True):
            costs = weighing.weighed(numbers, costs, apart=self.tokenizer.divides(texts[place]))
            confidence = weighing.confidence_of(weighing.score_of(numbers, costs), self.thresholds.of(texts[place]))
            verdicts[place] = self._verdict(texts[place], confidence, numbers, costs)
        return verdicts

    def _verdict(self, text: str, confidence: float, numbers: Sequence[int], costs: Sequence[float]) -> Verdict:
        if confidence >= weighing.THRESHOLD:
            return Verdict(confidence, NORMAL, [])
        return Verdict(confidence, ANOMALY, weighing.marked(self.tokenizer.places(text), numbers, costs))

    @torch.inference_mode()
    def _opnis(self, texts: list[str]) -> list[Verdict]:
        """Judge by Opni's rule: the share of the words among the 50 likeliest at their position, each masked alone."""
        samples: list[list[int]] = []  # a copy of the text for each word to predict
        origin: list[tuple[int, int, int]] = []  # text, position, true number
        for index, text in enumerate(texts):
            words, row = self.tokenizer.split(text), self.tokenizer.encode(text)[: self.model.shape.longest]
            for place in range(1, len(row)):
                if not any(sign.isdigit() for sign in words[place - 1]):
                    samples.append([*row[:place], MASK, *row[place + 1 :]])
                    origin.append((index, place - 1, row[place]))
        asked, hits = [0] * len(texts), [0] * len(texts)
        missed: list[list[int]] = [[] for _ in texts]
        for group in buckets(map(len, samples), OPNI_TOKENS):
            numbers = torch.tensor(pad([samples[sample] for sample in group], self.model.shape.longest)).to(self.device)
            logits = self.model.from_start(numbers)
            likeliest = logits.topk(min(TOP, logits.shape[1]), dim=1).indices
            true = torch.tensor([origin[sample][2] for sample in group], device=self.device)
            for sample, hit in zip(group, (likeliest == true[:, None]).any(1).tolist(), strict=True):
                index, place, _ = origin[sample]
                asked[index] += 1
                hits[index] += hit
                if not hit:
                    missed[index].append(place)
        verdicts = []
        for index, text in enumerate(texts):
            confidence = hits[index] / asked[index] if asked[index] else 1.0
            words = self.tokenizer.split(text)
            marks = (
                [(place, words[place]) for place in sorted(missed[index])] if confidence < weighing.THRESHOLD else []
            )
            verdicts.append(Verdict(confidence, ANOMALY if confidence < weighing.THRESHOLD else NORMAL, marks))
        return verdicts
