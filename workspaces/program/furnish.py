"""Puts what a workspace shows into its home: its output folder, its datasets, its model, and the job that it opens.
Runs in it.

What the user has changed or removed there stays as it is. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from pathlib import Path


def furnish(home: Path, variables: dict[str, str]) -> None:
    """Add to a home what the workspace shows; done again at each start, it adds what is new only."""
    home.mkdir(parents=True, exist_ok=True)
    _link(home / "output", variables.get("MLP_WORKSPACE", ""))
    datasets = variables.get("MLP_DATASETS", "")
    if datasets and os.path.isdir(datasets) and os.listdir(datasets):
        _link(home / "datasets", datasets)
    if model := variables.get("MLP_MODEL_NAME"):
        _link(home / f"model-{model}", variables["MLP_MODEL"])
    if job := variables.get("MLP_DEBUG_JOB"):
        place = home / f"job-{job}"
        if not place.exists():
            _open(place, variables)


def _link(path: Path, target: str) -> None:
    """Link to a folder, in place of a link that has led elsewhere."""
    if path.is_symlink() and os.readlink(path) != target:
        path.unlink()
    if target and not path.exists() and not path.is_symlink():
        path.symlink_to(target)


def _open(place: Path, variables: dict[str, str]) -> None:
    """Copy the code of a job, and write the command that repeats it."""
    draft = place.with_name(f".{place.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    with contextlib.suppress(shutil.Error):  # what cannot be read is left out
        shutil.copytree(variables["MLP_DEBUG_CODE"], draft / "code", symlinks=False, ignore_dangling_symlinks=True)
    for folder, _folders, files in os.walk(draft / "code"):
        for name in (".", *files):
            with contextlib.suppress(OSError):
                os.chmod(os.path.join(folder, name), 0o755 if name == "." else 0o644)
    _link(draft / "output", variables["MLP_DEBUG_OUTPUT"])
    arguments = [part for part in variables.get("MLP_DEBUG_ARGS", "").split("\n") if part]
    command = " ".join(shlex.quote(part) for part in (f"code/{variables['MLP_DEBUG_ENTRY']}", *arguments))
    script = draft / "run.sh"
    script.write_text(f'#!/bin/bash\n# Repeats the job. Its output is in output/; this writes to "$MLP_WORKSPACE".\n'
                      f'cd "$(dirname "$0")" && exec python -u {command}\n')  # fmt: skip
    script.chmod(0o755)
    draft.rename(place)
