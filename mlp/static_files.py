"""The version of the static files: browsers keep each for a year, at an address that changes with any content."""

from __future__ import annotations

import hashlib
from importlib import metadata
from pathlib import Path

OURS = Path(__file__).resolve().parent / "static"
OTHERS = ("django", "django-unfold", "drf-spectacular-sidecar", "django-htmx")  # packages with files of their own


def version() -> str:
    """Return `v` and twelve hexadecimal digits, the same in each process of a release.

    It is a part of the address and not of each file's name, so that files name each other as they are stored.
    """
    digest = hashlib.sha256()
    for name in OTHERS:
        digest.update(f"{name} {metadata.version(name)}\n".encode())
    for path in sorted(path for path in OURS.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(OURS).as_posix()} {len(content)}\n".encode() + content)
    return f"v{digest.hexdigest()[:12]}"
