"""`make bench`: runs the benchmarks, each with a peer or a bar in the same run, and prints a table of all results.

`python bench/run.py auth` runs one of them. Figures depend on the machine; only the ratios are comparable. It ends with
1 if a bar was missed, also because the benchmark did not finish; a peer that is not installed is no missed bar.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import bars
import peers

HERE = Path(__file__).resolve().parent
NOT_BENCHMARKS = {"run", "bars", "instance", "peers", "memory", "mlflow_server"}
NOT_BENCHMARKS |= {"fuzz", "mlflow_plugin", "mlflow_tests"}  # `make fuzz` and `make mlflow-tests` run these
NOT_BENCHMARKS |= {"scale", "scale_cluster", "scale_round"}  # `make scale`


def measure(name: str, place: Path) -> list[dict]:
    """Run a benchmark; return what it has recorded, and a row that says so when it did not finish."""
    print(f"\n== {name}", flush=True)
    environment = {**os.environ, "BENCH_RESULTS": str(place)}
    done = subprocess.run([sys.executable, str(HERE / f"{name}.py")], cwd=HERE.parent, env=environment)
    rows = bars.read(place)
    missed = any(not row["good"] for row in rows)
    if done.returncode == peers.NO_PEER:
        rows.append({"what": "no comparison: the peer is not installed", "good": True})
    elif done.returncode and not missed:
        rows.append({"what": f"did not finish: ended with {done.returncode}", "good": False})
    elif not rows:
        rows.append({"what": "its figures are above", "good": True})
    return [{"bench": name, **row} for row in rows]


def main() -> int:
    names = sys.argv[1:] or sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    rows: list[dict] = []
    with tempfile.TemporaryDirectory(prefix="mlp-bench-") as folder:
        for name in names:
            rows += measure(name, Path(folder, name))
    print(f"\n{bars.table(rows)}", flush=True)
    return int(any(not row["good"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
