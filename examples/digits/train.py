"""Trains a small convolutional network on handwritten digits, with PyTorch. See ../README.md for how to run it.

Reads $MLP_DATASETS/{--dataset}/{train,test}/digits_{x,y}.csv, writes ckpt/last.pt after each epoch (from which another
attempt goes on) and ckpt/model.pt (TorchScript, which `torch.jit.load` reads without this file) at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from mlp_report import report
from torch import nn

CKPT = Path("ckpt")
# What a server is to know of the model, which TorchScript itself does not tell: rows of 64 grey values, 0 to 16.
SIGNATURE = {"inputs": [{"name": "pictures", "datatype": "FP32", "shape": [-1, 64]}],
             "outputs": [{"name": "output__0", "datatype": "FP32", "shape": [-1, 10]}]}  # fmt: skip
LAST = CKPT / "last.pt"
BATCH = 64


class Network(nn.Module):
    """Takes pictures of 8x8 pixels from 0 to 16 as (n, 64) or (n, 1, 8, 8), gives (n, 10) scores."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.25),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, 10),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(pictures.reshape(-1, 1, 8, 8) / 16)


def load(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one part of the data set: pictures and labels."""
    x = np.loadtxt(folder / "digits_x.csv", delimiter=",", dtype=np.float32, ndmin=2)
    y = np.loadtxt(folder / "digits_y.csv", dtype=np.int64, ndmin=1)
    if len(x) != len(y) or x.shape[1] != 64:
        raise SystemExit(f"{folder}: {x.shape} pictures and {y.shape} labels do not fit together")
    return torch.from_numpy(x), torch.from_numpy(y)


def save(state: dict) -> None:
    """Store the whole checkpoint or nothing, also when the job is killed meanwhile."""
    draft = LAST.with_suffix(".part")
    torch.save(state, draft)
    draft.replace(LAST)


def train_epoch(network: Network, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> float:
    """Train once on the training part, in random order; return the mean loss."""
    network.train()
    total = 0.0
    for rows in torch.randperm(len(y)).split(BATCH):
        loss = nn.functional.cross_entropy(network(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(rows)
    return total / len(y)


@torch.inference_mode()
def test(network: Network, x: torch.Tensor, y: torch.Tensor) -> float:
    """Return the part of the test pictures that is recognised."""
    network.eval()
    return (network(x).argmax(1) == y).float().mean().item()


def export(network: Network, path: Path) -> None:
    """Write the network as TorchScript, on the CPU. PyTorch 2.13 says of every way to write TorchScript that it is
    deprecated; it is still the only form that a server can load without the class above, so the warning is muted.
    """
    network.cpu().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        script = torch.jit.script(network)
        draft = path.with_suffix(".part")
        script.save(str(draft), _extra_files={"signature.json": json.dumps(SIGNATURE)})
        draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--dataset", default="digits", help="its name below $MLP_DATASETS (default digits)")
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--slow", type=float, default=0, metavar="SECONDS", help="pause after each epoch, for demos")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    folder = Path(os.environ.get("MLP_DATASETS", ".")) / options.dataset
    (train_x, train_y), (test_x, test_y) = (
        tuple(part.to(device) for part in load(folder / name)) for name in ("train", "test")
    )
    print(f"{len(train_y)} pictures to train on, {len(test_y)} to test, on {device}", flush=True)

    network = Network().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.lr)
    CKPT.mkdir(exist_ok=True)
    first, accuracy = 1, 0.0
    if LAST.exists():
        state = torch.load(LAST, map_location=device, weights_only=True)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        first, accuracy = state["epoch"] + 1, state["accuracy"]
        print(f"attempt {os.environ.get('MLP_ATTEMPT', '?')} goes on after epoch {state['epoch']}", flush=True)

    for epoch in range(first, options.epochs + 1):
        before = time.perf_counter()
        loss = train_epoch(network, optimizer, train_x, train_y)
        accuracy = test(network, test_x, test_y)
        took = time.perf_counter() - before
        print(f"epoch {epoch:3}/{options.epochs}  loss {loss:.4f}  accuracy {accuracy:.4f}  {took:.1f} s", flush=True)
        state = {"network": network.state_dict(), "optimizer": optimizer.state_dict()}
        save(state | {"epoch": epoch, "accuracy": accuracy})
        report(epoch=epoch, accuracy=accuracy, loss=loss, progress=100 * epoch / options.epochs)
        time.sleep(options.slow)

    export(network, CKPT / "model.pt")
    print(f"saved {CKPT / 'model.pt'}, accuracy {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
