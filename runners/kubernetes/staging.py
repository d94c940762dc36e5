"""Makes the files of a run ready for its pod: mounts as the API takes them, copies of what lies outside the shared
storage, and owners that the pod's user can work with. Called by `runner` before a run is created.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from pathlib import Path

from runners.base import RunSpec

from . import objects
from .config import ClusterConfig

LARGEST_COPY = 64 << 20


def mounts(spec: RunSpec, config: ClusterConfig) -> list[dict]:
    """A user's run sees its workspace and its mounts; the platform's own program the whole storage, where it lies."""
    if spec.owner is None:
        return [objects.mount(config.storage_root, str(config.storage_root), False, config)]
    found = [objects.mount(spec.cwd, objects.WORKSPACE, False, config)]
    for each in spec.mounts:
        source = shared(Path(each.source), config)
        found.append(objects.mount(source, each.target, each.read_only, config))
    return found


def shared(source: Path, config: ClusterConfig) -> Path:
    """The source itself where it lies in the shared storage; else (the platform's own code) a copy there, named after
    its content, so that it is made once for each version.
    """
    if source.is_relative_to(config.storage_root):
        return source
    files = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
    files = [path for path in files if "__pycache__" not in path.parts]
    if sum(path.stat().st_size for path in files) > LARGEST_COPY:
        raise ValueError(f"mount: {source} is too large to be copied into the storage")
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


def hand_over(spec: RunSpec, config: ClusterConfig) -> None:
    """Gives the working folder to the user that the run will be. Only root can, and only root needs to: else a run is
    the user that the platform is.
    """
    if os.geteuid() or not spec.cwd.is_dir():
        return
    uid, gid = config.user_of(spec.owner)
    for folder, _, files in os.walk(spec.cwd):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            os.chown(path, uid, gid, follow_symlinks=False)
