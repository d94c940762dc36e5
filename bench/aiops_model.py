"""Speed of the masker, the template cache and the log model: `python bench/aiops_model.py`.

The lines are generated (patterns of a service's log, with new numbers) or come from MLP_BENCH_DATA. The masker is
compared with its own rules without the cache, and with drain3 and the masks of its documentation, if drain3 is
installed; the model with a network of Opni's shape that scores one line at a time. One thread; only the ratios are
meaningful on other machines.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aiops.judging.template_cache import TemplateCache
from opnilog import train
from opnilog.masking import Shapes, mask_plain
from opnilog.model import LogModel, Shape, save
from opnilog.score import Scorer
from opnilog.tokenizer import Tokenizer

try:
    from drain3.masking import LogMasker, MaskingInstruction
except ImportError:
    LogMasker = None

VERBS = [
    "opened", "closed", "read", "wrote", "sent", "received", "started", "stopped", "moved", "copied", "checked",
    "dropped",
]  # fmt: skip
THINGS = [
    "block", "file", "session", "request", "packet", "table", "volume", "lease", "token", "index", "shard", "replica",
    "queue", "batch",
]  # fmt: skip
PLACES = ["node", "rack", "zone", "pool", "cache", "disk", "stage", "worker"]
DRAIN3_MASKS = [  # of drain3's example configuration
    (r"((?<=[^A-Za-z0-9])|^)(([0-9a-f]{2,}:){3,}([0-9a-f]{2,}))((?=[^A-Za-z0-9])|$)", "ID"),
    (r"((?<=[^A-Za-z0-9])|^)(\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3})((?=[^A-Za-z0-9])|$)", "IP"),
    (r"((?<=[^A-Za-z0-9])|^)(0x[a-f0-9A-F]+)((?=[^A-Za-z0-9])|$)", "HEX"),
    (r"((?<=[^A-Za-z0-9])|^)([\-\+]?\d+)((?=[^A-Za-z0-9])|$)", "NUM"),
]
LABELLED = ("labelled/hdfs_head_20000.log.gz", "labelled/bgl_head_5000_normal.log.gz")


def generated(count: int, seed: int = 7) -> list[str]:
    """Return lines of a few hundred patterns with new numbers."""
    chance = random.Random(seed)
    shapes = [
        f"{chance.choice(VERBS)} {chance.choice(THINGS)} {{}} of {chance.choice(THINGS)} {{}} on "
        f"{chance.choice(PLACES)} 10.0.{{}}.7:{{}} in {{}} ms ({chance.choice(VERBS)} by {chance.choice(PLACES)}-{{}})"
        for _ in range(400)
    ]
    return [chance.choice(shapes).format(*(chance.randrange(10, 99) for _ in range(6))) for _ in range(count)]


def fresh(lines: list[str], count: int, seed: int = 7) -> list[str]:
    """Return the lines, repeated, with other digits."""
    chance = random.Random(seed)
    table = [str.maketrans("0123456789", "".join(chance.choices("0123456789", k=10))) for _ in range(997)]
    return [lines[number % len(lines)].translate(table[chance.randrange(997)]) for number in range(count)]


def rate(name: str, count: int, work, runs: int = 3) -> float:
    took = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    rate = count / statistics.median(took)
    print(f"  {name:<46} {rate:>12,.0f} lines/s", flush=True)
    return rate


def maskers(name: str, lines: list[str]) -> list[str]:
    print(f"Masking, {len(lines):,} lines of {name}")
    shapes = Shapes()
    plain = rate("masking rules, no cache", len(lines), lambda: [mask_plain(line) for line in lines], 1)

    def cold():
        new = Shapes()
        return [new.mask(line) for line in lines]

    first = rate("with the cache, cold", len(lines), cold)
    masked = [shapes.mask(line) for line in lines]
    warm = rate("with the cache, warm", len(lines), lambda: [shapes.mask(line) for line in lines])
    if LogMasker is not None:
        other = LogMasker([MaskingInstruction(*mask) for mask in DRAIN3_MASKS], "<", ">")
        theirs = rate("drain3, its four masks", len(lines), lambda: [other.mask(line) for line in lines], 1)
        print(f"  relative to drain3's masks: cold {first / theirs:.1f}x, warm {warm / theirs:.1f}x")
    print(f"  relative to the rules: cold {first / plain:.1f}x, warm {warm / plain:.1f}x")
    return masked


def templates(masked: list[str]) -> None:
    print("Template cache")
    cache = TemplateCache()
    rate("learning", len(masked), lambda: cache.learn([(text, "Normal", text) for text in masked]), 1)
    rate("matching known texts", len(masked), lambda: cache.match_many(masked))


def network(distinct: int) -> None:
    """Score distinct texts with the networks, then train on 64,000 lines."""
    chance, words = random.Random(3), [f"{a}{b}" for a in ("re", "un", "pre", "") for b in (*VERBS, *THINGS, *PLACES)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [json.dumps({"log": line}) for line in generated(64_000)]
        (folder / "lines.jsonl").write_text("\n".join(lines) + "\n")
        begin = time.perf_counter()
        train.train(folder / "lines.jsonl", folder / "ours", train.Progress(folder / "progress"), {})
        print(f"Training on {len(lines):,} lines: {time.perf_counter() - begin:.1f} s")
        ours = Scorer.open(folder / "ours", device="cpu")
        texts = [" ".join(chance.choices(words, k=chance.randint(5, 14))) for _ in range(distinct)]
        (folder / "opni").mkdir()
        tokenizer = Tokenizer()
        for text in texts:
            tokenizer.encode(text, learning=True)
        tokenizer.save(folder / "opni" / "vocab.txt")
        save(LogModel(Shape()), folder / "opni" / "nulog_model_latest.pt")
        opnis = Scorer.open(folder / "opni", device="cpu")
        print("Model, distinct texts that are not in the training data")
        few = texts[:64]
        single = rate("Opni's network, one line at a time", len(few), lambda: [opnis.score([text]) for text in few], 1)
        batch = rate("Opni's network, batched", len(few) * 4, lambda: opnis.score(texts[: len(few) * 4]), 1)
        own = rate("our network, batched", len(texts), lambda: ours.score(texts))
        seen = ours.texts * (distinct // len(ours.texts) + 1)
        rate("our network, texts of the training data", len(seen), lambda: ours.score(seen))
        print(f"  relative to Opni's, line by line: Opni's batched {batch / single:.1f}x, ours {own / single:.1f}x")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=os.environ.get("MLP_BENCH_DATA"), help="the folder of logs")
    parser.add_argument("--lines", type=int, default=100_000)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    masked = maskers("a generated service log", generated(asked.lines))
    for name in LABELLED if asked.data and Path(asked.data).is_dir() else ():
        with gzip.open(Path(asked.data) / name, "rt", errors="replace") as file:
            maskers(Path(name).stem, fresh(file.read().splitlines(), asked.lines))
    templates(masked)
    network(2000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
