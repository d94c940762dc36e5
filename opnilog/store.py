"""Versions of the model on disk: added atomically, verified before they serve, switched atomically.

    {folder}/v000001/{nulog_model_latest.pt, vocab.txt, manifest.json}
    {folder}/serving          the name of the version that serves
    {folder}/serving.12       that of the model 12: of one that is not the platform's, but a tenant's

Any number of processes may read while one adds or switches. Knows neither Django nor torch: what can be verified here
is that every file exists and is the one that the manifest describes (`files`: name to SHA-256, where it has them); that
the model loads and scores is verified by the trainer before it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from pathlib import Path

NAME = re.compile(r"v[0-9]{6,}")
MODEL, VOCAB, MANIFEST, SERVING = "nulog_model_latest.pt", "vocab.txt", "manifest.json", "serving"
POINTER = re.compile(r"serving(?:\.([1-9][0-9]*))?")
NEEDED = (MODEL, VOCAB, MANIFEST)
DRAFT, REMOVED = ".part", ".gone"  # ends of the names of what is being added or removed


class BadVersion(ValueError):
    """A version is missing or incomplete."""


class Versions:
    """The versions of all models, and which one of `model` serves: 0 is the platform's. No two have the same name."""

    def __init__(self, folder: Path, model: int = 0):
        self.folder, self.model = Path(folder), model

    def add(self, source: Path) -> str:
        """Copy a trained model in and return its version. Raises BadVersion when it is incomplete."""
        verify(Path(source))
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{secrets.token_hex(6)}{DRAFT}"
        try:
            shutil.copytree(source, draft)
            _sync(draft)
            while True:
                version = f"v{self._highest() + 1:06d}"
                try:
                    draft.rename(self.folder / version)
                except OSError:  # another process has just taken the name
                    if not (self.folder / version).exists():
                        raise
                    continue
                return version
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def all(self) -> list[str]:
        """Return every version, oldest first."""
        if not self.folder.is_dir():
            return []
        names = (path.name for path in self.folder.iterdir() if path.is_dir())
        return sorted((name for name in names if NAME.fullmatch(name)), key=_number)

    def serving(self) -> str | None:
        """Return the version that serves, None when there is none."""
        return self._named(self._pointer())

    def pointers(self) -> dict[int, str]:
        """Return the version that serves of each model that has one."""
        names = {path: POINTER.fullmatch(path.name) for path in self.folder.glob(f"{SERVING}*")}
        versions = {int(name[1] or 0): self._named(path) for path, name in names.items() if name}
        return {model: version for model, version in versions.items() if version}

    def _pointer(self) -> Path:
        return self.folder / (f"{SERVING}.{self.model}" if self.model else SERVING)

    def _named(self, pointer: Path) -> str | None:
        try:
            version = pointer.read_text().strip()
        except FileNotFoundError:
            return None
        return version if NAME.fullmatch(version) and (self.folder / version).is_dir() else None

    def serve(self, version: str | None) -> None:
        """Make the version the serving one; None for no model at all. Raises BadVersion."""
        if version is None:
            self._pointer().unlink(missing_ok=True)
            return
        verify(self.folder_of(version))
        draft = self.folder / f".{secrets.token_hex(6)}{DRAFT}"
        with draft.open("w") as file:
            file.write(version)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._pointer())

    def remove(self, version: str) -> None:
        """Remove a version. A missing one is no error. Raises BadVersion for the one that serves."""
        if version in self.pointers().values():
            raise BadVersion(f"{version} serves")
        if NAME.fullmatch(version) and (self.folder / version).is_dir():
            gone = self.folder / f".{secrets.token_hex(6)}{REMOVED}"
            with contextlib.suppress(FileNotFoundError):  # another process removes it, too
                (self.folder / version).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    def sweep(self, age_s: float) -> None:
        """Remove what killed processes have left half added or half removed: what has not changed for so long."""
        for path in self.folder.glob(".*"):
            if path.suffix in (DRAFT, REMOVED):
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_ctime > age_s:
                        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()

    def folder_of(self, version: str) -> Path:
        """Return the folder of the version's files. Raises BadVersion."""
        path = self.folder / version
        if not NAME.fullmatch(version) or not path.is_dir():
            raise BadVersion(f"there is no version {version}")
        return path

    def manifest(self, version: str) -> dict:
        return json.loads((self.folder_of(version) / MANIFEST).read_bytes())

    def _highest(self) -> int:
        """Return the highest number, never below the serving version's, so that a removed version's number is not
        reused meanwhile.
        """
        return max(map(_number, [*self.all(), *self.pointers().values()]), default=0)


def verify(path: Path) -> dict:
    """Return the manifest of a complete model. Raises BadVersion naming what is wrong."""
    for name in NEEDED:
        if not (path / name).is_file() or not (path / name).stat().st_size:
            raise BadVersion(f"{name}: missing or empty")
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except ValueError as problem:
        raise BadVersion(f"{MANIFEST}: not valid JSON") from problem
    if not isinstance(manifest, dict):
        raise BadVersion(f"{MANIFEST}: must be an object")
    for name, digest in (manifest.get("files") or {}).items():
        with (path / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise BadVersion(f"{name}: not the file that the manifest describes")
    return manifest


def _number(version: str) -> int:
    return int(version[1:])


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
