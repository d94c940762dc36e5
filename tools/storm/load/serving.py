"""Models that are created, checked and deleted; one application that is called all the time."""

from __future__ import annotations

import json

from .actor import Actor

PREDICTOR = b"""
class Predictor:
    inputs = [{"name": "x", "datatype": "FP64", "shape": [-1]}]
    outputs = [{"name": "sum", "datatype": "FP64", "shape": [1]}]

    def predict(self, inputs):
        return [{"name": "sum", "datatype": "FP64", "shape": [1], "data": [sum(inputs[0]["data"])]}]
"""
STEADY = ("ready", "error")
EXPECTED = {404, 401}  # while it is not deployed; 5xx is no answer


class Models(Actor):
    """Creates models from a file of `.home`; deletes some."""

    pace = 8.0

    def prepare(self) -> None:
        self.source("good", PREDICTOR)
        self.source("bad", b"this is no Python\n")
        self.names: list[str] = []

    def source(self, name: str, data: bytes) -> None:
        url = f"/data/{self.user}/.home/models/{name}/predictor.py"
        answer = self.caller.until_known(lambda: self.caller.ask("PUT", url, data))
        if not answer.ok:
            self.odd("upload a predictor", answer)

    def act(self) -> None:
        steady = [name for name in self.names if (self.get(f"models/{name}") or {}).get("state") in STEADY]
        if len(steady) > 2 and self.random.random() < 0.5:
            self.delete(self.random.choice(steady))
        elif len(self.names) - len(steady) < 2:
            self.create()

    def create(self) -> None:
        name, source = self.new_name("m"), self.random.choice(["good", "good", "bad"])
        answer = self.post("models", {"name": name, "src": f"home/models/{source}"})
        if answer.known and not answer.ok:
            return self.odd(f"create {name}", answer)
        self.note("model", answer.known, name=name, state="ready" if source == "good" else "error")
        if answer.known:
            self.names.append(name)
        return None

    def delete(self, name: str) -> None:
        answer = self.erase("models", name)
        if answer.known and not answer.ok:
            return self.odd(f"delete {name}", answer)
        self.names.remove(name)
        return self.note("model", answer.known, name=name, state="gone")


class Calls(Actor):
    """Deploys an application and calls it all the time: a right answer, or none."""

    pace = 0.7

    def prepare(self) -> None:
        url = f"/data/{self.user}/.home/models/sum/predictor.py"
        self.caller.until_known(lambda: self.caller.ask("PUT", url, PREDICTOR))
        self.until("models/sum", lambda: self.post("models", {"name": "sum", "src": "home/models/sum"}))
        body = {"name": "sum", "model_name": "sum", "cpu": 0.1, "ram": 200}
        self.until("apps/sum", lambda: self.post("apps", body))
        self.note("application", name="sum")
        self.gateway = self.world.caller(self.caller.token, port=2)
        self.answered = 0

    def until(self, path: str, create) -> None:
        """Create the object and wait until it is ready."""
        create()
        while (self.get(path) or {}).get("state") != "ready":
            self.world.over.wait(0.3)

    def act(self) -> None:
        numbers = [self.random.randrange(100) for _ in range(5)]
        answer = self.gateway.ask("POST", f"/{self.user}/sum/predict", json.dumps({"x": numbers}).encode())
        if answer.ok:
            self.answered += 1
            if answer.json() != {"sum": [float(sum(numbers))]}:
                self.odd(f"the sum of {numbers}", answer)
        elif answer.known:
            self.odd("call the application", answer)

    def finish(self) -> None:
        self.note("calls", answered=self.answered)
        self.gateway.close()
