"""Trains a small convolutional network on handwritten digits with Keras (TensorFlow, or any backend). See ../README.md.

Reads $MLP_DATASETS/{--dataset} as ../digits/train.py does. A callback reports after each epoch; the learning rate goes
along as a number of its own. Writes ckpt/last.weights.h5 after each epoch and ckpt/model.keras at the end.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
from mlp_report import report

try:
    from tensorflow import keras
except ImportError:  # Keras by itself, on the backend that KERAS_BACKEND names
    import keras

CHECKPOINT = Path("ckpt/last.weights.h5")


def load(dataset: str) -> tuple[np.ndarray, ...]:
    """Return train x, train y, test x, test y; pixels from 0 to 1, as 8 by 8 pictures of one channel."""
    folder = Path(os.environ.get("MLP_DATASETS", ".")) / dataset
    arrays = []
    for part in ("train", "test"):
        file = folder / part / "digits_x.csv"
        if not file.is_file():
            raise SystemExit(f"{file} not found: does the job use the dataset {dataset}?")
        arrays.append(np.loadtxt(file, delimiter=",").reshape(-1, 8, 8, 1) / 16)
        arrays.append(np.loadtxt(folder / part / "digits_y.csv", dtype=int))
    return tuple(arrays)


class Reporter(keras.callbacks.Callback):
    """Keras's own end of an epoch as a report to the platform, and a checkpoint that is never half written."""

    def __init__(self, epochs: int, slow: float):
        super().__init__()
        self.epochs, self.slow = epochs, slow

    def on_epoch_end(self, epoch, logs=None):
        loss, accuracy = logs["loss"], logs["val_accuracy"]
        print(f"epoch {epoch + 1:3}/{self.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}", flush=True)
        rate = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        progress = 100 * (epoch + 1) / self.epochs
        report(epoch=epoch + 1, accuracy=accuracy, loss=loss, progress=progress, learning_rate=rate)
        draft = CHECKPOINT.with_name("next.weights.h5")
        self.model.save_weights(draft)
        draft.replace(CHECKPOINT)
        time.sleep(self.slow)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--dataset", default="digits", help="its name below $MLP_DATASETS (default digits)")
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="pause after each epoch, for demos")
    options = parser.parse_args()

    keras.utils.set_random_seed(options.seed)
    train_x, train_y, test_x, test_y = load(options.dataset)
    CHECKPOINT.parent.mkdir(exist_ok=True)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(options.lr), loss=loss, metrics=["accuracy"])
    if CHECKPOINT.is_file():
        model.load_weights(CHECKPOINT)
        print(f"attempt {os.environ.get('MLP_ATTEMPT', '?')} goes on from {CHECKPOINT}", flush=True)
    callbacks = [Reporter(options.epochs, options.slow)]
    data = {"validation_data": (test_x, test_y), "batch_size": 64, "verbose": 0}
    model.fit(train_x, train_y, epochs=options.epochs, callbacks=callbacks, **data)
    model.save("ckpt/model.keras")
    print("saved ckpt/model.keras", flush=True)


if __name__ == "__main__":
    main()
