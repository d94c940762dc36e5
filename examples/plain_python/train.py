"""Fits a logistic regression to made-up points by gradient descent, in plain Python. See ../README.md.

Needs nothing but Python, so it runs anywhere: the first thing to try. Writes ckpt/model.json, and goes on from it when
the job is tried again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

import mlp_report
from mlp_report import report

MODEL = Path("ckpt/model.json")
TRUTH = (2.0, -3.0, 0.5)  # what is to be found, up to scale: two weights and the offset


def points(count: int, seed: int) -> list[tuple[float, float, int]]:
    """Return points in a square, labelled by the side of a line they are on, with some noise near the line."""
    draw = random.Random(seed)
    points = []
    for _ in range(count):
        x, y = draw.uniform(-1, 1), draw.uniform(-1, 1)
        side = TRUTH[0] * x + TRUTH[1] * y + TRUTH[2] + draw.gauss(0, 0.3)
        points.append((x, y, int(side > 0)))
    return points


def chance(weights: list[float], x: float, y: float) -> float:
    """Return the chance of label 1 by the model, kept off 0 and 1."""
    score = max(-30.0, min(30.0, weights[0] * x + weights[1] * y + weights[2]))
    return 1 / (1 + math.exp(-score))


def save(weights: list[float], epoch: int) -> None:
    MODEL.parent.mkdir(exist_ok=True)
    draft = MODEL.with_suffix(".part")
    draft.write_text(json.dumps({"weights": weights, "epoch": epoch}))
    draft.replace(MODEL)


def log_media(weights: list[float], test: list[tuple[float, float, int]], epoch: int) -> None:
    """Log the media of the job's Media tab: a picture of the model, the distribution of its confidence, its confusion
    matrix.
    """
    side = [2 * at / 63 - 1 for at in range(64)]
    mlp_report.log_image("decision", [[chance(weights, x, -y) for x in side] for y in side], epoch, "chance of label 1")
    guesses = [chance(weights, x, y) for x, y, _ in test]
    mlp_report.log_histogram("chances", guesses, bins=20, step=epoch)
    truth = [label for *_, label in test]
    mlp_report.log_confusion_matrix("test points", truth, [int(guess > 0.5) for guess in guesses], step=epoch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="pause after each epoch, for demos")
    options = parser.parse_args()

    train, test = points(options.points, options.seed), points(500, options.seed + 1)
    weights, first = [0.0, 0.0, 0.0], 1
    if MODEL.exists():
        state = json.loads(MODEL.read_text())
        weights, first = state["weights"], state["epoch"] + 1
        print(f"attempt {os.environ.get('MLP_ATTEMPT', '?')} goes on after epoch {first - 1}", flush=True)

    for epoch in range(first, options.epochs + 1):
        loss = 0.0
        random.Random(epoch).shuffle(train)
        for x, y, label in train:
            guess = chance(weights, x, y)
            loss -= math.log(guess if label else 1 - guess)
            for index, value in enumerate((x, y, 1.0)):
                weights[index] += options.lr * (label - guess) * value
        right = sum((chance(weights, x, y) > 0.5) == bool(label) for x, y, label in test)
        loss, accuracy = loss / len(train), right / len(test)
        print(f"epoch {epoch:3}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
        save(weights, epoch)
        log_media(weights, test, epoch)
        report(epoch=epoch, accuracy=accuracy, loss=loss, progress=100 * epoch / options.epochs)
        time.sleep(options.slow)
    print(f"saved {MODEL}: {', '.join(f'{weight:.2f}' for weight in weights)}", flush=True)


if __name__ == "__main__":
    main()
