"""`sweep`, `pipeline`, `schedule`, `model`, `deploy` and `app`, and the same in Python, against a whole platform."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from client.tests.platform_user import joined
from client.tests.test_client_ignoring import write
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later

pytestmark = pytest.mark.e2e

FIT = """
import argparse, pathlib, sys, mlp_report
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from helper import WORD
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.5)
lr = parser.parse_args().lr
print(WORD, lr)
for epoch in (1, 2):
    mlp_report.report(epoch=epoch, loss=lr / epoch)
pathlib.Path("predictor.py").write_text(
    "class Predictor:\\n"
    "    inputs = outputs = [{'name': 'x', 'datatype': 'FP64', 'shape': [-1]}]\\n"
    "    def predict(self, inputs):\\n"
    f"        return [{{'name': 'x', 'datatype': 'FP64', 'shape': [1], 'data': [{lr}]}}]\\n"
)
"""
SWEEP = """
# the learning rate
name: rates   # of fit
job: {entry: src/fit.py, cpu: 0.1, ram: 300}
space:
  lr: {choices: [0.25, 0.5]}
objective: {metric: loss, direction: minimize}
sampler: grid
"""
PIPELINE = """
name: nightly
params: {lr: 0.5}
steps:
  first:
    entry: "src/fit.py"
    args: [--lr, "${lr}"]
    cpu: 0.1
  good: {needs: [first], approve: Publish it}
  second: {entry: 'check.py', needs: [good], inputs: {DATA: first}, cpu: 0.1}
