"""The part of `make demo` that searches: a sweep over the learning rate of the digits' training."""

from __future__ import annotations

import time
from collections.abc import Callable

TRIALS = 8
PATIENCE_S = 600
SWEEP = {
    "name": "rates",
    "job": {
        "entry": "train.py",
        "runtime": "torch",
        "datasets": ["digits"],
        "args": ["--epochs", "2"],
        "cpu": 0.5,
        "ram": 1000,
        "retries": 5,
    },
    "space": {
        "lr": {"type": "float", "low": 0.00001, "high": 0.1, "log": True},
        "seed": {"type": "int", "low": 0, "high": 3},
    },
    "objective": {"metric": "accuracy", "direction": "maximize", "statistic": "best"},
    "sampler": {"type": "tpe", "seed": 1, "startup_trials": 4},
    "pruner": {"type": "median", "startup_trials": 3},
    "trials": TRIALS,
    "parallel": 2,
}


def search(platform, username: str, say: Callable[[str], None]) -> None:
    """Run the sweep to its end, and print what it has found. Raises the platform's failure."""
    status, answer = platform.call("POST", f"users/{username}/sweeps", SWEEP)
    if status != 201 and "already" not in answer.get("msg", ""):  # the answer to a first POST may have been lost
        raise platform.failed(f"beginning the sweep: {status} {answer.get('msg', answer)}")
    say(f"  see {platform.url}/sweeps/{SWEEP['name']}")
    end, told = time.monotonic() + PATIENCE_S, set()
    while True:
        sweep = platform.must("GET", f"users/{username}/sweeps/{SWEEP['name']}")
        tell(platform, username, told, say)
        if sweep["state"] != "running":
            break
        if time.monotonic() > end:
            raise platform.failed(f"the sweep has not ended: {sweep['counts']}")
        time.sleep(1)
    if sweep["state"] != "finished" or not sweep["best"]:
        raise platform.failed(f"the sweep is {sweep['state']}: {sweep['reason']}")
    if sum(sweep["counts"].values()) != TRIALS:
        raise platform.failed(f"the sweep has {sweep['counts']}, not {TRIALS} trials")
    best = sweep["best"][0]
    say(f"  the best of {TRIALS}: lr {best['params']['lr']:.5f}, accuracy {best['values'][0]:.3f}")


def tell(platform, username: str, told: set, say: Callable[[str], None]) -> None:
    """Print the trials that have ended since the last look."""
    trials = platform.must("GET", f"users/{username}/sweeps/{SWEEP['name']}/trials")
    for trial in sorted(trials, key=lambda trial: trial["number"]):
        if trial["ended"] and trial["number"] not in told:
            told.add(trial["number"])
            reached = f"accuracy {trial['values'][0]:.3f}" if trial["values"] else trial["reason"]
            say(f"  trial {trial['number']}: lr {trial['params']['lr']:.5f}, {trial['state']}, {reached}")
