"""`make bench`: runs the benchmarks, each with a peer or a goal in the same run, and prints the results.

`python bench/run.py auth` runs one of them. Figures depend on the machine; only the ratios are comparable.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"run", "load", "instance", "peers", "sockets", "fuzz", "memory", "tracking", "mlflow_load"}


def main() -> int:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    worst = 0
    for name in names:
        print(f"\n== {name}", flush=True)
        worst = max(worst, subprocess.run([sys.executable, str(HERE / f"{name}.py")], cwd=HERE.parent).returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
