"""Files by WebDAV in `.home`, and datasets from their creation to their deletion."""

from __future__ import annotations

import hashlib
import time

from ..client import PATIENCE_S
from .actor import Actor

PART = 40_000


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class Home(Actor):
    """Puts, overwrites, moves, copies and deletes files of `.home`, which accepts that at any time."""

    pace = 0.8

    def prepare(self) -> None:
        self.files: dict[str, str] = {}  # those with a known content

    def act(self) -> None:
        verbs = [self.create, self.create, self.overwrite, self.delete, self.move, self.copy]
        verb = self.random.choice(verbs)
        if verb is not self.create and not self.files:
            verb = self.create
        verb()

    def path(self, name: str) -> str:
        return f"/data/{self.user}/.home/{name}"

    def some(self) -> str:
        return self.random.choice(sorted(self.files))

    def create(self) -> None:
        folder = self.random.choice(["", "a/", "a/b/", "c/"])
        self.put(folder + self.new_name("f") + ".bin")

    def overwrite(self) -> None:
        self.put(self.some())

    def put(self, name: str) -> None:
        data = self.bytes()
        answer = self.caller.ask("PUT", self.path(name), data)
        self.done(answer, "put", {name: sha(data)})

    def delete(self) -> None:
        name = self.some()
        self.done(self.caller.ask("DELETE", self.path(name)), "delete", {name: None})

    def move(self) -> None:
        old, new = self.some(), self.new_name("m") + ".bin"
        answer = self.caller.ask("MOVE", self.path(old), Destination=self.path(new))
        self.done(answer, "move", {new: self.files[old], old: None})

    def copy(self) -> None:
        old, new = self.some(), self.new_name("k") + ".bin"
        answer = self.caller.ask("COPY", self.path(old), Destination=self.path(new))
        self.done(answer, "copy", {new: self.files[old]})

    def done(self, answer, verb: str, contents: dict[str, str | None]) -> None:
        """Record what the files have now; files whose fate is unknown are not touched again."""
        if answer.known and not answer.ok:
            return self.odd(f"{verb} {' '.join(contents)}", answer)
        for name, content in contents.items():
            self.note("file", answer.known, path=f".home/{name}", sha=content)
            self.files.pop(name, None)
            if answer.known and content is not None:
                self.files[name] = content
        return None


class Datasets(Actor):
    """Makes datasets of a few files, some of them in parts, reports them ready, and deletes some later.

    Until a dataset is ready each step may be repeated: the same bytes at the same place.
    """

    pace = 2.0

    def prepare(self) -> None:
        self.ready: list[str] = []

    def act(self) -> None:
        if len(self.ready) > 3 and self.random.random() < 0.4:
            self.delete(self.ready.pop(self.random.randrange(len(self.ready))))
        else:
            self.make()

    def make(self) -> None:
        name = self.new_name("d")
        files = {f"{self.random.choice(['', 'x/', 'x/y/'])}{number}": self.bytes() for number in range(4)}
        files["large"] = self.random.randbytes(self.random.randrange(PART, 4 * PART))
        body = {"name": name, "size": sum(map(len, files.values()))}
        answer = self.post("datasets", body)
        if not answer.known and self.get(f"datasets/{name}") is None:
            return self.note("dataset", False, name=name, state="creating")  # it may still come, and is ended then
        if answer.known and not answer.ok:
            return self.odd(f"create {name}", answer)
        self.note("dataset", name=name, state="creating")
        for path, data in files.items():
            if not self.upload(name, path, data):
                return None
        report = {"state": "ready", "progress": 100}
        url = f"users/{self.user}/datasets/{name}:heartbeat"
        answer = self.caller.until_known(lambda: self.caller.call("PUT", url, report))
        if not answer.ok and (self.get(f"datasets/{name}") or {}).get("state") != "ready":  # else said twice
            return self.odd(f"report {name} ready", answer)
        self.note("dataset", name=name, state="ready")
        self.ready.append(name)
        return None

    def upload(self, name: str, path: str, data: bytes) -> bool:
        url = f"/data/{self.user}/{name}/{path}"
        if path == "large":
            answer = self.in_parts(url, data)
        else:
            answer = self.caller.until_known(lambda: self.caller.ask("PUT", url, data))
        if not answer.ok:
            self.odd(f"upload {name}/{path}", answer)
            return False
        self.note("file", path=f"{name}/{path}", sha=sha(data))
        return True

    def in_parts(self, url: str, data: bytes):
        """Send a file in parts; after a lost answer from the beginning again, which starts it over.

        Goes on for longer than any server is stopped, as the other callers do.
        """
        end = time.monotonic() + PATIENCE_S
        while True:
            for first in range(0, len(data), PART):
                piece = data[first : first + PART]
                span = f"bytes {first}-{first + len(piece) - 1}/{len(data)}"
                answer = self.caller.ask("PUT", url, piece, Content_Range=span)
                if not answer.ok:
                    break
            if answer.ok or answer.status not in (0, 409) or time.monotonic() > end:
                break
            self.world.over.wait(0.5)
        return answer

    def delete(self, name: str) -> None:
        answer = self.erase("datasets", name)
        if answer.known and not answer.ok:
            return self.odd(f"delete {name}", answer)
        return self.note("dataset", answer.known, name=name, state="gone")