"""
FILES = {
    "src/fit.py": FIT,
    "helper.py": "WORD = 'helped'",
    "check.py": "import os; print(os.listdir(os.environ['MLP_INPUT_DATA']))",
    "sweep.yaml": SWEEP,
    "nightly.yaml": PIPELINE,
    "daily.json": json.dumps({"name": "daily", "cron": "@daily", "job": {"entry": "src/fit.py", "cpu": 0.1}}),
}


@pytest.fixture
def client(shared, tmp_path):
    client, name, headers = joined(shared.running(), tmp_path)
    write(client.here, FILES)
    yield client
    shared.leave(name, headers)


@pytest.mark.long
def test_a_sweep_of_a_file_is_followed_and_its_best_trial_is_printed(client):
    done = client.run("sweep", "run", "sweep.yaml")
    assert [f"trial {number} complete" in done.stderr for number in (0, 1, 2)] == [True, True, False]
    heading, best = done.stdout.splitlines()
    assert (heading, "loss 0.125  lr=0.25" in best) == ("rates: finished", True)
    (name,) = (row["job"] for row in client.json("sweep", "show", "rates")["best"])
    assert client.run("logs", name).stdout == "helped 0.25\n"
    assert client.run("sweep", "ls").stdout.splitlines()[1].split()[:3] == ["rates", "finished", "2/2"]
    assert client.run("sweep", "show", "-f", "rates").stdout.startswith("rates: finished")
    assert client.json("sweep", "run", "sweep.yaml", "--name", "others", "-d")["name"] == "others"
    assert "rates" in client.refused("sweep", "run", "sweep.yaml", code=4)
    client.run("sweep", "rm", "rates")
    assert [row["name"] for row in client.json("sweep", "ls")] == ["others"]


@pytest.mark.long
def test_a_pipeline_of_a_file_is_stored_again_run_and_approved(client):
    number = client.run("pipeline", "run", "nightly.yaml", "--param", "lr=0.25", "-d").stdout.strip()
    with client.start("pipeline", "show", "-f", "nightly") as following:
        for line in following.stderr:
            if b"answer by" in line:
                break
        approved = client.json("pipeline", "approve", "nightly", "good", "--run", number)
        out = following.communicate(timeout=LIMIT_S)[0].decode()
    assert (approved["number"], following.returncode, out) == (1, 0, "nightly 1: finished\n")
    jobs = {step["name"]: step["job"] for step in client.json("pipeline", "show", "nightly")["steps"]}
    assert client.run("logs", jobs["first"]).stdout == "helped 0.25\n"
    assert "predictor.py" in client.run("logs", jobs["second"]).stdout
    write(client.here, {"nightly.yaml": PIPELINE.replace("  good: {needs: [first], approve: Publish it}\n", "")
                        .replace("needs: [good], ", "")})  # fmt: skip
    again = client.run("pipeline", "run", "nightly.yaml")
    assert again.stdout == "nightly 2: finished\n"
    assert [(row["name"], len(row["steps"]), row["runs"]) for row in client.json("pipeline", "ls")] == [
        ("nightly", 2, 2)
    ]
    assert client.refused("pipeline", "run", "none", code=4)
    assert "no such file" in client.refused("pipeline", "run", "none.yaml", code=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "choice"),
    [("sweep", "cancel"), later("pipeline", "detach"), later("sweep", "detach"), later("pipeline", "cancel")],
)
def test_an_interrupt_cancels_or_detaches(client, kind, choice):
    definition = {"sweep": SWEEP, "pipeline": PIPELINE}[kind].replace("src/fit.py", "src/slow.py")
    write(client.here, {"src/slow.py": "import time; time.sleep(600)", "slow.yaml": definition})
    process = client.start(kind, "run", "slow.yaml", "--on-interrupt", choice)
    while not (jobs := client.json("ps")) or jobs[0]["state"] == "creating":
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, b"Traceback" in err) == (130, False), err
    assert (f"mlp {kind} show -f" in err.decode()) == (choice == "detach")
    job = client.json("ps")[0]
    while choice == "cancel" and job["state"] == "running":
        job = client.json("ps")[0]
    assert job["outcome"] == ("cancelled" if choice == "cancel" else "")


@pytest.mark.long
def test_schedules_are_created_paused_and_run_at_once(client):
    schedule = client.json("schedule", "create", "daily.json")
    assert (schedule["state"], len(schedule["next_times"])) == ("active", 5)
    assert client.json("schedule", "pause", "daily")["state"] == "paused"
    firing = client.json("schedule", "run", "daily")
    assert (firing["state"], firing["made"]) == ("submitted", "dailyaaa")
    assert client.run("logs", "-f", "dailyaaa").stdout == "helped 0.5\n"
    row = client.run("schedule", "ls").stdout.splitlines()[1].split()
    assert row[:3] == ["daily", "paused", "@daily"]
    assert "dailyaaa" in client.run("schedule", "show", "daily").stdout
    client.run("schedule", "rm", "daily")
    assert client.json("schedule", "ls") == []


@pytest.mark.long
def test_an_output_is_deployed(client):
    client.run("run", "src/fit.py", "--name", "fit", "--cpu", "0.1")
    assert client.json("model", "create", "calc", "fit/predictor.py", "--package", "numpy")["state"] == "ready"
    assert "0 B" not in client.run("model", "ls").stdout
    client.run("model", "pull", "calc", "fetched")
    assert "[0.5]" in (client.here / "fetched/predictor.py").read_text()
    assert sorted(path.name for path in (client.here / "fetched").iterdir()) == ["predictor.py"]
    assert client.run("model", "register", "calc", "--as", "Calc", "--alias", "champion").stdout == "Calc: 1 champion\n"
    address = client.run("deploy", "calc", "--cpu", "0.1", "--ram", "300", "--record", "50").stdout.strip()
    assert answer_of(client, address) == [0.5]
    assert "0.1" not in client.refused("deploy", "calc", "--cpu", "0.2", code=4)
    client.run("app", "rm", "calc")


@pytest.mark.long
def test_another_model_takes_the_place_of_one_that_is_deployed(client):
    client.run("run", "src/fit.py", "--name", "fit", "--cpu", "0.1")
    client.run("run", "src/fit.py", "--name", "better", "--cpu", "0.1", "--", "--lr", "0.75")
    client.run("model", "create", "calc", "fit/predictor.py")
    client.run("model", "create", "calctwo", "better/predictor.py")
    address = client.run("deploy", "calc", "--cpu", "0.1", "--ram", "300").stdout.strip()
    client.run("deploy", "calctwo", "--name", "calc")
    assert answer_of(client, address) == [0.75]
    put(client, "apps/calc/canary", {"steps": [{"percent": 10}]})
    assert "10 % of the requests go to calc" in client.run("deploy", "calc").stderr  # which is no failure
    put(client, "apps/calc/rollout:share", {"percent": 100})
    assert client.json("app", "stop", "calc")["stopped"]
    assert client.run("app", "ls").stdout.splitlines()[1].split()[1:3] == ["stopped", "calc"]
    client.run("app", "rm", "calc")
    client.run("model", "rm", "calctwo")


def put(client, path: str, body: dict) -> None:
    """Send what the client has no verb for."""
    given = client.environment
    headers = {"Authorization": f"Bearer {given['MLP_TOKEN']}", "Content-Type": "application/json"}
    address = f"{given['MLP_URL']}/api/v1/users/{client.json('whoami')['user']}/{path}"
    data = json.dumps(body).encode()
    urllib.request.urlopen(urllib.request.Request(address, data, headers, method="PUT"), timeout=LIMIT_S).close()


def answer_of(client, address: str) -> list:
    """Return what the application answers."""
    headers = {"Authorization": f"Bearer {client.environment['MLP_TOKEN']}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/predict", b'{"x": [1]}', headers)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.loads(answer.read())["x"]


@pytest.mark.long
def test_python_has_the_same_verbs(client):
    program = """
from mlp_client import Failure, Platform
platform = Platform()
job = platform.run("src/fit.py", "--lr", "0.25", cpu=0.1).watch()
print(job.state, job.log().strip(), [row["loss"] for row in job.metrics()])
print("<polyline" in job._repr_html_(), job.name in repr(platform.jobs()))
again = job.rerun({"lr": 0.5}).wait()
print(again.log().strip(), again.pull("out", ["*.py"])["files"])
print(platform.sweep("sweep.yaml").wait().best[0]["params"])
try:
    platform.job("none")
except Failure as failure:
    print(failure.code)
"""
    environment = {**client.environment, "PYTHONPATH": str(client.program)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=client.here, capture_output=True,
                          text=True, timeout=LIMIT_S, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "finished helped 0.25 [0.25, 0.125]",
        "True True",
        "helped 0.5 1",
        "{'lr': 0.25}",
        "4",
    ]
    assert "loss 0.125" in done.stderr
