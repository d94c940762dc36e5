"""The verbs on jobs and files against a whole platform."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios

import pytest
import yaml
from django.conf import settings

from client.mlp_client.objects import replaced
from client.tests.platform_user import joined
from client.tests.test_client_ignoring import write
from client.tests.test_client_run_live import rest
from datasets.tests.test_buckets import remote  # noqa: F401
from kernel.tests.nats_tools import until
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from operations.backup.tests.conftest import s3  # noqa: F401

pytestmark = pytest.mark.e2e

FIT = """
import pathlib, sys, mlp_report
print(*sys.argv[1:])
mlp_report.report(epoch=1, loss=0.25, accuracy=0.75, progress=50)
pathlib.Path("ckpt").mkdir(exist_ok=True)
pathlib.Path("ckpt/weights.bin").write_bytes(b"w" * 300_000)
pathlib.Path("notes #1.txt").write_text("n")
"""


@pytest.fixture
def client(shared, tmp_path):
    client, name, headers = joined(shared.running(), tmp_path)
    yield client
    shared.leave(name, headers)


@pytest.mark.parametrize(
    ("args", "name", "expected"),
    [
        (["--lr", "1", "x"], "lr", ["--lr", "2", "x"]),
        (["--lr=1", "-b", "8"], "lr", ["--lr=2", "-b", "8"]),
        (["lr=1", "+deep=3"], "deep", ["lr=1", "+deep=2"]),
        (["-b", "8", "16", "--amp"], "b", ["-b", "2", "--amp"]),
        (["--amp", "--lr", "-0.1"], "lr", ["--amp", "--lr", "2"]),
        (["data.csv"], "lr", ["data.csv", "--lr", "2"]),
    ],
)
def test_an_argument_is_replaced_in_its_form(args, name, expected):
    assert replaced(args, name, "2") == expected


@pytest.mark.long
def test_the_verbs_on_a_job_that_has_ended(client):
    write(client.here, {"fit.py": FIT})
    client.run("run", "fit.py", "--name", "fit", "--", "--lr", "0.1")
    assert client.run("logs", "fit").stdout == "--lr 0.1\n"
    assert client.run("logs", "-f", "fit").stdout == "--lr 0.1\n"
    assert client.json("logs", "fit") == {"job": "fit", "log": "--lr 0.1\n", "next_offset": 9}
    heading, row = client.run("metrics", "fit").stdout.splitlines()
    assert (heading.split(), row.split()) == (["EPOCH", "LOSS", "ACCURACY", "PROGRESS"], ["1", "0.25", "0.75", "50%"])
    assert client.run("rerun", "fit", "--set", "lr=0.2", "--name", "again").stdout == "--lr 0.2\n"
    rows = client.run("ps").stdout.splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [["again", "finished", "100%"], ["fit", "finished", "100%"]]
    assert [job["name"] for job in client.json("ps", "-n", "1")] == ["again"]
    assert client.json("ps", "--state", "running") == client.json("queue") == []
    assert client.refused("cancel", "fit", code=4).startswith("fit: ")
    assert "job" in client.refused("logs", "none", code=4)
    assert "ARG=VALUE" in client.refused("rerun", "fit", "--set", "lr", code=2)
    client.environment["BROWSER"] = f"{sys.executable} -c pass %s"
    assert client.run("open", "fit").stdout.strip() == f"{client.environment['MLP_URL']}/jobs/fit"


@pytest.mark.long
def test_outputs_are_fetched_once_and_from_where_it_was_interrupted(client):
    write(client.here, {"fit.py": FIT})
    client.run("run", "fit.py", "--name", "fit")
    result = client.json("pull", "fit")
    assert (result["dir"], result["received"]) == ("fit", result["bytes"])
    assert (client.here / "fit/ckpt/weights.bin").read_bytes() == b"w" * 300_000
    assert (client.here / "fit/notes #1.txt").read_text() == "n"
    assert not (client.here / "fit/.mlp-download").exists()
    assert client.json("pull", "fit")["received"] == 0
    (client.here / "fit/ckpt/weights.bin").write_bytes(b"of something else")
    [row] = [row for row in rest(client, "jobs/fit/artifacts") if row["path"] == "ckpt/weights.bin"]
    state = hashlib.sha256("{path} {size} {modified}".format(**row).encode()).hexdigest()
    write(client.here, {f"fit/.mlp-download/{state}": "w" * 100_000})  # as a client leaves it that was killed
    result = client.json("pull", "fit", "--only", "ckpt/*")
    assert (result["files"], result["received"]) == (1, 200_000)
    assert (client.here / "fit/ckpt/weights.bin").read_bytes() == b"w" * 300_000
    assert not (client.here / "fit/.mlp-download").exists()


def test_a_folder_becomes_a_dataset_and_comes_back(client):
    write(client.here, {"photos/a/one": "1" * 1000, "photos/two": "2"})
    assert client.json("push", "photos", "--name", "photos")["sent"] == 1001
    assert client.json("push", "photos", "--name", "photos")["sent"] == 0
    assert client.json("pull", "--dataset", "photos", "back")["received"] == 1001
    assert (client.here / "back/a/one").read_text() == "1" * 1000


@pytest.mark.long
def test_a_dataset_of_an_output_says_what_was_left_out(client):
    script = "import os, pathlib\npathlib.Path('a.csv').write_text('1')\nos.symlink('a.csv', 'latest.csv')"
    write(client.here, {"prepare.py": script})
    client.run("run", "prepare.py", "--name", "prepare", "--cpu", "0.1")
    made = client.run("dataset", "create", "clean", "prepare")
    assert "clean: ready" in made.stdout
    assert re.search("dataset clean: left out.* 1 .latest.csv.", made.stderr)


@pytest.fixture
def writable(shared, s3):  # noqa: F811
    """Add the bucket `kept` of a real server to the platform, as an administrator does."""

    def manage(program: str) -> None:
        command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "shell", "-v", "0", "-c", program]
        environment = shared.running().environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    keys = {"access_key": s3["AWS_ACCESS_KEY_ID"], "secret": s3["AWS_SECRET_ACCESS_KEY"], "signing": "key"}
    fields = {"endpoint": s3["AWS_ENDPOINT_URL"], "bucket": "kept", "region": "us-east-1", "access": "write", **keys}
    rows = "from datasets.buckets import rows\n"
    manage(f"{rows}rows.create(by='root', name='kept', everybody=True, **{fields!r})")
    yield
    manage(f"{rows}from datasets.models import Bucket\nrows.delete(Bucket.objects.get(name='kept'), by='root')")


@pytest.mark.long
def test_an_output_goes_to_a_bucket_and_what_is_refused_is_said(client, writable, remote):  # noqa: F811
    write(client.here, {"prepare.py": "import pathlib\npathlib.Path('a.csv').write_text('1')"})
    client.run("run", "prepare.py", "--name", "prepare", "--cpu", "0.1", "--output-uri", "s3/kept/train")
    made = client.json("export", "create", "prepare/a.csv", "s3/kept/train/one")
    assert (made["state"], made["sent"]) == ("finished", 1)
    assert bytes(remote.get("train/one/a.csv").bytes()) == b"1"
    until(lambda: [row["state"] for row in client.json("export", "ls")] == ["finished", "finished"])
    assert bytes(remote.get("train/prepare/a.csv").bytes()) == b"1"
    assert "finished" in client.run("export", "ls").stdout
    refused = client.run("export", "create", "datasets/none", "s3/kept", code=4)
    assert "you have no dataset named none" in refused.stderr
    assert "only a queued or running one" in client.run("export", "cancel", str(made["number"]), code=4).stderr


def test_a_reader_of_a_log_ends_nothing_and_cancel_does(client):
    write(client.here, {"wait.py": "import time; print('begun', flush=True); time.sleep(600)"})
    client.run("run", "wait.py", "-d", "--name", "one", "--cpu", "0.1")
    process = client.start("logs", "-f", "one")
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)  # who only reads a log ends nothing
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, b"goes on" in err) == (130, True), err
    assert [job["state"] for job in client.json("ps")] == ["running"]
    assert json.loads(client.run("--json", "cancel", "one").stdout)[0]["name"] == "one"
    client.run("logs", "-f", "one", code=130)


@pytest.mark.long
def test_on_a_terminal_ctrl_c_asks(client):
    write(client.here, {"wait.py": "import time; print('begun', flush=True); time.sleep(600)"})
    master, terminal = pty.openpty()
    process = client.start("run", "wait.py", "--name", "one", stdin=terminal, stderr=terminal)
    os.close(terminal)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGINT)
    said = b""
    while b"[d]etach" not in said:
        said += os.read(master, 1000)
    os.write(master, b"d\n")
    while b"mlp cancel one" not in said:
        said += os.read(master, 1000)
    assert process.wait(LIMIT_S) == 130
    process.stdout.close()
    os.close(master)
    assert client.json("ps")[0]["state"] == "running"


@pytest.mark.long
def test_the_processes_of_a_job_are_shown_until_ctrl_c(client):
    write(client.here, {"wait.py": "import time; print('begun', flush=True); time.sleep(600)"})
    running = client.start("run", "wait.py", "--name", "one", "--", "--lr", "1")
    assert running.stdout.readline() == b"begun\n"
    assert client.json("top", "one")["processes"][0]["command"].endswith("wait.py --lr 1")
    whole, heading, row = client.run("top", "one").stdout.splitlines()  # once: the output is no terminal
    assert whole.startswith("job one: CPU ")
    assert heading.split() == ["PID", "CPU", "MEMORY", "THREADS", "AGE", "COMMAND"]
    assert row.endswith("wait.py --lr 1")
    assert "job" in client.refused("top", "none", code=4)

    master, terminal = pty.openpty()
    command = [client.python, str(client.program), "top", "one", "-n", "1"]
    top = subprocess.Popen(["env", "--default-signal=INT", *command], env=client.environment, stdout=terminal)
    os.close(terminal)
    said = b""
    while said.count(b"job one: CPU") < 2:
        said += os.read(master, 10_000)
    top.send_signal(signal.SIGINT)
    assert top.wait(LIMIT_S) == 0
    os.close(master)
    client.run("cancel", "one")
    running.communicate(timeout=LIMIT_S)
    assert "only a running job" in client.refused("top", "one", code=4)


@pytest.mark.long
def test_programs_are_started_in_a_running_job(client):
    write(client.here, {"wait.py": "import time; print('begun', flush=True); time.sleep(600)"})
    running = client.start("run", "wait.py", "--name", "one")
    assert running.stdout.readline() == b"begun\n"
    client.run("attach", "one", "--", "sh", "-c", "pwd; exit 7", code=7)
    assert "job" in client.refused("attach", "none", "--", "ls", code=4)
    assert "--" in client.refused("attach", "one", code=4)  # no terminal, no command

    master, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (30, 100))
    before = termios.tcgetattr(terminal)
    command = [client.python, str(client.program), "attach", "one"]
    another = client.environment | {"LINES": "24", "COLUMNS": "80"}  # as programs with readline export them
    shell = subprocess.Popen(command, env=another, stdin=terminal, stdout=terminal, stderr=terminal)
    os.write(master, b"stty size; echo en''ough\n")
    said = b""
    while b"enough\r\n" not in said:
        said += os.read(master, 10_000)
    assert b"30 100" in said
    termios.tcsetwinsize(terminal, (40, 120))
    os.write(master, b"while [ \"$(stty size)\" != '40 120' ]; do sleep 0.1; done; exit 3\n")
    assert shell.wait(LIMIT_S) == 3
    assert termios.tcgetattr(terminal)[:4] == before[:4]
    os.close(terminal)
    os.close(master)

    sent = b"line\n" * 200_000
    through = subprocess.run(
        [*command, "--", "cat"],
        env=client.environment, input=sent, stdout=subprocess.PIPE, timeout=LIMIT_S,
    )  # fmt: skip
    assert through.stdout == sent
    words = [*command, "--", "yes"]
    endless = subprocess.Popen(words, env=client.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert endless.stdout.read(2) == b"y\n"
    endless.stdout.close()
    assert endless.wait(LIMIT_S) == 1
    assert endless.stderr.read() == b""
    endless.stderr.close()
    client.run("cancel", "one")
    running.communicate(timeout=LIMIT_S)
    assert "only a running job" in client.refused("attach", "one", "--", "ls", code=4)


def steps() -> list[list[str]]:
    """Return the shell lines of each configuration for a CI in the documentation."""
    page = (settings.BASE_DIR / "docs/client.md").read_text()
    github, gitlab = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    return [[step["run"] for step in github["jobs"]["train"]["steps"] if "run" in step], gitlab["train"]["script"]]


@pytest.mark.long
@pytest.mark.parametrize("service", [pytest.param(0, id="github"), later(1, id="gitlab")])
def test_the_configurations_for_a_ci_run(client, service):
    write(client.here, {"train.py": "import sys; open('model', 'w').write('m'); print(*sys.argv[1:])"})
    client.program.unlink()
    client.environment |= {"GITHUB_RUN_ID": "7", "GITHUB_REPOSITORY": "team/vision", "CI": "true"}
    lines = "\n".join(steps()[service])
    done = subprocess.run(
        ["sh", "-ec", lines], cwd=client.here, env=client.environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "--epochs 3"), done.stderr
    assert service == 0 or (client.here / "output/model").read_text() == "m"


@pytest.mark.long
def test_a_model_stays_in_a_bucket_and_its_files_come_from_there(client, writable, remote):  # noqa: F811
    files = {
        "predictor.py": b"class Predictor:\n    def predict(self, inputs):\n        return []\n",
        "deep/w": b"w" * 5000,
    }
    for path, content in files.items():
        remote.put(f"train/net/{path}", content)
    made = client.json("model", "create", "net", "s3/kept/train/net", "--external")
    assert (made["state"], made["external"], made["src"]) == ("ready", True, "s3/kept/train/net")
    pulled = client.json("model", "pull", "net", "back")
    assert (pulled["files"], pulled["bytes"]) == (2, sum(map(len, files.values())))
    assert {path: (client.here / "back" / path).read_bytes() for path in files} == files
    copied = client.json("model", "create", "kept", "models/net")
    assert (copied["state"], copied["external"], copied["checksums"]) == ("ready", False, made["checksums"])
    remote.delete("train/net/deep/w")
    assert (
        "train/net/deep/w is not in the bucket any more" in client.run("model", "pull", "net", "again", code=4).stderr
    )
    client.run("model", "rm", "net")
