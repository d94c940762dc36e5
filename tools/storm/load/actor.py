"""What all actors of the load have in common. An actor is one thread that does one thing after the other."""

from __future__ import annotations

import json
import random
import string
import threading
import traceback
from dataclasses import dataclass, field

from ..client import Answer, Caller, Wrong, token_of
from ..ledger import Ledger

PASSWORD = "correct horse battery"
GOING = ("deleting", "gone")


@dataclass
class World:
    """What the actors share. `pace` is the seconds between two actions of an actor, in the mean."""

    base: int
    seed: int
    ledger: Ledger
    wrong: Wrong
    pace: float = 1.0
    over: threading.Event = field(default_factory=threading.Event)
    jobs: dict[str, str] = field(default_factory=dict)  # user > the name of the job that was created last
    tokens: dict[str, str] = field(default_factory=dict)  # of the actors; passwords are slow on purpose

    def caller(self, token: str = "", port: int = 1) -> Caller:
        return Caller(self.base, self.wrong, token, port)

    def register(self, user: str) -> str:
        """Register a user and return the token."""
        caller = self.caller()
        body = {"username": user, "password": PASSWORD}
        caller.until_known(lambda: caller.call("POST", "users", body))
        self.tokens[user] = token_of(caller, user, PASSWORD)
        return self.tokens[user]


class Actor(threading.Thread):
    """Repeats `act` until the storm is over, then calls `finish`. What it chooses comes from the seed alone."""

    pace = 1.0  # times the world's

    def __init__(self, world: World, user: str, token: str, place: int = 0):
        """Prepare the actor; `place` is its number among several of one kind and user."""
        super().__init__(name=f"{type(self).__name__} {user}{f' {place}' if place else ''}", daemon=True)
        self.world, self.user = world, user
        self.random = random.Random(f"{world.seed} {self.name}")
        self.caller = world.caller(token)
        self.number = 0
        self.prepare()

    def prepare(self) -> None:
        """Set what `act` needs."""

    def act(self) -> None:
        """Do one thing and write what was acknowledged into the ledger."""
        raise NotImplementedError

    def finish(self) -> None:
        """Complete what has been begun."""

    def run(self) -> None:
        try:
            while not self.world.over.wait(self.random.uniform(0.5, 1.5) * self.pace * self.world.pace):
                self.act()
            self.finish()
        except Exception:
            self.world.wrong.add(f"the load itself failed, {self.name}: {traceback.format_exc()}")
        finally:
            self.caller.close()

    def note(self, what: str, sure: bool = True, **facts) -> None:
        self.world.ledger.write(what, sure, user=self.user, **facts)

    def odd(self, words: str, answer) -> None:
        """Record an answer that nothing explains."""
        self.world.wrong.add(f"{self.name}: {words}: {answer.status} {answer.body[:300]!r}")

    def erase(self, kind: str, name: str) -> Answer:
        """Delete an object. nginx sends a DELETE again when the server died before its answer; what is then refused,
        because the first one was carried out, is a lost answer.
        """
        answer = self.caller.call("DELETE", f"users/{self.user}/{kind}/{name}")
        if answer.known and not answer.ok and (self.get(f"{kind}/{name}") or {}).get("state", "gone") in GOING:
            return Answer(0, answer.body)
        return answer

    def new_name(self, stem: str) -> str:
        """Return a name that was not used before, of letters only."""
        self.number += 1
        digits, number = "", self.number
        while number:
            number, digit = divmod(number, 26)
            digits = string.ascii_lowercase[digit] + digits
        return stem + digits

    def bytes(self, most: int = 60_000) -> bytes:
        """Return some content, small more often than large."""
        return self.random.randbytes(int(most ** self.random.random()))

    def post(self, path: str, body: dict):
        return self.caller.call("POST", f"users/{self.user}/{path}", body)

    def get(self, path: str) -> dict | None:
        """Return an object as soon as there is an answer, None when there is no such object."""
        answer = self.caller.until_known(lambda: self.caller.call("GET", f"users/{self.user}/{path}"))
        return json.loads(answer.body) if answer.ok else None
