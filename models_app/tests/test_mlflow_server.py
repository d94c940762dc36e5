"""Import from and export to a real MLflow server, which `make mlflow` installs in an environment of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from jobs.models import Job, Project, RunMetric
from kernel import storage
from mlp.tests.patience import LIMIT_S
from models_app import reconcile
from models_app.models import Imported, RegisteredModel

PYTHON = os.environ.get("MLP_MLFLOW_SERVER", "")
SCRIPT = Path(__file__).with_name("mlflow_world.py")
POINTS = 30_000  # of the long series: more than a page

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not PYTHON, reason="MLP_MLFLOW_SERVER is not given: make mlflow"),
]


class MlflowServer:
    """A real server on SQLite, in a folder of its own."""

    def __init__(self, folder: Path, proxy: bool):
        folder.mkdir()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url, self.folder = f"http://127.0.0.1:{port}", folder
        self.environment = {
            "PATH": f"{Path(PYTHON).parent}:{os.environ['PATH']}", "HOME": str(folder), "MLFLOW_TRACKING_URI": self.url,
            "MLFLOW_DISABLE_TELEMETRY": "true", "GIT_PYTHON_REFRESH": "quiet", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION":
            "false",
        }  # fmt: skip
        place = ["--artifacts-destination", str(folder / "files")]
        if not proxy:
            place = ["--no-serve-artifacts", "--default-artifact-root", str(folder / "files")]
        command = [PYTHON, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", *place,
                   "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]  # fmt: skip
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            command, env=self.environment, cwd=folder, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )
        until = time.monotonic() + LIMIT_S
        while not self.answers():
            assert self.process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.2)

    def answers(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
            return answer.status == 200
        return False

    def script(self, what: str, *arguments: str) -> str:
        command = [PYTHON, str(SCRIPT), what, *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip().splitlines()[-1]

    def close(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@pytest.fixture
def server(tmp_path):
    begun = []

    def start(name: str, proxy: bool = True) -> MlflowServer:
        begun.append(MlflowServer(tmp_path / name, proxy))
        return begun[-1]

    yield start
    for instance in begun:
        instance.close()


def copy(what: str, server: MlflowServer, user: str) -> dict:
    """Import or export; return the report."""
    path = server.folder / "report.json"
    with contextlib.suppress(SystemExit):  # something could not be copied
        call_command("mlflow", what, server.url, "--user", user, "--report", str(path), verbosity=0,
                     stdout=io.StringIO())  # fmt: skip
    return json.loads(path.read_text())


@pytest.mark.parametrize("proxy", [True, False], ids=["proxied", "own store"])
def test_a_real_server_comes_here_and_goes_to_another_one(server, alice, tasks, proxy):
    source = server("source", proxy)
    run_id = source.script("fill", str(POINTS))

    # killed in the middle, and continued
    database = urlsplit(os.environ["DATABASE_URL"])._replace(path="/" + connection.settings_dict["NAME"]).geturl()
    command = [sys.executable, settings.BASE_DIR / "manage.py", "mlflow", "import", source.url, "--user", "alice"]
    importing = subprocess.Popen(command, env={**os.environ, "DATABASE_URL": database}, stdout=subprocess.DEVNULL)
    while not RunMetric.objects.filter(job__user=alice).exists():
        assert importing.poll() is None
        time.sleep(0.01)
    importing.kill()
    importing.wait()
    report = copy("import", source, "alice")
    assert report["complete"], report
    compared = {row["what"]: row["here"] for row in report["verified"]}
    assert compared["metric points"] == POINTS + 10
    assert (compared["runs"], compared["registered models"], compared["model versions"]) == (10, 3, 5)

    parent = Job.objects.get(user=alice, title="parent")
    assert parent.run_id.hex == run_id  # as at the server
    assert parent.children.count() == 5
    assert parent.system_tags["mlflow.user"]
    assert parent.inputs.get().context == "train"
    assert Job.objects.get(user=alice, title="killed").shown_state == "cancelled"
    assert Project.objects.get(user=alice, name="open").tags == {"x": "y"}
    top = storage.job_dir("alice", parent.name) / "artifacts"
    assert (top / "notes/hello ä+b%.txt").read_text() == "hello"
    assert (top / "deep/er/big.bin").stat().st_size == 5 << 20
    churn = RegisteredModel.objects.get(user=alice, name="churn")
    assert churn.aliases.get().version.number == 2
    elsewhere = RegisteredModel.objects.get(user=alice, name="elsewhere")
    assert list(elsewhere.versions.order_by("number").values_list("number", "stage")) == [
        (1, "None"), (3, "Production"),
    ]  # fmt: skip
    tasks.run()
    until = time.monotonic() + LIMIT_S
    while {version.status for version in churn.versions.all()} != {"READY"} and time.monotonic() < until:
        reconcile.run()
        tasks.run()
        time.sleep(0.2)
    assert [(version.status, str(version.status_message)) for version in churn.versions.all()] == [("READY", "")] * 2
    assert all(
        version.model is not None for version in churn.versions.all()
    )  # checked by loading: they can be deployed

    again = copy("import", source, "alice")
    assert again["complete"], again
    assert again["counts"]["runs"] == {"unchanged": 9, "changed": 1}  # the one that is running
    assert Imported.objects.filter(kind="run").count() == 10
    assert Job.objects.filter(user=alice).count() == 12  # two models without a run at the server have one of their own

    exported(source, server("target"), storage.job_dir("alice", parent.name))


def exported(source: MlflowServer, target: MlflowServer, folder: Path) -> None:
    """Export all, and look at it by MLflow's client; what a job has written to its `folder` is there, too."""
    output = folder / "ckpt"
    output.mkdir()
    (output / "model.pt").write_text("weights")
    report = copy("export", target, "alice")
    assert report["complete"], report
    assert target.script("check", str(POINTS)) == "as it was"
    source.script("evaluate", "0")
    evaluated = copy("import", source, "alice")
    assert not evaluated["complete"]
    assert [loss["what"].partition(": ")[2] or loss["what"] for loss in evaluated["not_copied"]] == [
        "1 trace", "webhook hook to 93.184.216.34",
    ]  # fmt: skip
    assert evaluated["counts"]["evaluation datasets"] == {"new": 2}
    assert evaluated["counts"]["versions of scorers"] == {"new": 1}
    again = copy("export", target, "alice")
    assert again["counts"]["runs"] == {"unchanged": 11, "changed": 1}
