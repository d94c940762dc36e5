"""Trains a model from a file of lines: `python -m opnilog.train --lines FILE --out DIR --progress FILE`.

A run of its own that uses neither Django nor the network. Lines are JSON objects, one a line: `log`, or `masked_log`,
and `label` ("normal" or "anomaly") where there is user feedback. It may be killed at any moment and started again: the
output folder appears complete or not at all. Exits with 0 only when the written model has been read back and judges as
it did. The progress file gets a JSON line a second; the last one has `error` after a failure.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path

import torch

from opnilog.masking import mask

from . import learned_sessions, opni, usual_values, weighing
from .learning import GROUPS, Fitting, fit, surprises
from .model import LogModel, save
from .problem_words import names_problem
from .score import KIND, TEXTS, Scorer
from .store import MANIFEST, MODEL, VOCAB
from .tokenizer import FIRST_LEARNED, MAX_WORDS, Tokenizer

FOLDS = 4
MAX_TEXTS = 200_000  # distinct texts; a log with more of them is not masked well
MAX_SCORED = 20_000  # texts that determine the threshold
KEPT = 1000  # texts kept to find the nearest
MAX_SHARED = 1000  # texts that Opni's network is tried on
OPNI_WORK = 8  # a step of Opni's network in steps of ours
REPORT_EVERY_S = 1.0
SESSION_QUIET_S = 300


@dataclass
class Lines:
    """The content of the file: how often each text occurs, and the users' feedback."""

    counts: Counter = field(default_factory=Counter)
    feedback: dict[str, bool] = field(default_factory=dict)  # text: whether it is normal
    lines: int = 0

    @classmethod
    def read(cls, path: Path) -> Lines:
        """Return the lines of a file. Raises ValueError naming the line that is wrong."""
        lines = cls()
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, 1):
                if text.strip():
                    try:
                        lines.add(json.loads(text))
                    except (ValueError, KeyError, TypeError, AttributeError) as problem:
                        raise ValueError(f"line {number}: {problem}")
        for text, normal in lines.feedback.items():
            if normal:
                lines.counts[text] += 1
            else:
                lines.lines -= lines.counts.pop(text, 0)
        return lines

    def add(self, row: dict) -> None:
        masked = row.get("masked_log") or mask(row["log"])
        label = row.get("label")
        if label not in (None, "", "normal", "anomaly"):
            raise ValueError(f"label: {label!r} is neither normal nor anomaly")
        if label:
            self.feedback[masked] = label == "normal"
        if label != "anomaly" and (masked in self.counts or len(self.counts) < MAX_TEXTS):
            self.counts[masked] += 1
            self.lines += 1


class Progress:
    """Appends to the progress file. Percent and time left are over all fits, weighted by the work of each."""

    def __init__(self, path: Path):
        self.file = path.open("a", buffering=1)
        self.begin, self.last = time.monotonic(), float("-inf")
        self.works: list[float] = []  # of each fit, in steps; its scoring with it
        self.fit, self.base, self.begun, self.loss = 0, 0.0, self.begin, None

    def write(self, **row) -> None:
        """Write all files into the folder, which must exist."""
        self.file.write(json.dumps(row) + "\n")

    def plan(self, works: Sequence[float]) -> None:
        """Set the work ahead, known before the first step; the time left is computed from here."""
        self.works, self.begun = list(works), time.monotonic()

    def step(self, step: int, steps: int, loss) -> None:
        now = time.monotonic()
        if now - self.last < REPORT_EVERY_S and step < steps:
            return
        self.last, self.loss = now, round(float(loss), 4)
        part = min(1.0, (self.base + step) / sum(self.works))
        self.write(
            stage="train", epoch=self.fit + 1, epochs=len(self.works), percent=int(part * 100),
            elapsed=round(now - self.begin, 1), eta=round((now - self.begun) * (1 / part - 1), 1), loss=self.loss,
        )  # fmt: skip

    def next_fit(self) -> None:
        self.base += self.works[self.fit]
        self.fit += 1


def vocabulary(texts: Iterable[str], *, apart: bool = True) -> Tokenizer:
    """Return a vocabulary of all words, or of the words in the most texts where there are too many."""
    spread: Counter = Counter()
    plain = Tokenizer(apart=apart)
    for text in texts:
        spread.update(dict.fromkeys(plain.split(text), 1))
    order = list(spread)
    if len(order) > MAX_WORDS - FIRST_LEARNED:
        order = [word for word, _ in spread.most_common(MAX_WORDS - FIRST_LEARNED)]
    tokenizer = Tokenizer(apart=apart)
    for word in order:
        tokenizer.learn(word)
    tokenizer.size = max(tokenizer.used, FIRST_LEARNED + 1)
    return tokenizer


def learn(texts: dict[str, int], how: Fitting, report, device: str) -> tuple[LogModel, Tokenizer]:
    tokenizer = vocabulary(texts)
    rows = [tokenizer.encode(text) for text in texts]
    return fit(rows, list(texts.values()), tokenizer.size, how, report, device), tokenizer


