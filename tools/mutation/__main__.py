"""`python -m tools.mutation`: see docs/testing.md. MODULE, SAMPLE and SEED choose what is tried."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from . import hunt

RESULTS = Path("test-artifacts/mutants")
ROW_LOCKS, VERBS = "mlp/tests/test_row_locks.py", "mlp/tests/test_verbs.py"
# Which tests guard a module: those that call it in their own process and need no browser and no second server.
GUARDS = {
    "kernel.after_commit": ["kernel/tests/test_after_commit.py"],
    "kernel.locking": ["kernel/tests/test_locking.py", ROW_LOCKS],
    "accounts.auth": [
        f"accounts/tests/test_{name}.py" for name in ("auth", "users", "named_tokens", "service_accounts", "sessions")
    ],
    "accounts.lifecycle": [
        *(f"accounts/tests/test_{name}.py" for name in ("lifecycle", "service_accounts", "tenants")),
        ROW_LOCKS,
        VERBS,
    ],
    "resources.tcc": [
        f"resources/tests/test_{name}.py"
        for name in ("tcc", "tcc_edges", "tcc_tenants", "limits", "lending", "tenants")
    ],
    "datasets.lifecycle": [
        *(f"datasets/tests/test_{name}.py" for name in ("lifecycle", "meanwhile", "copies", "dataset_versions")),
        ROW_LOCKS,
        VERBS,
    ],
    "jobs.auth": ["jobs/tests/test_auth.py"],
    "jobs.lifecycle": [
        *(
            f"jobs/tests/test_{name}.py"
            for name in ("lifecycle", "lifecycle_fields", "create_job", "lending", "outputs_limit")
        ),
        ROW_LOCKS,
        VERBS,
    ],
    "models_app.lifecycle": [
        *(f"models_app/tests/test_{name}.py" for name in ("lifecycle", "lifecycle_ties")),
        ROW_LOCKS,
        VERBS,
    ],
    "apps.lifecycle": [
        *(f"apps/tests/test_{name}.py" for name in ("lifecycle", "lifecycle_ends", "sleeping")),
        ROW_LOCKS,
        VERBS,
    ],
    "aiops.lifecycle": [
        *(f"aiops/tests/test_{name}.py" for name in ("lifecycle", "own_control", "own_trainings")),
        "aiops/training/tests/test_training_queue.py",
        ROW_LOCKS,
        VERBS,
    ],
}


def row(result: dict) -> str:
    """Return the module's row of the table in docs/testing.md."""
    part = f"{result['tried']} of {result['of']}, seed {result['seed']}"
    whole = "whole" if result["tried"] == result["of"] else part
    share = 100 * result["killed"] / max(1, result["tried"])
    return f"| `{result['module']}` | {whole} | {result['killed']} of {result['tried']} | {share:.0f} % |"


def main() -> int:
    """Try the modules; 1 when a run failed or less than MINIMUM (85) % of a module's mutants were killed."""
    chosen = [name for name in GUARDS if os.environ.get("MODULE", "") in ("", name)]
    if not chosen:
        print(f"MODULE is one of: {', '.join(GUARDS)}")
        return 2
    sample, minimum = int(os.environ.get("SAMPLE") or 0), float(os.environ.get("MINIMUM") or 85)
    RESULTS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers end with us
    importlib.import_module("mlp.tests.servers")  # starts them, for all modules
    rows, weak = [], False
    for module in chosen:
        pid = os.fork()  # a module's tests are collected in a process that has seen no other's
        if pid == 0:
            os._exit(hunt_in(module, sample))
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            return 1
        result = json.loads((RESULTS / f"{module}.json").read_text())
        rows.append(row(result))
        weak = weak or 100 * result["killed"] < minimum * result["tried"]
    print("\n".join(["", "| module | mutants tried | killed | score |", "|---|---|---|---|", *rows]))
    return int(weak)


def hunt_in(module: str, sample: int) -> int:
    """Try one module's faults and keep the result; pytest's exit status."""

    def say(line: str) -> None:
        os.write(2, f"{line}\n".encode())

    plugin = hunt.Hunt(module, sample, int(os.environ.get("SEED") or 1), say)
    options = ["-q", "-m", "not long", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "-W", "ignore"]
    status = pytest.main([*options, *GUARDS[module]], plugins=[plugin])
    if plugin.result:
        (RESULTS / f"{module}.json").write_text(json.dumps(plugin.result, indent=1))
    sys.stdout.flush()
    return int(status) if not plugin.result else 0


if __name__ == "__main__":
    sys.exit(main())
