"""Other products to compare with, each in a separate virtual environment and not in the platform's requirements.

They are installed from the package index on first use, below .venv/peers or BENCH_PEERS, and reused later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NO_PEER = 77  # the exit status of a benchmark without its peer
FOLDER = Path(os.environ.get("BENCH_PEERS") or Path(sys.executable).parent.parent / "peers")


class NoPeer(SystemExit):
    """There is nothing to compare with, which is no fault of the platform."""

    def __init__(self, text: str):
        print(text, file=sys.stderr, flush=True)
        super().__init__(NO_PEER)


def peer(name: str, *requirements: str) -> Path:
    """Return the `bin` folder of an environment with these packages. Raises NoPeer if they cannot be installed."""
    home = FOLDER / name
    ready = home / "requirements.txt"
    wanted = "\n".join(requirements)
    if not ready.is_file() or ready.read_text() != wanted:
        print(f"  (installing {', '.join(requirements)}; first use only)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        command = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements]
        if subprocess.run(command).returncode:
            raise NoPeer(f"{name} could not be installed: no comparison")
        ready.write_text(wanted)
    return home / "bin"
