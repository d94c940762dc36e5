"""Where the address, the user and the token come from: options, environment, the saved login, a prompt. For cli.py."""

from __future__ import annotations

import getpass
import json
import os
import sys
import tempfile
from pathlib import Path

from .errors import LOCAL, LOGIN, Failure
from .places import folder
from .service import Platform

DEFAULT_URL = "http://127.0.0.1:30001"


def saved_path() -> Path:
    """Return where logins are saved. Raises Failure."""
    return folder("XDG_CONFIG_HOME", ".config") / "login.json"


def saved() -> dict:
    """Return {"last": url, "logins": {url: {"user", "token"}}}; without logins if the file is missing or damaged."""
    try:
        logins = json.loads(saved_path().read_text(encoding="utf-8"))
        if isinstance(logins, dict) and isinstance(logins.get("logins"), dict):
            return logins
    except (OSError, ValueError, Failure):
        pass  # the user is asked again
    return {"last": "", "logins": {}}


def save(url: str, user: str, token: str) -> Path:
    """Save the login, readable by this user only (mode 600); return the file. Raises Failure."""
    path, kept = saved_path(), saved()
    kept["last"], kept["logins"][url] = url, {"user": user, "token": token}
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, draft = tempfile.mkstemp(dir=str(path.parent))  # mode 600
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
        os.replace(draft, str(path))
    except OSError as problem:
        raise Failure(LOCAL, f"cannot save the login in {path}: {problem.strerror}")
    return path


def url_of(options) -> str:
    """Return the platform's address: --url, MLP_URL, the last login's, or the default."""
    return (options.url or os.environ.get("MLP_URL") or saved().get("last") or DEFAULT_URL).rstrip("/")


def enter(platform: Platform, options) -> None:
    """Authenticate by --token, MLP_TOKEN, the saved login or a prompt, in this order. Raises Failure."""
    user = options.user or os.environ.get("MLP_USER") or ""
    token = options.token or os.environ.get("MLP_TOKEN") or ""
    if not token:
        kept = saved()["logins"].get(platform.web.url, {})
        if kept.get("token") and user in ("", kept.get("user")):
            token = kept["token"]
    if not token:
        if not sys.stdin.isatty():
            raise Failure(LOGIN, "not logged in; run 'data_client.pyz login', or set --token or MLP_TOKEN")
        user, token = ask(platform, user)
        save(platform.web.url, user, token)
    # --user names another user's data, which only operators may use; the default is the token's own user
    platform.user = user
    if not all(33 <= ord(char) < 127 for char in token):
        raise Failure(LOGIN, "invalid token: it contains spaces or non-ASCII characters")
    platform.authenticate(token)


def ask(platform: Platform, user: str):
    """Prompt for user and password, and return (user, token). Without a terminal both are read as lines of input.

    The password is not saved. Raises Failure.
    """
    try:
        if sys.stdin.isatty():
            user = user or input("Username: ").strip()
            password = getpass.getpass(f"Password for {user} at {platform.web.url}: ")
        else:
            user = user or sys.stdin.readline().strip()
            password = sys.stdin.readline().rstrip("\n")
    except EOFError:
        raise Failure(LOGIN, "no password given")
    if not user or not password:
        raise Failure(LOGIN, "no username or no password given")
    try:
        return user, platform.token_for(user, password)
    except Failure as failure:
        raise Failure(LOGIN if failure.code == 4 else failure.code, failure.line)
