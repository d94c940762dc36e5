"""Migrations are only added, never rewritten: databases that were made by them exist."""

from __future__ import annotations

import hashlib
from pathlib import Path

from django.conf import settings

ROOT = Path(settings.BASE_DIR)
PUBLISHED = Path(__file__).with_name("migrations.sha256")


def present() -> dict[str, str]:
    """Return the SHA-256 of each migration of the product by its path below the root of the repository."""
    paths = sorted(ROOT.glob("*/migrations/0*.py"))
    return {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_published_migrations_are_unchanged_and_new_ones_are_recorded():
    recorded = {path: digest for digest, path in map(str.split, PUBLISHED.read_text().splitlines())}
    migrations = present()
    changed = [path for path, digest in recorded.items() if migrations.get(path) != digest]
    assert not changed, "published migrations are not changed or removed: add another one"
    new = " ".join(sorted(set(migrations) - set(recorded)))
    assert not new, f"record what is new: sha256sum {new} >> {PUBLISHED.relative_to(ROOT)}"
