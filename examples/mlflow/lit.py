"""Train a model with Lightning; its MLFlowLogger reports hyperparameters and metrics."""

import lightning
import torch
from lightning.pytorch.loggers import MLFlowLogger


class Net(lightning.LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


x = torch.rand(256, 4)
data = torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))
logger = MLFlowLogger(experiment_name="quickstart", run_name="Lightning")
trainer = lightning.Trainer(max_epochs=5, logger=logger, log_every_n_steps=2, enable_checkpointing=False)
trainer.fit(Net(), torch.utils.data.DataLoader(data, batch_size=32))
