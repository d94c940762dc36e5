"""`script put|get|list|delete`: the user's `.home`, where jobs find scripts and initial models. Called by cli.py."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

from .download import Download
from .errors import LOCAL, REFUSED, USAGE, Failure
from .progress import Progress
from .scan import scan
from .service import HOME, Platform
from .upload import Upload

ENTRY = re.compile(r"[A-Za-z0-9._/-]{1,200}")


def put(platform: Platform, options, say) -> dict:
    """Upload a script; return what --json prints."""
    name = _checked(options.name or os.path.basename(options.file))
    if not os.path.isfile(options.file):
        what = "not a file" if os.path.exists(options.file) else "no such file"
        raise Failure(LOCAL, f"{options.file}: {what}")
    local = scan(options.file, True, say)[0]
    local.path = name
    if not ENTRY.fullmatch(name):
        say(f"warning: jobs cannot use the name {name} (allowed: A-Z a-z 0-9 . _ / -)")
    with Progress("uploading", local.size, 1, options.quiet) as progress:
        platform.web.note = progress.say
        Upload(platform, HOME, {}, progress, False).upload_file(local)
    return {"script": name, "bytes": local.size}


def get(platform: Platform, options, say):
    """Download a script next to its target and rename it, so the target is complete or unchanged."""
    name = _checked(options.name)
    remote = platform.file(HOME, name)
    if remote is None:
        raise Failure(REFUSED, f"script {name} not found")
    target = os.path.join(options.file, os.path.basename(name)) if os.path.isdir(options.file) else options.file
    beside = None if target == "-" else os.path.dirname(os.path.abspath(target))
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix=".mlp-", dir=beside)
        with Progress("downloading", remote.size, 1, options.quiet) as progress:
            platform.web.note = progress.say
            Download(platform, HOME, Path(folder), Path(folder), progress).fetch(
                remote, Path(folder) / "file", Path(folder) / "draft"
            )
        if target == "-":
            with open(os.path.join(folder, "file"), "rb") as file:
                shutil.copyfileobj(file, sys.stdout.buffer)
            return None
        os.replace(os.path.join(folder, "file"), target)
    except OSError as problem:
        raise Failure(LOCAL, f"{target}: {problem.strerror}")
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    return {"script": name, "bytes": remote.size, "file": target}


def list_scripts(platform: Platform, options, say) -> list:
    """Return the scripts, sorted by path."""
    remotes = sorted(platform.files(HOME).values(), key=lambda remote: remote.path)
    return [{"path": remote.path, "size": remote.size, "modified": remote.modified} for remote in remotes]


def delete(platform: Platform, options, say) -> dict:
    """Delete a script; return what --json prints."""
    name = _checked(options.name)
    if platform.file(HOME, name) is None:
        raise Failure(REFUSED, f"script {name} not found")
    platform.remove(HOME, name)
    return {"script": name, "deleted": True}


def _checked(name: str) -> str:
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts:
        raise Failure(USAGE, f"NAME must be a relative path without '..', '.' or empty parts, not '{name}'")
    return name
