"""A callback for Lightning: `Trainer(callbacks=[mlp_report.lightning.Report()])`."""

import mlp_report

from .pace import Pace, sorted_out

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback


class Report(Callback):
    """Reports what the module logs after each epoch, and the progress and remaining time of the training."""

    def __init__(self):
        super().__init__()
        self.pace = Pace(mlp_report.progress)

    def on_train_start(self, trainer, pl_module):
        self.pace.start(trainer.global_step)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.is_global_zero:
            self.pace.step(trainer.global_step, trainer.estimated_stepping_batches)

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero:
            mlp_report.report(epoch=trainer.current_epoch, **sorted_out(trainer.callback_metrics))
