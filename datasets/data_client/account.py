"""Which platform, which user, which token: options, environment, the saved login, or a question. Used by cli.py."""

from __future__ import annotations

import getpass
import json
import os
import sys
import tempfile
from pathlib import Path

from .errors import LOCAL, LOGIN, Failure
from .service import Platform

DEFAULT_URL = "http://127.0.0.1:30001"


def saved_path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "mlp" / "login.json"


def saved() -> dict:
    """{"last": url, "logins": {url: {"user", "token"}}}; a file that is missing or spoilt counts as none."""
    try:
        found = json.loads(saved_path().read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("logins"), dict):
            return found
    except (OSError, ValueError):
        pass  # asked anew then
    return {"last": "", "logins": {}}


def save(url: str, user: str, token: str) -> Path:
    """Keeps the login for this user alone (mode 600), written whole or not at all."""
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
    return (options.url or os.environ.get("MLP_URL") or saved().get("last") or DEFAULT_URL).rstrip("/")


def enter(platform: Platform, options) -> None:
    """Authenticates by --token, MLP_TOKEN, the saved login, or by asking, in this order."""
    user = options.user or os.environ.get("MLP_USER") or ""
    token = options.token or os.environ.get("MLP_TOKEN") or ""
    if not token:
        kept = saved()["logins"].get(platform.web.url, {})
        if kept.get("token") and user in ("", kept.get("user")):
            token = kept["token"]
    if not token:
        if not sys.stdin.isatty():
            raise Failure(LOGIN, "not logged in: give --token or MLP_TOKEN, or run: data_client.pyz login")
        user, token = ask(platform, user)
        save(platform.web.url, user, token)
    # whose data: --user, which only staff may set to somebody else; by default the token's own
    platform.user = user
    if not all(33 <= ord(char) < 127 for char in token):
        raise Failure(LOGIN, "the token is not one: it has spaces or unusual characters")
    platform.authenticate(token)


def ask(platform: Platform, user: str):
    """Asks for what is missing, (user, token). The password is never kept; without a terminal it is read as a line."""
    try:
        if sys.stdin.isatty():
            user = user or input("user: ").strip()
            password = getpass.getpass(f"password of {user} at {platform.web.url}: ")
        else:
            user = user or sys.stdin.readline().strip()
            password = sys.stdin.readline().rstrip("\n")
    except EOFError:
        raise Failure(LOGIN, "no password given")
    if not user or not password:
        raise Failure(LOGIN, "no user or no password given")
    try:
        return user, platform.token_for(user, password)
    except Failure as failure:
        raise Failure(LOGIN if failure.code == 4 else failure.code, failure.line)
