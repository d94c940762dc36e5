"""Training frameworks that report progress, remaining time and metrics: transformers, Lightning and Keras, for real.

They are large, so they are installed apart: `make frameworks` runs these tests, which are skipped where MLP_FRAMEWORKS,
the Python that has them, is not given. Each trains a tiny model of its own for seconds; nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from jobs import progress_bar

from .test_mlp_report import HEARTBEAT, PACKAGE, VALUES, environment, platform  # noqa: F401 (fixture)

PYTHON = os.environ.get("MLP_FRAMEWORKS", "")
TRAINER = "/api/v1/users/alice/jobs/train:trainer"

pytestmark = pytest.mark.skipif(not PYTHON, reason="MLP_FRAMEWORKS is not given: make frameworks")

TRANSFORMERS = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

sizes = dict(vocab_size=32, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
model = BertForSequenceClassification(BertConfig(**sizes, max_position_embeddings=8, num_labels=2))
rows = [{"input_ids": torch.randint(0, 32, (4,)), "labels": torch.tensor(at % 2)} for at in range(32)]
options = dict(num_train_epochs=2, per_device_train_batch_size=4, logging_steps=2, use_cpu=True, save_strategy="no")
Trainer(model, TrainingArguments("out", **options), train_dataset=rows).train()
"""

LIGHTNING = """
import lightning, torch, mlp_report

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _):
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss
    def validation_step(self, batch, _):
        self.log("val_acc", 0.75)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

def data():
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(16, 4)), batch_size=4)

report = mlp_report.lightning.Report()
report.pace.every_s = 0
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
lightning.Trainer(max_epochs=3, accelerator="cpu", callbacks=[report], **quiet).fit(Net(), data(), data())
"""

KERAS = """
import keras, numpy, mlp_report

model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
model.compile("sgd", "binary_crossentropy", metrics=["accuracy"])
report = mlp_report.keras.Report()
report.pace.every_s = 0
x, y = numpy.random.rand(16, 4), numpy.arange(16) % 2
model.fit(x, y, epochs=3, batch_size=4, validation_split=0.5, verbose=0, callbacks=[report])
"""

TQDM = """
import pandas, time, tqdm, mlp_report
mlp_report.log_table("frame", pandas.DataFrame({"a": [1, 2], "b": ["x", None]}))
for epoch in tqdm.trange(8, desc="all", mininterval=0):
    for batch in tqdm.trange(4, leave=False, mininterval=0):
        time.sleep(0.15)
    if epoch == 5:
        break
"""


@pytest.fixture
def train(platform, tmp_path):  # noqa: F811
    """Run a script as a job runs; return what it reported to that address, in order."""

    def run(script: str, path: str) -> list:
        token = tmp_path / "token"
        token.write_text("secret")
        status = {"KUBEFLOW_TRAINER_SERVER_URL": f"http://127.0.0.1:{platform.port}{TRAINER}"}
        status["KUBEFLOW_TRAINER_SERVER_TOKEN"] = str(token)
        plain = {"PATH": os.defpath, "HOME": str(tmp_path), "PYTHONPATH": str(PACKAGE.parent), "HF_HUB_OFFLINE": "1"}
        plain |= {"KERAS_BACKEND": "torch", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        env = environment(platform.port, **plain, **status)
        done = subprocess.run(
            [PYTHON, "-c", script], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [body for _, at, body, headers in platform.requests if at == path and headers["answer"] == 200]

    return run


def test_a_hugging_face_trainer_reports_without_a_changed_line(train, platform):  # noqa: F811
    statuses = [body["trainerStatus"] for body in train(TRANSFORMERS, TRAINER)]
    assert (statuses[0]["progressPercentage"], statuses[-1]["progressPercentage"]) == (0, 100)
    assert statuses[-1]["estimatedRemainingSeconds"] == 0
    metrics = {metric["name"]: float(metric["value"]) for metric in statuses[-1]["metrics"]}
    assert {"loss", "grad_norm", "learning_rate", "epoch"} <= set(metrics)
    assert {headers["Authorization"] for *_, headers in platform.requests} == {"Bearer secret"}


def test_lightnings_callback_reports_metrics_progress_and_remaining_time(train, platform):  # noqa: F811
    beats = train(LIGHTNING, HEARTBEAT)
    assert (beats[-1]["state"], beats[-1]["progress"]) == ("running", 99)
    assert any("remaining" in beat for beat in beats)
    assert [(row["epoch"], row["accuracy"]) for row in platform.taken()] == [(0, 0.75), (1, 0.75), (2, 0.75)]
    assert all(row["loss"] > 0 for row in platform.taken())
    values = [row["values"] for batch in platform.taken(VALUES) for row in batch]
    assert all(set(row) == {"train_loss", "val_acc"} for row in values)


def test_keras_callback_reports_metrics_progress_and_remaining_time(train, platform):  # noqa: F811
    beats = train(KERAS, HEARTBEAT)
    assert (beats[-1]["state"], beats[-1]["progress"]) == ("running", 99)
    assert any("remaining" in beat for beat in beats)
    assert [row["epoch"] for row in platform.taken()] == [1, 2, 3]
    assert all(row["loss"] > 0 for row in platform.taken())
    values = [row["values"] for batch in platform.taken(VALUES) for row in batch]
    assert all(set(row) == {"val_loss", "val_accuracy"} for row in values)


def test_the_bars_of_tqdm_and_the_tables_of_pandas_are_read(tmp_path):
    env = {"PATH": os.defpath, "PYTHONPATH": str(PACKAGE.parent), "MLP_WORKSPACE": str(tmp_path)}
    done = subprocess.run([PYTHON, "-c", TQDM], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    percent, left = progress_bar.progress_of(done.stderr)
    assert (percent, left is not None and 0 < left < 60) == (62, True)
    [table] = (tmp_path / "media" / "table").iterdir()
    assert json.loads(table.read_text()) == {"columns": ["a", "b"], "rows": [[1, "x"], [2, "nan"]]}
