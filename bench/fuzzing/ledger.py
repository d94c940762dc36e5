"""What was sent and what came back: counts of each operation's answers, and the answers outside the contract."""

from __future__ import annotations

import re
import shlex
import threading
from collections import Counter, defaultdict

SHOWN, LONGEST = 600, 4000  # characters of an answer, of a curl line
KIND = 100  # characters that tell one problem from another


class Ledger:
    """Counted by several threads. The same problem of the same operation is kept once, with how often it was seen."""

    def __init__(self, wanted: int):
        self.wanted = wanted
        self.answers: dict[str, Counter] = defaultdict(Counter)
        self.findings: dict[tuple[str, str], tuple[str, str]] = {}
        self.seen: Counter = Counter()
        self.lock = threading.Lock()

    @property
    def total(self) -> int:
        with self.lock:
            return sum(sum(counts.values()) for counts in self.answers.values())

    def stop(self) -> None:
        """End the fuzz early."""
        self.wanted = 0

    def count(self, operation: str, status: object) -> None:
        with self.lock:
            self.answers[operation][str(status)] += 1

    def find(self, operation: str, problem: str, curl: str, answer: str = "") -> None:
        """Keep an answer outside the contract, with the request as a curl line."""
        kind = operation, re.sub(r"\d+|['\"].*?['\"]", "#", problem)[:KIND]
        with self.lock:
            new = kind not in self.findings
            self.findings.setdefault(kind, (curl[:LONGEST], answer[:SHOWN]))
            self.seen[kind] += 1
        if new:
            print(f"  ! {operation}: {problem[:SHOWN]}\n    {curl[:SHOWN]}\n    {answer[:SHOWN]}", flush=True)

    def tell(self) -> None:
        """Print the counts of each operation and all findings."""
        for operation, counts in sorted(self.answers.items()):
            each = "  ".join(f"{status}: {count}" for status, count in sorted(counts.items()))
            print(f"  {operation:<64} {sum(counts.values()):>7}   {each}")
        for (operation, problem), (curl, answer) in self.findings.items():
            print(f"\n! {operation}: {problem} ({self.seen[operation, problem]} times)\n  {curl}\n  {answer}")
        print(f"\n{self.total} requests, {len(self.findings)} findings", flush=True)


def curl(method: str, url: str, headers: dict[str, str] | None = None, body: bytes = b"") -> str:
    """Return a request as a line for the shell; a body that is not text is piped from base64."""
    parts = ["curl", "-i", "-X", method, url]
    for name, value in (headers or {}).items():
        parts += ["-H", f"{name}: {value}"]
    if not body:
        return shlex.join(parts)
    return f"printf %b {shlex.quote(escaped(body))} | {shlex.join([*parts, '--data-binary', '@-'])}"


def escaped(data: bytes) -> str:
    """Return the bytes as printf's %b reads them."""
    return "".join(chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in data[: 4 * SHOWN])
