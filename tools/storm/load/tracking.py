"""MLflow clients that log points of runs of their own, all at once."""

from __future__ import annotations

import json
import time

from ..client import Answer
from .actor import Actor

API = "/mlflow/api/2.0/mlflow"
KEYS = ("loss", "val/loss")
POINTS = 6  # of a batch


class Tracking(Actor):
    """Logs batches and single points. One without an answer is sent again as it was, as MLflow's clients do."""

    pace = 0.5

    def prepare(self) -> None:
        answer = self.send("runs/create", {"experiment_id": "0", "run_name": self.name})
        self.run_id = answer.json()["run"]["info"]["run_id"]
        self.step = 0

    def send(self, route: str, body: dict) -> Answer:
        data = json.dumps(body).encode()
        return self.caller.until_known(
            lambda: self.caller.ask("POST", f"{API}/{route}", data, Content_Type="application/json")
        )

    def act(self) -> None:
        single, at = self.random.random() < 0.3, int(time.time() * 1000)
        points = []
        for _ in range(1 if single else POINTS):
            self.step += 1
            key = self.random.choice(KEYS)
            points.append({"key": key, "value": self.random.random(), "timestamp": at, "step": self.step})
        if single:
            answer = self.send("runs/log-metric", {"run_id": self.run_id, **points[0]})
        else:
            answer = self.send("runs/log-batch", {"run_id": self.run_id, "metrics": points})
        if answer.known and not answer.ok:
            self.odd("log points", answer)
        rows = [[point["key"], point["step"], point["value"]] for point in points]
        self.note("points", answer.ok, run=self.run_id, points=rows)

    def finish(self) -> None:
        answer = self.send("runs/update", {"run_id": self.run_id, "status": "FINISHED"})
        if not answer.ok:
            self.odd("end a run", answer)
