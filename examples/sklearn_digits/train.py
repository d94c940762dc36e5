"""Trains a small neural network on handwritten digits, pass by pass, with scikit-learn. See ../README.md.

Reads $MLP_DATASETS/{--dataset} as ../digits/train.py does or, where no data set of that name is given, the copy that
comes with scikit-learn. Writes ckpt/model.npz (the weights, which `numpy.load` reads without running any code).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from mlp_report import report
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier


def load(dataset: str) -> tuple[np.ndarray, ...]:
    """Return train x, test x, train y, test y; pixels from 0 to 1."""
    folder = Path(os.environ.get("MLP_DATASETS", ".")) / dataset
    if not folder.is_dir():
        print(f"no data set {dataset}: scikit-learn's own copy is used", flush=True)
        x, y = load_digits(return_X_y=True)
        return tuple(train_test_split(x / 16, y, test_size=0.2, random_state=0, stratify=y))
    x = [np.loadtxt(folder / part / "digits_x.csv", delimiter=",") / 16 for part in ("train", "test")]
    y = [np.loadtxt(folder / part / "digits_y.csv", dtype=int) for part in ("train", "test")]
    return *x, *y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dataset", default="digits", help="its name below $MLP_DATASETS (default digits)")
    parser.add_argument("--hidden", type=int, default=64, help="units of the hidden layer")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="pause after each epoch, for demos")
    options = parser.parse_args()

    train_x, test_x, train_y, test_y = load(options.dataset)
    classes = np.unique(train_y)
    print(f"{len(train_y)} pictures to train on, {len(test_y)} to test", flush=True)
    model = MLPClassifier((options.hidden,), learning_rate_init=options.lr, random_state=options.seed)
    order = np.random.default_rng(options.seed)
    for epoch in range(1, options.epochs + 1):
        rows = order.permutation(len(train_y))
        model.partial_fit(train_x[rows], train_y[rows], classes=classes)
        loss, accuracy = model.loss_, model.score(test_x, test_y)
        print(f"epoch {epoch:3}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
        report(epoch=epoch, accuracy=accuracy, loss=loss, progress=100 * epoch / options.epochs)
        time.sleep(options.slow)

    Path("ckpt").mkdir(exist_ok=True)
    layers = {f"weights_{number}": weights for number, weights in enumerate(model.coefs_)}
    layers |= {f"offsets_{number}": offsets for number, offsets in enumerate(model.intercepts_)}
    np.savez("ckpt/model.npz", classes=classes, **layers)
    print(f"saved ckpt/model.npz, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
