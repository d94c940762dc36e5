"""A sweep's overhead for each trial, beside plain Optuna that calls the same script in processes of its own.

Both search the same space with the same sampler and as many processes at the same time. What a trial costs here beyond
that is its job: a row, a reservation, a sandbox, a recorder, stored metrics. 1,000 trials only when asked:
`python bench/sweeps.py 1000`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import instance
import optuna

TRIALS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
PARALLEL = 4
WAIT_S = 1800
SCRIPT = """
import sys, time
values = dict(argument.lstrip("-").split("=") for argument in sys.argv[1:])
time.sleep(0.01)
loss = (float(values["x"]) - 0.3) ** 2 + int(values["n"]) / 100
try:
    import mlp_report
    mlp_report.report(epoch=0, loss=loss)
except ImportError:
    print(loss)
"""


def on_the_platform(platform: instance.Instance) -> float:
    """Return the seconds from the POST to the sweep's end."""
    platform.script("work.py", SCRIPT)
    body = {
        "name": "bench",
        "job": {"entry": "work.py", "cpu": 0.1, "ram": 100},
        "space": {"x": {"type": "float", "low": 0, "high": 1}, "n": {"type": "int", "low": 1, "high": 9}},
        "objective": {"metric": "loss", "direction": "minimize"},
        "trials": TRIALS,
        "parallel": PARALLEL,
    }
    began = time.monotonic()
    platform.call("POST", "/users/bench/sweeps", body)
    row = platform.wait_state("sweeps/bench", "finished", WAIT_S)
    if row["counts"]["complete"] != TRIALS:
        raise SystemExit(f"not all trials are complete: {row['counts']}")
    return time.monotonic() - began


def by_optuna(folder: Path) -> float:
    """Return the seconds that Optuna needs for as many trials, each a process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    script = folder / "work.py"
    script.write_text(SCRIPT)
    study = optuna.create_study(storage=f"sqlite:///{folder}/study.db")

    def objective(trial: optuna.Trial) -> float:
        x, n = trial.suggest_float("x", 0, 1), trial.suggest_int("n", 1, 9)
        command = [sys.executable, str(script), f"--x={x}", f"--n={n}"]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    began = time.monotonic()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda _: study.optimize(objective, n_trials=1), range(TRIALS)))
    return time.monotonic() - began


def main() -> None:
    print(f"{TRIALS} trials of a script that works for 10 ms, {PARALLEL} at a time {instance.load()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = by_optuna(Path(folder))
    with instance.running() as platform:
        here = on_the_platform(platform)
    for name, spent in (("Optuna, processes", plain), ("a sweep, jobs", here)):
        print(f"  {name:18} {spent:7.1f} s   {1000 * spent / TRIALS:7.0f} ms a trial", flush=True)
    print(f"  more for each trial: {1000 * (here - plain) / TRIALS:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
