"""Looks for secrets in the files that Git tracks: `python tools/plain_secrets.py`; the test suite does so as well.

It knows the forms of this platform's own secrets and of those that are often committed by mistake. A line of a test
that must look like one says `not a secret`.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
EXCUSED = "not a secret"
LARGEST = 2 << 20
HASHES = {"requirements.lock", "requirements-runs.lock", "migrations.sha256"}
MADE_UP = BASE / "mlp" / "tests" / "upgrade"  # the data of a platform that was started for a test only
# The text before a pattern's first letter class is fixed, so that most lines are ruled out at once.
FORMS = {
    "a private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----",
    "a token of this platform": r"\bmlp_[usjna][0-9a-z]+_[A-Za-z0-9_-]{43}\b",
    "a seed of NATS": r"\bS[AUCNOX][A-Z2-7]{56}\b",
    "an AWS key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{40,})",
    "a GitLab token": r"\bglpat-[\w-]{20,}",
    "a PyPI token": r"\bpypi-AgEI[\w-]{50,}",
    "a Slack token": r"\bxox[abeoprs]-[\w-]{10,}",
    "a Google key": r"\bAIza[\w-]{35}\b",
    "a Stripe key": r"\b[rs]k_live_\w{16,}",
    "a key of OpenAI or Anthropic": r"\bsk-(?:ant-|proj-)?[\w-]{32,}",
    "a JSON web token": r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}",
    "a hash of a password": r"\b(?:pbkdf2_sha256\$\d+|argon2id?\$argon2)\$\S{20,}",
}
KNOWN = re.compile("|".join(f"(?P<form{number}>{form})" for number, form in enumerate(FORMS.values())))
NAMED = re.compile(
    r"""(?i)\b\w*(?:secret|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|auth_?token)\w*["']?\s*[:=]\s*"""
    r"""["']?(?P<value>[A-Za-z0-9+/_=-]{24,})(?![\w.(\[])"""
)
ENTROPY = 3.7  # bits a character: of random text of that length; names and sentences have less


def secrets_in(text: str) -> Iterator[tuple[int, str]]:
    """Return the number and the finding of each line that holds something like a secret, never the secret itself."""
    for number, line in enumerate(text.splitlines(), 1):
        if EXCUSED in line:
            continue
        if match := KNOWN.search(line):
            yield number, list(FORMS)[int(match.lastgroup.removeprefix("form"))]
        elif (match := NAMED.search(line)) and looks_random(match["value"]):
            yield number, "a random value with the name of a secret"


def looks_random(value: str) -> bool:
    counts = Counter(value).values()
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in counts)
    return entropy >= ENTROPY and any(char.isdigit() for char in value) and any(char.isalpha() for char in value)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=BASE, capture_output=True, text=True, check=True).stdout
    return [BASE / name for name in listed.split("\0") if name]


def findings(files: list[Path]) -> list[str]:
    """Return `file:line: what it looks like` for all of the files; binary and very large ones are left out."""
    problems = []
    for path in files:
        if path.name in HASHES or MADE_UP in path.parents or not path.is_file() or path.stat().st_size > LARGEST:
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            lines = secrets_in(data.decode("utf-8", "replace"))
            problems += [f"{path.relative_to(BASE)}:{number}: {what}" for number, what in lines]
    return problems


def main() -> int:
    problems = findings(tracked())
    print("\n".join(problems) or "no secrets found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
