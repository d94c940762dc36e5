"""The files of a run, prepared for its pod: mounts, copies of files outside the shared storage, and file owners.

Called by `runner` before a run is created.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from kernel.messages import Message, under
from runners.base import RunSpec
from runners.shim import beneath

from . import objects
from .config import CLAIMS, ClusterConfig

LARGEST_COPY = 64 << 20


def mounts(spec: RunSpec, config: ClusterConfig) -> list[dict]:
    """Return the mounts: of a user's run the workspace and `spec.mounts`, of a platform program the whole storage."""
    if spec.owner is None:
        return [objects.mount(config.storage_root, str(config.storage_root), False, config)]
    result = [objects.mount(spec.cwd, objects.WORKSPACE, False, config)]
    for each in spec.mounts:
        source = shared(Path(each.source), config)
        result.append(objects.mount(source, each.target, each.read_only, config))
    return result


def shared(source: Path, config: ClusterConfig) -> Path:
    """Return the source if it is in the shared storage, else (the platform's own code) a copy there, whose folder is
    named by a hash of the content, so that each version is copied once. Raises ValueError when it is too large.
    """
    if source.is_relative_to(config.storage_root) or source.is_relative_to(CLAIMS):
        return source
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    files = [path for path in files if "__pycache__" not in path.parts]
    if sum(path.stat().st_size for path in files) > LARGEST_COPY:
        problem = Message("%(path)s is too large to be copied into the storage", path=source)
        raise ValueError(under("mount", problem))
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(source.parent)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    target = config.storage_root / "run" / "mounts" / digest.hexdigest()[:32] / source.name
    if not target.exists():
        draft = target.parent.with_name(f".{secrets.token_hex(6)}")
        for path in files:
            copy = draft / path.relative_to(source.parent)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        try:
            draft.rename(target.parent)
        except OSError:  # another process was first
            shutil.rmtree(draft, ignore_errors=True)
    return target


def chown_to_user(spec: RunSpec, config: ClusterConfig) -> None:
    """Give the working folder to the run's user, if the platform is root; else both have the same user.

    Another run may write there at this moment, as that of an application does while the next one starts.
    """
    if os.geteuid() or not spec.cwd.is_dir():
        return
    opened = beneath.reference(str(spec.cwd), str(config.storage_root))
    try:
        beneath.change(opened, beneath.Give(*config.user_of(spec.owner), everyones=True))
    finally:
        os.close(opened)
