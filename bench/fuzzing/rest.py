"""Requests to /api/v1 from the platform's own OpenAPI schema: examples, boundaries, random values, chains by links.

Run as the administrator and as an ordinary user in turn, since each meets other refusals. All checks of schemathesis
are on but those that read 404, 405 or 400 (see checks.py).
"""

from __future__ import annotations

import random

import schemathesis
from instance import PASSWORD
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import Status as Outcome
from schemathesis.engine import events, from_schema

from fuzzing import checks, world  # noqa: F401 (the checks register themselves)
from fuzzing.ledger import Ledger
from fuzzing.world import World

WORKERS = 4
TIMEOUT_S = 30
# A slice: after it comes another user and another seed. Coverage asks the same in each, so it comes once for each user.
EXAMPLES, CHAINS, STEPS = 60, 150, 12
OFF = {
    "positive_data_acceptance": "every refusal is a 403; valid_data_acceptance reads the reason",
    "unsupported_method": "there is no 405; method_refusal checks",
    "ensure_resource_availability": "there is no 404, and what is created may be queued or deleted by another worker",
}
PROTECTED = {"admin", "bench", *world.USERS}
# Calls that end an account or its token, or change what all others need: sent for an object that nothing else uses.
ENDING = {"putUserDetail", "putUserTokenRotate"}
CAPACITY = {"putTenantDetail", "putLimitDetail", "deleteLimitDetail"}
RESERVING = {"putTryRequest"}
MAX = {"cpu": 1, "ram": 1024, "workers": 2, "gpu": 0}


