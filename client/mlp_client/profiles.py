"""Where the address and the token come from: options, the environment, a saved profile.

A profile's token is sent to the profile's own address only.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from .texts import tr
from .transfer.errors import LOCAL, LOGIN, USAGE, Failure
from .transfer.places import folder


class Where:
    """The platform and the account that a command uses."""

    def __init__(self, url: str, token: str, user: str, cacert: str, profile: str):
        self.url, self.token, self.user, self.cacert, self.profile = url, token, user, cacert, profile


def place() -> Path:
    """Return the file of the profiles. Raises Failure."""
    return folder("XDG_CONFIG_HOME", ".config") / "profiles.json"


def load() -> dict:
    """Return {"current": name, "profiles": {name: {url, user, token, cacert}}}. Raises Failure for a damaged file."""
    try:
        kept = json.loads(place().read_text(encoding="utf-8"))
    except (FileNotFoundError, Failure):  # Failure: without a home directory there are none
        return {"current": "default", "profiles": {}}
    except (OSError, ValueError) as problem:
        raise Failure(LOCAL, tr("{file} cannot be read: {problem}", file=place(), problem=problem))
    if not isinstance(kept, dict) or not isinstance(kept.get("profiles"), dict):
        raise Failure(LOCAL, tr("{file} cannot be read: {problem}", file=place(), problem="JSON"))
    return kept


def write(path: Path, kept: dict) -> None:
    """Write JSON that only this user can read, whole or not at all. Raises Failure."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, draft = tempfile.mkstemp(dir=str(path.parent))  # mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
        os.replace(draft, str(path))
    except OSError as problem:
        raise Failure(LOCAL, tr("{file} cannot be written: {problem}", file=path, problem=problem.strerror))


def save(name: str, url: str, user: str, token: str, cacert: str) -> None:
    """Save a profile and make it the current one. Raises Failure."""
    kept = load()
    kept["profiles"][name] = {"url": url, "user": user, "token": token, "cacert": cacert}
    kept["current"] = name
    write(place(), kept)


def forget(name: str) -> bool:
    """Remove a profile; return whether there was one. Raises Failure."""
    kept = load()
    if kept["profiles"].pop(name, None) is None:
        return False
    if kept.get("current") == name:
        kept["current"] = next(iter(kept["profiles"]), "default")
    write(place(), kept)
    return True


def chosen(options) -> str:
    """Return the name of the profile: --profile, MLP_PROFILE, or the one of the last login."""
    return options.profile or os.environ.get("MLP_PROFILE") or load().get("current") or "default"


def where(options) -> Where:
    """Return what to connect to: options, then MLP_URL (in a job MLP_API_URL), MLP_USER, MLP_TOKEN and MLP_CACERT, then
    the profile. Raises Failure.
    """
    environment, name = os.environ, chosen(options)
    kept = load()["profiles"].get(name)
    if kept is None and options.profile:
        raise Failure(USAGE, tr("there is no profile {name}; run: mlp login URL --profile {name}", name=name))
    kept = kept or {}
    url = options.url or environment.get("MLP_URL") or environment.get("MLP_API_URL") or ""
    if options.profile and not options.url:
        url = ""  # the profile was asked for, so it counts more than the environment
    url = (url or kept.get("url", "")).rstrip("/")
    ours = bool(url) and url == kept.get("url")
    token = options.token or ("" if options.profile and ours else environment.get("MLP_TOKEN", ""))
    token = token or (kept.get("token", "") if ours else "")
    if not url or not token:
        raise Failure(LOGIN, tr("not logged in; run: mlp login URL (or set MLP_URL and MLP_TOKEN)"))
    cacert = options.cacert or environment.get("MLP_CACERT") or (kept.get("cacert", "") if ours else "")
    user = options.user or (
        kept.get("user", "") if ours and token == kept.get("token") else environment.get("MLP_USER")
    )
    return Where(url, token, user or "", cacert, name)
