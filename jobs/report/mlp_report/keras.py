"""A callback for Keras, with any backend: `model.fit(…, callbacks=[mlp_report.keras.Report()])`."""

import mlp_report

from .pace import Pace, sorted_out

try:
    from keras.callbacks import Callback
except ImportError:
    from tensorflow.keras.callbacks import Callback


class Report(Callback):
    """Reports the metrics of each epoch, and the progress and remaining time of the training."""

    def __init__(self):
        super().__init__()
        self.pace = Pace(mlp_report.progress)
        self.epoch = 0

    def on_train_begin(self, logs=None):
        self.pace.start(0)

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        steps, epochs = self.params.get("steps"), self.params.get("epochs")
        if steps and epochs:
            self.pace.step(self.epoch * steps + batch + 1, steps * epochs)

    def on_epoch_end(self, epoch, logs=None):
        mlp_report.report(epoch=epoch + 1, **sorted_out(logs or {}))