class Rest:
    """The fuzz of the REST calls, until `ledger.wanted` requests have been sent."""

    def __init__(self, home: World, ledger: Ledger, seed: int):
        self.home, self.ledger, self.seed = home, ledger, seed
        self.raw = home.admin.call("GET", "/schema")
        self.random = random.Random(seed)

        @schemathesis.hook
        def before_call(context, case, kwargs):
            self._steer(case)

        @schemathesis.hook
        def after_call(context, case, response):
            if response.status_code == 201 and _id_of(case) == "postUserList":
                home.add(response.json()["username"])

    def run(self) -> None:
        turn = 0
        while self.ledger.total < self.ledger.wanted:
            user = ("admin", world.USERS[0])[turn % 2]
            phases = ("examples", "coverage", "fuzzing", "stateful") if turn < 2 else ("fuzzing", "stateful")
            print(f"  slice {turn + 1}: as {user}, {', '.join(phases)}; {self.ledger.total} so far", flush=True)
            self._slice(user, phases, self.seed + turn)
            turn += 1

    def _slice(self, user: str, phases: tuple[str, ...], seed: int) -> None:
        config = SchemathesisConfig.from_dict(self._settings(user, phases, seed))
        schema = schemathesis.openapi.from_dict(self.raw, config=config)
        stream = from_schema(schema).execute()
        for event in stream:
            if isinstance(event, events.ScenarioFinished):
                self._read(event)
            elif isinstance(event, events.NonFatalError | events.FatalError):
                self._fault(event)
            if self.ledger.total >= self.ledger.wanted:
                stream.stop()

    def _fault(self, event: events.NonFatalError | events.FatalError) -> None:
        problem = getattr(event, "value", None) or event.exception
        if isinstance(problem, SystemError):
            return  # of CPython 3.11: it miscounts its compiler's depth where threads compile; another slice follows
        self.ledger.find(getattr(event, "label", "engine"), type(problem).__name__, "", str(problem))

    def _settings(self, user: str, phases: tuple[str, ...], seed: int) -> dict:
        names = {"dictionary": "names", "probability": 0.6}
        return {
            "seed": seed,
            "base-url": f"http://127.0.0.1:{self.home.platform.port}",
            "headers": {"Authorization": f"Bearer {self.home.tokens[user]}"},
            "workers": WORKERS,
            "request-timeout": TIMEOUT_S,
            "continue-on-failure": True,
            "suppress-health-check": ["all"],
            "generation": {"max-examples": EXAMPLES, "no-shrink": True, "database": "none"},
            "phases": {
                **{phase: {"enabled": phase in phases} for phase in ("examples", "coverage", "fuzzing")},
                "stateful": {"generation": {"max-examples": CHAINS}, "max-steps": STEPS},
            },
            "checks": {name: {"enabled": False} for name in OFF},
            "dictionaries": {
                "users": {"values": [*world.USERS] if user == "admin" else [user]},
                "names": {"values": [*world.NAMES]},
                "tenants": {"values": ["default", world.SPARE]},
                "entries": {"values": [world.SCRIPT]},
                "sources": {"values": [f"home/{world.PREDICTOR}", f"jobs/{world.KEPT}", f"jobs/{world.KEPT}/out.txt"]},
                "files": {"values": ["out.txt"]},
                "passwords": {"values": [PASSWORD]},
            },
            "parameters": {
                "path.user": {"dictionary": "users", "probability": 0.9},
                "path.tenant": {"dictionary": "tenants", "probability": 0.8},
                "path.name": names,
                "path.path": {"dictionary": "files", "probability": 0.5},
                "body.model_name": names,
                "body.entry": {"dictionary": "entries", "probability": 0.8},
                "body.src": {"dictionary": "sources", "probability": 0.5},
                "body.tenant": {"dictionary": "tenants", "probability": 0.8},
                "body.password": {"dictionary": "passwords", "probability": 0.8},
                "body.datasets[*]": names,
            },
        }

    def _steer(self, case) -> None:
        """Keep a request from what would end the fuzz itself, or the machine; invalid ones stay as they are."""
        operation, path = _id_of(case), case.path_parameters
        if operation in ENDING and path.get("user") in PROTECTED:
            path["user"] = self.random.choice(self.home.registered or ["nobody"])
        if operation in CAPACITY and path.get("tenant") == "default":
            path["tenant"] = world.SPARE
        body = case.body if isinstance(case.body, dict) else {}
        if operation in RESERVING and body.get("tenant", "default") == "default":
            body["tenant"] = world.SPARE
        for name, most in MAX.items():
            if operation in {"postJobList", "postAppList"} and isinstance(body.get(name), int | float):
                body[name] = min(body[name], most)
        if operation.startswith(("getAppLog", "getJobLog")) and case.query:
            case.query.pop("follow", None)  # it lasts as long as the run

    def _read(self, event: events.ScenarioFinished) -> None:
        recorder = event.recorder
        for id, interaction in recorder.interactions.items():
            operation = recorder.cases[id].value.operation.label if id in recorder.cases else recorder.label
            response = interaction.response
            self.ledger.count(operation, response.status_code if response else "no answer")
        for id, results in recorder.checks.items():
            for check in results:
                if check.status == Outcome.FAILURE:
                    self._found(recorder, id, check)

    def _found(self, recorder, id: str, check) -> None:
        failure, response = check.failure_info.failure, recorder.find_response(case_id=id)
        if "Invalid component: positive test case" in failure.message:
            return  # `_steer` has changed the path, and its encoded form was taken for a wrong one
        answer = response.content.decode(errors="replace") if response is not None else ""
        label = recorder.cases[id].value.operation.label if id in recorder.cases else recorder.label
        if check.name == "use_after_free" and ('"state":"deleting"' in answer or "/{name}/" in label):
            return  # removed objects are shown until their files are gone, and so is what belongs to them
        first = failure.message.strip().split("\n\n")[0].replace("\n", " ")
        status = response.status_code if response is not None else "-"
        self.ledger.find(
            label, f"{check.name}: {failure.title}: {first}"[:300], check.failure_info.code_sample, f"{status} {answer}"
        )


def _id_of(case) -> str:
    return case.operation.definition.raw.get("operationId", "")
