"""Environment variables whose names look secret, and what stands before the host of an address: they are shown only in
the owner's form. Commands of processes have the same as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SECRET = re.compile(r"pass|secret|token|credential|(^|_)(key|pwd|auth|dsn|cookie)(_|$)|api_?key|private", re.IGNORECASE)
HIDDEN = "••••••"
CREDENTIALS = re.compile(r"(?<=://)(?!git@)[^\s/@]+(?=@)")


def masked(env: dict[str, str]) -> dict[str, str]:
    """Return the variables; the values of names that look secret are hidden."""
    return {name: HIDDEN if SECRET.search(name) and value else value for name, value in env.items()}


def without_credentials(text: str) -> str:
    """Return the text; users, passwords and tokens in addresses are hidden."""
    return CREDENTIALS.sub(HIDDEN, text)


# --- commands ---------------------------------------------------------------------------------------------------------
OF_A_TEXT = re.compile(r"tokeni[sz]|tokens|bypass|passes", re.IGNORECASE)  # names of arguments that are no secrets
NUMBER = re.compile(r"[+-]?\d{1,7}(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)
# Tokens of the platform and of others by their form, and what follows "Bearer".
KNOWN = re.compile(
    r"mlp_[a-z]\w*_[\w-]{16,}|\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA)[\w-]{16,}"
    r"|(?<=Bearer )\S+|(?<=Basic )\S{8,}"
)
SPACE = re.compile(r"\s")
WORDS = re.compile(r"""((?:[^\s"']|"[^"]*"|'[^']*')+|["'])""")  # of a shell: quoted text is a part of its word
QUOTED = re.compile(r"""(["'])((?:(?!\1).)*)\1""", re.DOTALL)
DEEPEST = 3  # commands within commands that are looked into
LEAST = 6  # characters of a secret value that is looked for in a command: shorter ones are in ordinary words


def secrets_in(env: dict[str, str]) -> list[str]:
    """Return the values of variables whose names look secret, the longest first."""
    values = {str(value) for name, value in env.items() if SECRET.search(name) and len(str(value)) >= LEAST}
    return sorted(values, key=len, reverse=True)


def command(words: Iterable[str], secrets: Iterable[str] = ()) -> list[str]:
    """Return the words of a command; what looks secret is hidden: `--password x`, `key=x`, tokens, and `secrets`."""
    plain = []
    for word in words:
        for secret in secrets:
            word = word.replace(secret, HIDDEN)
        plain.append(without_credentials(KNOWN.sub(HIDDEN, word)))
    return _arguments(plain, DEEPEST)


def _arguments(words: list[str], deeper: int) -> list[str]:
    """Return the words without the values of arguments whose names look secret; so deep in commands of commands."""
    shown, follows = [], False
    for word in words:
        name, equals, value = word.partition("=")
        secret = _names_secret(name)
        if follows and not word.startswith("-"):
            shown.append(_hidden(word))
        elif equals and secret and not SPACE.search(name):
            shown.append(f"{name}={_hidden(value)}")
        else:
            shown.append(_inside(word, deeper - 1) if deeper and SPACE.search(word) else word)
        follows = word.startswith("-") and not equals and secret
    return shown


def _inside(text: str, deeper: int) -> str:
    """Return the same of a word that is a command of its own, as that of `sh -c`, with or without quotes."""
    if quoted := QUOTED.fullmatch(text):
        return f"{quoted[1]}{_inside(quoted[2], deeper)}{quoted[1]}"
    parts = WORDS.split(text)  # every second one is a word, the others are what is between them
    parts[1::2] = _arguments(parts[1::2], deeper)
    return "".join(parts)


def _names_secret(name: str) -> bool:
    return bool(SECRET.search(OF_A_TEXT.sub("", re.sub(r"\W+", "_", name.lstrip("-+")))))


def _hidden(value: str) -> str:
    """Return the value of an argument whose name looks secret: numbers such as of `--max-pass 3` are none."""
    return value if not value or NUMBER.fullmatch(value) else HIDDEN
