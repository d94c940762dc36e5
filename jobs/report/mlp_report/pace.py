"""Common parts of the callbacks for training frameworks: progress from steps, and metrics under any names."""

import time

MAX_PERCENT = 99  # the end of a training is not that of the script
LOSS = ("train_loss", "loss", "train/loss", "train_loss_epoch", "val_loss", "val/loss")
ACCURACY = ("val_accuracy", "val_acc", "val/accuracy", "val/acc", "accuracy", "acc", "train_accuracy", "train_acc")
ACCURACY += ("sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy")
OWN = ("epoch", "accuracy", "loss", "progress")


class Pace:
    """Reports progress and remaining time from the completed steps, at most once in `every_s` seconds."""

    def __init__(self, progress, every_s=1.0):
        self.progress, self.every_s = progress, every_s
        self.begun = self.first = self.reported = None

    def start(self, done):
        self.begun, self.first, self.reported = time.monotonic(), done, 0.0

    def step(self, done, total):
        """Report the completed steps; an unknown total is None, or not finite."""
        now = time.monotonic()
        if self.begun is None or not total or not 0 < total < 2**53 or now - self.reported < self.every_s:
            return
        self.reported = now
        pace = (now - self.begun) / (done - self.first) if done > self.first else None
        remaining = None if pace is None else max(0.0, pace * (total - done))
        self.progress(min(MAX_PERCENT, 100 * done / total), remaining)


def sorted_out(metrics):
    """Return the arguments of `report`: loss and accuracy under their names, and all metrics under the framework's
    names.
    """
    numbers = {}
    for name, value in metrics.items():
        try:
            numbers[str(name)] = float(value)
        except (TypeError, ValueError, RuntimeError):  # a tensor of several values, a text
            continue
    own = {"loss": LOSS, "accuracy": ACCURACY}
    values = {key: next((numbers[name] for name in names if name in numbers), None) for key, names in own.items()}
    others = {name: value for name, value in numbers.items() if name not in OWN}
    return dict(others, **{key: value for key, value in values.items() if value is not None})
