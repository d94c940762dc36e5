"""Secrets kept as files of mode 600 under the storage root. Used by settings and the supervisor."""

from __future__ import annotations

import os
import secrets as entropy
from pathlib import Path


def secret(root: Path, name: str, length: int = 40) -> str:
    """Return the secret in `{root}/{name}`, created on first use.

    The file is written whole under a temporary name and then linked into place, so two processes that start together
    agree on one value, and a kill in between leaves either nothing or a complete secret.
    """
    path = Path(root) / name
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{name}.{os.getpid()}.{entropy.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(entropy.token_urlsafe(length)[:length] + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first: its secret counts
    finally:
        draft.unlink()
    return path.read_text().strip()
