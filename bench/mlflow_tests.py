"""MLflow's own tests against a platform: those that speak REST, taken from a checkout of MLflow.

    python bench/mlflow_tests.py path/to/mlflow [--release 3.17.2] [options of pytest]

`--release` is that of the client, installed apart on first use. mlflow_not_served.txt lists the tests that are skipped.
The tests of webhooks need a name server.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

import instance
import peers

HERE = Path(__file__).resolve().parent
RELEASE = "3.17.2"
# What MLflow's tests import besides MLflow.
BESIDES = ("pytest", "pytest-asyncio", "psutil", "httpx")
FILES = (
    "tests/tracking/test_rest_tracking.py",
    "tests/tracking/test_tracking.py",
    "tests/tracking/test_model_registry.py",
    "tests/tracking/test_client_webhooks.py",
    "tests/store/model_registry/test_rest_store_webhooks.py",
)
USERS = 1000  # at least as many as there are tests: each has a user of its own
MAKE_USERS = """
from accounts import lifecycle
from accounts.models import State, User
from resources.models import Tenant

tenant = Tenant.objects.get(name="default")
for number in range(%d):
    name = "t" + "".join(chr(ord("a") + int(digit)) for digit in str(number))
    user = User.objects.create(username=name, password="!", state=State.ACTIVED, tenant=tenant)
    print("token", lifecycle.token_of(user))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("source", type=Path, help="a checkout of MLflow with its tests")
    parser.add_argument("--release", default=RELEASE, help="of MLflow's client")
    parser.add_argument("--python", help="of an environment that has MLflow and pytest already")
    given, options = parser.parse_known_args()
    python = given.python or str(
        peers.peer(f"mlflow-tests-{given.release}", f"mlflow=={given.release}", *BESIDES) / "python"
    )
    files = (
        []
        if any(option.startswith("tests/") for option in options)
        else [file for file in FILES if (given.source / file).is_file()]
    )
    with instance.running() as platform, tempfile.NamedTemporaryFile("w", suffix=".tokens") as tokens:
        said = platform.manage("shell", "-c", MAKE_USERS % USERS)
        tokens.write("\n".join(line.split()[1] for line in said.splitlines() if line.startswith("token ")))
        tokens.flush()
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "DJANGO_", "MLP_"))
        }
        environment |= {
            "PYTHONPATH": f"{HERE}:{given.source}",
            "MLFLOW_TESTS_ADDRESS": f"http://{instance.HOST}:{platform.port}",
            "MLFLOW_TESTS_TOKENS": tokens.name,
        }
        command = [python, "-m", "pytest", "-q", "-p", "mlflow_plugin", "--tb=short", *options, *files]
        return subprocess.run(command, cwd=given.source, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