def folds(counts: dict[str, int], seed: int) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return (texts learned, texts that are new to them) for each fold of the lines, with their counts."""
    chance = random.Random(seed)
    parts: list[Counter] = [Counter() for _ in range(FOLDS)]
    for text, count in counts.items():
        for _ in range(min(count, FOLDS * 4)):  # a text that frequent is in every fold
            parts[chance.randrange(FOLDS)][text] += 1
    result = []
    for part in parts:
        new = {text: count for text, count in part.items() if count == counts[text]}
        result.append(({text: count for text, count in counts.items() if text not in new}, new))
    return result


def works(counts: dict[str, int], parts: Sequence[tuple[dict, dict]], how: Fitting, for_opni: int = 0) -> list[float]:
    """Return the work of each fit in steps: the folds', that of all texts, and with `for_opni` steps Opni's.

    Scoring is passes without backpropagation, a third of a step's work each.
    """
    plain = Tokenizer(apart=True)
    tokens = {text: len(plain.encode(text)) for text in counts}
    result = []
    for learned, new in parts:
        scored = sum(tokens[text] for text in islice(new, MAX_SCORED))
        result.append(how.steps(sum(tokens[text] for text in learned)) + scored * GROUPS / how.batch / 3)
    total = sum(tokens.values())
    exported = [min(for_opni, opni.steps(total)) * OPNI_WORK] if for_opni else []
    return [*result, how.steps(total), *exported]


def out_of_fold(
    parts: Sequence[tuple[dict, dict]], how: Fitting, progress: Progress, device: str
) -> list[weighing.Unseen]:
    """Return the score of every text by a model that has not seen it; texts seen by every model are left out."""
    result = []
    for learned, new in parts:
        model, tokenizer = learn(learned, how, progress.step, device)
        some = list(new)
        random.Random(how.seed).shuffle(some)
        share = max(1, len(some) / MAX_SCORED)
        some = some[:MAX_SCORED]
        rows = [tokenizer.encode(text) for text in some]
        for text, row, costs in zip(some, rows, surprises(model, rows, device), strict=True):
            weighed = weighing.weighed(row, costs, apart=tokenizer.divides(text))
            score, count = weighing.score_of(row, weighed), round(new[text] * share)
            result.append(weighing.Unseen(score, count, names_problem(text)))
        progress.next_fit()
    return result


def rows(path: Path) -> Iterator[dict]:
    """Yield the rows of a file that `Lines.read` has accepted."""
    with path.open(encoding="utf-8", errors="replace") as file:
        yield from (json.loads(text) for text in file if text.strip())


def write(
    folder: Path, model: LogModel, tokenizer: Tokenizer, lines: Lines, learned: dict[str, dict], facts: dict
) -> None:
    """Write everything into the folder, which must exist. learned: what else was learned, by the name of its file."""
    keys = sorted(weighing.key_of(text) for text in lines.counts)
    feedback = {weighing.key_of(text): normal for text, normal in lines.feedback.items()}
    extras = {
        "seen": torch.tensor(keys, dtype=torch.int64),
        "told": torch.tensor(list(feedback), dtype=torch.int64),
        "told_normal": torch.tensor(list(feedback.values()), dtype=torch.bool),
    }
    save(model, folder / MODEL, extras=extras)
    tokenizer.save(folder / VOCAB)
    kept = [text for text, _ in lines.counts.most_common(KEPT)]
    (folder / TEXTS).write_text(json.dumps(kept, ensure_ascii=False), encoding="utf-8", errors="replace")
    for name, state in learned.items():
        (folder / name).write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8", errors="replace")
    there = [folder / name for name in (MODEL, VOCAB, TEXTS, *learned)] + sorted((folder / opni.FOLDER).glob("*"))
    digests = {path.relative_to(folder).as_posix(): digest_of(path) for path in there}
    facts = {**facts, "scripts_apart": tokenizer.apart}
    manifest = {"kind": KIND, "shape": model.shape.as_dict(), **facts, "files": digests}
    (folder / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False))


def export(folder: Path, lines: Lines, most_steps: int, progress: Progress, device: str) -> float:
    """Train and write the files for Opni's services, which divide texts at spaces only; return the share of the lines
    that they will find normal.
    """
    progress.next_fit()
    texts = list(lines.counts)
    tokenizer = vocabulary(texts, apart=False)
    rows = [tokenizer.encode(text) for text in texts]
    model = opni.fit(rows, [lines.counts[text] for text in texts], most_steps, progress.step, device)
    opni.write(folder, model, opni.vocabulary(tokenizer))
    some = texts[:MAX_SHARED]
    normal = [verdict.level == "Normal" for verdict in Scorer.open(folder, device).score(some)]
    counts = [lines.counts[text] for text in some]
    return sum(count for count, good in zip(counts, normal, strict=True) if good) / sum(counts)


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(folder: Path, model: LogModel, tokenizer: Tokenizer, lines: Lines, device: str) -> None:
    """Read the files back and compare their verdicts with the model's. Raises ValueError."""
    scorer = Scorer.open(folder, device)
    some = list(lines.counts)[:32]
    rows = [tokenizer.encode(text) for text in some]
    for mine, (_, other) in zip(surprises(model, rows, device), scorer.costs(some), strict=True):
        if len(mine) != len(other) or any(abs(a - b) > 1e-2 for a, b in zip(mine, other, strict=True)):
            raise ValueError("the verdicts of the stored model differ from those of the trained one")
    for text, verdict in zip(lines.feedback, scorer.score(list(lines.feedback)), strict=True):
        if (verdict.level == "Normal") != lines.feedback[text]:
            raise ValueError("the verdict on a labelled line would differ from its label")


