"""Sweeps, one after the other: each trial is a job of the storm's script."""

from __future__ import annotations

import time

from .actor import Actor
from .jobs import RETRIES, SCRIPT

TRIALS = 6
ROWS = 4
WAIT_S = 3.0


class Sweeps(Actor):
    """Begins a sweep, waits for its end, begins the next. At the end of the storm the last one may still run."""

    pace = 2.5
    trials = TRIALS

    def prepare(self) -> None:
        put = self.caller.until_known(lambda: self.caller.ask("PUT", f"/data/{self.user}/.home/storm.py", SCRIPT))
        if not put.ok:
            self.odd("upload the script", put)
        self.name = ""
        self.looked = 0.0

    def act(self) -> None:
        if self.name and time.monotonic() - self.looked < WAIT_S:
            return
        self.looked = time.monotonic()
        row = self.get(f"sweeps/{self.name}") if self.name else None
        if row is None or row["state"] in ("finished", "error"):
            self.begin()

    def begin(self) -> None:
        name = self.new_name("s")
        job = {"entry": "storm.py", "args": ["http", str(ROWS), "0.2", "0", "0"], "retries": RETRIES}
        body = {
            "name": name,
            "job": job | {"cpu": 0.1, "ram": 100},
            "space": {"LR": {"type": "float", "low": 0.001, "high": 1, "log": True}, "KIND": {"choices": ["a", "b"]}},
            "pass_as": "environment",
            "objective": {"metric": "loss", "direction": "minimize"},
            "trials": self.trials,
            "parallel": 3,
        }
        answer = self.post("sweeps", body)
        if answer.known and not answer.ok:
            return self.odd(f"begin {name}", answer)
        self.note("sweep", answer.known, name=name, trials=self.trials)
        self.name = name
        return None
