"""A platform with two users, an attacker and a victim, and the attacker's programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import requests

from mlp.tests.patience import LIMIT_S
from supervision.tests.running import Platform
from supervision.tests.shared import Shared

PROGRAMS = Path(__file__).with_name("programs")
PASSWORD = "correct horse battery"
STEADY = {"finished", "error"}
SECRETS = ("secret-key", "admin-password", "nats-password", "valkey-password", "database-password", "nats-platform")
SECRETS += ("metrics-token",)


class Person:
    """A user of the platform, over HTTP, or over TLS whose certificates an authority in the file `ca` has signed."""

    def __init__(self, platform: Platform, name: str, ca: str = ""):
        self.platform, self.name = platform, name
        self.url = f"{'https' if ca else 'http'}://127.0.0.1:{platform.base + 1}"
        self.session = requests.Session()
        self.session.verify, self.session.trust_env = ca or True, False  # else REQUESTS_CA_BUNDLE replaces `ca`
        response = self.session.post(
            f"{self.url}/api/v1/users", json={"username": name, "password": PASSWORD}, timeout=LIMIT_S
        )
        assert response.status_code == 201, response.text
        token = self.session.get(f"{self.url}/api/v1/users/{name}/token", auth=(name, PASSWORD), timeout=LIMIT_S).json()
        self.token: str = token
        self.session.headers["Authorization"] = f"Bearer {token}"

    def call(self, method: str, path: str, body=None) -> requests.Response:
        address = f"{self.url}/api/v1/users/{self.name}/{path}"
        return self.session.request(method, address, json=body, timeout=LIMIT_S)

    def done(self, method: str, path: str, body=None):
        """Return the answer of a call that must succeed."""
        answer = self.call(method, path, body)
        assert answer.status_code in {200, 201}, answer.text
        return answer.json() if "json" in answer.headers["Content-Type"] else answer.text

    def upload(self, path: str, data: bytes) -> None:
        answer = self.session.put(f"{self.url}/data/{self.name}/.home/{path}", data=data, timeout=LIMIT_S)
        assert answer.status_code in {201, 204}, answer.text

    def store(self, name: str, markers: list[str], files: dict[str, bytes]) -> dict:
        """Create a model of evil.py, which the files load, and return its row once it is ready or in error."""
        programs = {
            f"{program}.py": (PROGRAMS / f"{program}.py").read_bytes() for program in ("evil", "hunt", "attempts")
        }
        for path, data in {**programs, "markers": "\n".join(markers).encode(), **files}.items():
            self.upload(f"{name}/{path}", data)
        self.done("post", "models", {"name": name, "src": f"home/{name}"})
        return self.settled(f"models/{name}")

    def settled(self, path: str) -> dict:
        """Return the row of a model or an application once it is ready or in error."""
        end = time.monotonic() + LIMIT_S
        while (row := self.done("get", path))["state"] == "creating":
            assert time.monotonic() < end, row
            time.sleep(0.1)
        return row

    def submit(self, program: str, *args: str, name: str = "", **fields) -> Job:
        """Start one of the programs as a job."""
        for file in (program, "attempts"):
            self.upload(f"{file}.py", (PROGRAMS / f"{file}.py").read_bytes())
        name = name or program
        order = {"name": name, "entry": f"{program}.py", "args": list(args), "cpu": 0.5, "ram": 200, **fields}
        self.done("post", "jobs", order)
        return Job(self, name)


class Job:
    """A job of one of them."""

    def __init__(self, owner: Person, name: str):
        self.owner, self.name = owner, name
        self.workspace = owner.platform.root / "jobs" / owner.name / name

    @property
    def row(self) -> dict:
        return self.owner.done("get", f"jobs/{self.name}")

    @property
    def log(self) -> str:
        return self.owner.done("get", f"jobs/{self.name}/log")

    @property
    def tries(self) -> dict[str, dict]:
        """What the program reported, by the name of the try."""
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith('{"try"')]
        return {line["try"]: line for line in lines}

    def says(self, words: str) -> Job:
        """Wait until the log contains the words."""
        return self.until(lambda: words in self.log)

    def ended(self) -> Job:
        return self.until(lambda: self.row["state"] in STEADY)

    def until(self, true) -> Job:
        end = time.monotonic() + LIMIT_S
        while not true():
            assert time.monotonic() < end, (self.row, self.log[-3000:])
            time.sleep(0.1)
        return self

    def cancel(self) -> Job:
        self.owner.done("put", f"jobs/{self.name}:cancel")
        return self.ended()

    def end(self) -> Job:
        """Cancel it, unless it has ended meanwhile."""
        answer = self.owner.call("put", f"jobs/{self.name}:cancel")
        assert answer.status_code in {200, 201} or "already ended" in answer.text, answer.text
        return self.ended()

    def broken_out(self) -> dict[str, str]:
        """Return the tries that worked, and are not only the proof that the program can tell."""
        tries = self.tries
        worked = [name for name, tried in tries.items() if name.startswith("control") and tried["worked"]]
        assert worked, self.log[-3000:]
        failed = [name for name, tried in tries.items() if name.startswith("control") and not tried["worked"]]
        assert failed == [], (failed, self.log)
        return {
            name: tried["words"] for name, tried in tries.items() if tried["worked"] and not name.startswith("control")
        }


class World:
    """The platform, with both users."""

    def __init__(self, platform: Shared, attacker: str = "attacker", victim: str = "victim"):
        self.platform = platform
        self.attacker, self.victim = Person(self.platform, attacker), Person(self.platform, victim)
        self.idle = self.in_use()

    def secrets(self) -> list[str]:
        """Return the platform's secrets, reversed: the program that looks for them must not be found itself."""
        texts = [
            (self.platform.root / name).read_text().strip() for name in SECRETS if (self.platform.root / name).exists()
        ]
        assert len(texts) >= 5
        return [text[::-1] for text in texts]

    def in_use(self) -> dict[str, float]:
        """Return the resources that the default tenant has given away."""
        tenant = self.attacker.session.get(f"{self.attacker.url}/api/v1/tenants/default", timeout=LIMIT_S).json()
        return {name: tenant[f"{name}_inuse"] for name in ("cpu", "ram")}

    def unharmed(self, job: str) -> None:
        """Assert that the victim can work: the platform is healthy, and a job of theirs runs to its end."""
        self.platform.wait_healthy()
        assert self.victim.submit("harmless", name=job).ended().row["state"] == "finished"

    def end(self) -> None:
        """Leave nothing of the two running."""
        for person in (self.attacker, self.victim):
            self.platform.leave(person.name, dict(person.session.headers))
