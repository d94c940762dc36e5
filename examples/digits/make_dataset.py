"""Writes the data set `digits` into a folder, ready for upload: `python make_dataset.py OUTDIR`.

It is the set of 8x8 pictures of handwritten digits that comes with scikit-learn, so nothing is downloaded. The training
part is enlarged by shifting each picture by one pixel in four directions. About 1 MB in six files:

    README.txt  classes.csv  train/digits_x.csv  train/digits_y.csv  test/digits_x.csv  test/digits_y.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
README = """Handwritten digits, 8x8 pixels, 0 (white) to 16 (black).

x: one picture a line, 64 numbers, row by row. y: what it shows, 0 to 9.
train: {train} pictures ({originals} and their copies shifted by one pixel), test: {test} pictures, not shifted.
Source: the UCI ML hand-written digits set, as it comes with scikit-learn.
"""


def shifted(pictures: np.ndarray) -> np.ndarray:
    """Return the pictures, and each shifted by one pixel up, down, left and right; white comes in at the edge."""
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)))
    corners = ((1, 1), (2, 1), (0, 1), (1, 2), (1, 0))
    return np.concatenate([padded[:, row : row + 8, column : column + 8] for row, column in corners])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="OUTDIR")
    parser.add_argument("--seed", type=int, default=0, help="of the split (default 0)")
    options = parser.parse_args()

    digits = load_digits()
    order = np.random.default_rng(options.seed).permutation(len(digits.target))
    pictures, labels = digits.images[order].astype(int), digits.target[order]
    cut = len(labels) * 4 // 5
    parts = {
        "train": (shifted(pictures[:cut]), np.tile(labels[:cut], 5)),
        "test": (pictures[cut:], labels[cut:]),
    }
    for name, (x, y) in parts.items():
        folder = options.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        np.savetxt(folder / "digits_x.csv", x.reshape(len(x), 64), fmt="%d", delimiter=",")
        np.savetxt(folder / "digits_y.csv", y, fmt="%d")
    (options.folder / "classes.csv").write_text("".join(f"{label},{name}\n" for label, name in enumerate(NAMES)))
    sizes = {name: len(y) for name, (_, y) in parts.items()}
    (options.folder / "README.txt").write_text(README.format(originals=cut, **sizes))
    files = [path for path in options.folder.rglob("*") if path.is_file()]
    print(f"{options.folder}: {len(files)} files, {sum(path.stat().st_size for path in files)} bytes")


if __name__ == "__main__":
    main()
