"""Jobs of several kinds, and websockets that follow their metrics."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

from ..client import follow
from .actor import Actor

SCRIPT = (Path(__file__).parent.parent / "script.py").read_bytes()
MAX_AT_ONCE = 4
RETRIES = 10
# Way, failing attempts, exit code, retries, workers; `{rows}` and `{pause}` are chosen by the seed.
KINDS = {
    "short": ("http", 0, 0, RETRIES, 1),
    "bus": ("nats", 0, 0, RETRIES, 1),
    "failing": ("http", 99, 3, 0, 1),
    "retrying": ("http", 1, 5, RETRIES, 1),
    "cancelled": ("http", 0, 0, 0, 1),
    "two": ("http", 0, 0, RETRIES, 2),
}


class Jobs(Actor):
    """Submits jobs, cancels those that are made for it, deletes some that have ended."""

    pace = 2.5

    def prepare(self) -> None:
        put = self.caller.until_known(lambda: self.caller.ask("PUT", f"/data/{self.user}/.home/storm.py", SCRIPT))
        if not put.ok:
            self.odd("upload the script", put)
        self.kinds = itertools.cycle(self.random.sample(sorted(KINDS), len(KINDS)))
        self.living: dict[str, float] = {}  # name > when a job of the kind `cancelled` is to be cancelled
        self.ended: list[str] = []

    def act(self) -> None:
        for name, when in list(self.living.items()):
            if time.monotonic() > when:
                self.cancel(name)
            row = self.get(f"jobs/{name}")
            if row is None or row["state"] in ("finished", "error"):
                del self.living[name]
                self.ended.append(name)
        if len(self.ended) > 5 and self.random.random() < 0.4:
            self.delete(self.ended.pop(self.random.randrange(len(self.ended))))
        elif len(self.living) < MAX_AT_ONCE:
            self.submit(next(self.kinds))

    def submit(self, kind: str) -> None:
        name = self.new_name("j")
        way, fails, code, retries, workers = KINDS[kind]
        rows, pause = (500, 0.5) if kind == "cancelled" else (self.random.randrange(4, 12), self.random.uniform(0.2, 1))
        args = [way, str(rows), f"{pause:.1f}", str(fails), str(code)]
        body = {"name": name, "entry": "storm.py", "args": args, "retries": retries, "workers": workers}
        answer = self.post("jobs", body | {"cpu": 0.1, "ram": 100})
        if answer.known and not answer.ok:
            return self.odd(f"submit {name}", answer)
        self.note("job", answer.known, name=name, kind=kind, rows=rows, workers=workers)
        if answer.known:
            self.living[name] = time.monotonic() + self.random.uniform(4, 10) if kind == "cancelled" else float("inf")
            self.world.jobs[self.user] = name
        return None

    def cancel(self, name: str) -> None:
        """Cancel a job, again and again until there is an answer; a second one finds it ended."""
        url = f"users/{self.user}/jobs/{name}:cancel"
        answer = self.caller.until_known(lambda: self.caller.call("PUT", url))
        self.note("cancelled", answer.known, name=name)

    def delete(self, name: str) -> None:
        answer = self.erase("jobs", name)
        if answer.known and not answer.ok:
            return self.odd(f"delete {name}", answer)
        return self.note("job deleted", answer.known, name=name)

    def finish(self) -> None:
        for name, when in self.living.items():
            if when != float("inf"):
                self.cancel(name)


class Watcher(Actor):
    """Follows the metrics of one job after the other until its websocket is closed normally."""

    pace = 1.0

    def act(self) -> None:
        name = self.world.jobs.pop(self.user, None)
        while name and not self.world.over.is_set():
            rows = follow(self.world.base, self.caller.token, self.user, name, self.world.over.is_set)
            if rows is not None:
                return self.note("seen", name=name, rows=[[row["epoch"], row["loss"]] for row in rows])
            if self.get(f"jobs/{name}") is None:
                return None  # deleted meanwhile
            self.world.over.wait(0.5)
        return None
