"""Writes requirements.lock: requirements.txt with everything it depends on, each with the hashes of its files.

    make lock             keep the versions of the existing lock file that still fit
    make lock UPGRADE=1   take the newest versions of what requirements.txt does not pin itself

Needs uv on the PATH or in .venv (`pip install uv`). PyTorch is left out: it has other files, and other hashes, for each
build (CUDA versions, CPU only), so it is installed before the rest, in the build that fits the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent
LOCK = BASE / "requirements.lock"
UNLOCKED = "torch=="
OLDEST_PYTHON = "3.11"
HEADER = """\
# Every package that the platform runs with, except PyTorch, with the hashes of its files. Written by `make lock`.
# Install PyTorch in the build that fits the machine first, then: pip install --require-hashes -r requirements.lock
"""


def compile_lock(uv: list[str], upgrade: bool) -> str:
    """Return the lock file's content. Raises CalledProcessError when uv finds no versions that fit."""
    lines = (BASE / "requirements.txt").read_text().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "requirements.in"), Path(folder, "requirements.lock")
        source.write_text("\n".join(line for line in lines if not line.startswith(("#", UNLOCKED))) + "\n")
        if LOCK.exists():  # uv keeps the versions that it finds in its output file
            shutil.copy(LOCK, result)
        options = ["--universal", "--python-version", OLDEST_PYTHON, "--generate-hashes", "--no-header"]
        options += ["--no-emit-index-url", "--no-annotate", "--quiet", *(["--upgrade"] if upgrade else [])]
        subprocess.run([*uv, "pip", "compile", source, *options, "--output-file", result], check=True)
        return HEADER + result.read_text()


def main() -> int:
    program = shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)
    if program is None:
        print("make lock: uv is missing; install it with: .venv/bin/pip install uv", file=sys.stderr)
        return 1
    LOCK.write_text(compile_lock([program], bool(os.environ.get("UPGRADE"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