def train(path: Path, out: Path, progress: Progress, parameters: dict, session_lines: Path | None = None) -> None:
    """Train and write a model; `session_lines` has the rows of learned_sessions.learn.

    Raises ValueError where there is nothing to learn from, or a parameter is unknown.
    """
    known = {field.name for field in fields(Fitting)}
    if unknown := sorted(set(parameters) - known - {"alarms", "plain_alarms", "opni_steps", "session_quiet_s"}):
        raise ValueError(f"unknown parameters: {', '.join(unknown)}")
    how = Fitting(**{name: value for name, value in parameters.items() if name in known})
    device = "cuda" if torch.cuda.is_available() else "cpu"
    progress.write(stage="read", epoch=0, epochs=FOLDS + 1, percent=0, elapsed=0, eta=None, loss=None)
    lines = Lines.read(path)
    if not lines.counts:
        raise ValueError("there is no line to learn from")
    # A fold without new texts, or with all of them, says nothing about new texts.
    parts = [(learned, new) for learned, new in folds(lines.counts, how.seed) if learned and new]
    for_opni = int(parameters.get("opni_steps", 0))
    progress.plan(works(lines.counts, parts, how, for_opni))
    unseen = out_of_fold(parts, how, progress, device)
    alarms = float(parameters.get("alarms", weighing.ALARMS))
    plain_alarms = float(parameters.get("plain_alarms", weighing.PLAIN_ALARMS))
    thresholds = weighing.thresholds_of(unseen, lines.lines, alarms, plain_alarms)
    model, tokenizer = learn(lines.counts, how, progress.step, device)
    values = usual_values.learn(rows(path))
    quiet_ms = int(parameters.get("session_quiet_s", SESSION_QUIET_S) * 1000)
    sessions = learned_sessions.learn(rows(session_lines) if session_lines else (), quiet_ms)
    odd = sum(text.lines for text in unseen if thresholds.exceeded(text))
    facts = {
        "lines": lines.lines, "texts": len(lines.counts), "words": tokenizer.used, "told": len(lines.feedback),
        "threshold": weighing.THRESHOLD, "score_threshold": thresholds.problem, "plain_threshold": thresholds.plain,
        "alarms": alarms, "plain_alarms": plain_alarms,
        "new_share": sum(text.lines for text in unseen) / lines.lines, "odd_share": odd / lines.lines,
        "loss": progress.loss, "device": device,
        "judged_values": sum(len(template["positions"]) for template in values["templates"]),
        "judged_sessions": len(sessions["workloads"]),
    }  # fmt: skip
    draft = out.with_name(f".{out.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    if for_opni:
        facts["opni_normal_share"] = export(draft / opni.FOLDER, lines, for_opni, progress, device)
    facts["seconds"] = round(time.monotonic() - progress.begin, 1)
    learned = {usual_values.FILE: values, learned_sessions.FILE: sessions}
    write(draft, model, tokenizer, lines, learned, facts)
    check(draft, model, tokenizer, lines, device)
    shutil.rmtree(out, ignore_errors=True)
    draft.rename(out)
    took = round(time.monotonic() - progress.begin, 1)
    fits = len(progress.works)
    progress.write(stage="done", epoch=fits, epochs=fits, percent=100, elapsed=took, eta=0, loss=None)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m opnilog.train", description="Trains the log model.")
    for name in ("lines", "out", "progress"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--sessions", type=Path, help="the lines from which the sessions are learned")
    parser.add_argument("--parameters", type=Path, help="a JSON object: width, layers, passes, alarms, …")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))))
    progress = Progress(asked.progress)
    try:
        parameters = json.loads(asked.parameters.read_bytes()) if asked.parameters else {}
        train(asked.lines, asked.out, progress, parameters, asked.sessions)
    except Exception as problem:  # whatever it is, the progress file gets the reason
        progress.write(stage="failed", error=str(problem) or type(problem).__name__)
        print(f"training failed: {problem!r}", file=sys.stderr)
        if not isinstance(problem, ValueError | OSError):
            raise
        return 1
    return 0


if __name__ == "__main__":
    gc.freeze()  # torch's modules stay to the end: no collection looks at them again, also not the one at the exit
    sys.exit(main())
