"""`mlp run` against a whole platform: what the job gets, what is printed, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import time

import pytest

from client.tests.platform_user import joined
from client.tests.test_client_ignoring import git, write
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later

pytestmark = pytest.mark.e2e

TRAIN = """
import os, sys, pathlib, mlp_report
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import helper
print(helper.WORD, *sys.argv[1:], os.environ["COLOUR"], flush=True)
for epoch in range(3):
    mlp_report.report(epoch=epoch, loss=1 / (epoch + 1), accuracy=0.5)
pathlib.Path("out.txt").write_text("done")
print("ü", flush=True)
"""


@pytest.fixture
def world(shared, tmp_path):
    client, name, headers = joined(shared.running(), tmp_path)
    yield client, shared, name
    shared.leave(name, headers)


@pytest.fixture
def client(world):
    return world[0]


def last(client) -> dict:
    """Return the newest job."""
    return rest(client, "jobs?limit=1")[0]


def rest(client, path: str):
    import urllib.request

    user = client.json("whoami")["user"]
    headers = {"Authorization": f"Bearer {client.environment['MLP_TOKEN']}"}
    request = urllib.request.Request(f"{client.environment['MLP_URL']}/api/v1/users/{user}/{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.loads(answer.read())


def test_a_checkout_becomes_a_job_that_is_followed(client):
    here = write(client.here, {"src/train.py": TRAIN, "helper.py": "WORD = 'committed'", ".gitignore": "*.bin\n"})
    git(here, "init", "-q", "-b", "topic")
    git(here, "add", ".")
    git(here, "commit", "-qm", "first")
    write(here, {"weights.bin": "x", "new.py": "", "helper.py": "WORD = 'changed'"})
    git(here, "add", "helper.py")  # staged, still not committed
    client.environment["COLOUR"] = "red"
    options = ["--cpu", "0.5", "--ram", "0.5GiB", "--env", "COLOUR", "--tag", "team=vision", "--title", "Ünit"]
    done = client.run("run", "src/train.py", *options, "--", "--lr", "0.1")
    assert done.stdout == "changed --lr 0.1 red\nü\n"
    assert re.findall(r"^epoch (\d)  loss (\S+)  accuracy 0.5", done.stderr, re.M) == [
        ("0", "1"),
        ("1", "0.5"),
        ("2", "0.333333"),
    ]
    job = last(client)
    assert (job["state"], job["title"], job["ram"], job["cpu"]) == ("finished", "Ünit", 512, 0.5)
    assert (job["args"], job["tags"]) == (["--lr", "0.1"], {"team": "vision"})
    code = rest(client, f"jobs/{job['name']}/code")
    top = code["folder"] + "/"
    paths = {file["path"].removeprefix(top) for file in code["files"]}
    assert paths == {"src/train.py", "helper.py", ".gitignore", "new.py", "src__train.py", ".mlp/uncommitted.diff"}
    head = git(here, "rev-parse", "HEAD").decode().strip()
    assert code["git"] == {"commit": head, "branch": "topic", "dirty": True}
    assert "sent 0 of" not in done.stderr
    git(here, "add", ".")
    git(here, "commit", "-qm", "second")
    assert "sent 0 of" not in client.run("run", "src/train.py", *options).stderr
    again = client.run("run", "src/train.py", *options)
    assert "sent 0 of" in again.stderr
    code = rest(client, f"jobs/{last(client)['name']}/code")
    assert code["git"]["dirty"] is False
    assert not [file for file in code["files"] if ".mlp/" in file["path"]]


@pytest.mark.long
def test_a_notebook_in_a_folder_is_sent_with_the_place_of_its_modules(client):
    book = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    write(client.here, {"lab/train.ipynb": json.dumps(book), "lab/helper.py": "", "lab/broken.ipynb": "{"})
    client.run("--quiet", "run", "lab/train.ipynb", "--detach", "--cpu", "0.1", "--name", "book", "--", "--lr", "0.1")
    job, code = last(client), rest(client, "jobs/book/code")
    assert (job["name"], job["args"]) == ("book", ["--lr", "0.1"])
    assert job["entry"] == code["folder"] + "/lab__train.ipynb"
    assert {"lab/helper.py", "lab/train.ipynb"} <= {
        file["path"].removeprefix(code["folder"] + "/") for file in code["files"]
    }
    sent = rest(client, f"jobs/book/code/files/{job['entry']}")
    assert sent == {**book, "metadata": {"mlp_folder": "lab"}}
    assert "is not JSON" in client.refused("run", "lab/broken.ipynb", code=4)


@pytest.mark.long
def test_the_exit_code_is_that_of_the_job(client):
    write(client.here, {"fail.py": "import sys; print('so far'); sys.exit(7)"})
    done = client.run("run", "fail.py", code=7)
    assert done.stdout == "so far\n"
    assert "exit code 7" in done.stderr.splitlines()[-1]
    name = client.run("--quiet", "run", "fail.py", "--detach", "--name", "mine").stdout
    assert name == "mine\n"
    assert "name" in client.refused("run", "fail.py", "--name", "mine", code=4)
    assert "no such file" in client.refused("run", "none.py", code=1)
    assert "takes no arguments" in client.refused("whoami", "--", "x", code=2)


@pytest.mark.parametrize(("choice", "left"), [("cancel", "error"), later("detach", "running")])
def test_an_interrupt_cancels_or_detaches(client, choice, left):
    write(client.here, {"wait.py": "import time; print('begun', flush=True); time.sleep(600)"})
    process = client.start("run", "wait.py", "--on-interrupt", choice)
    assert process.stdout.readline() == b"begun\n"
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, b"Traceback" in err) == (130, False), err
    job = last(client)
    assert (f"mlp logs -f {job['name']}" in err.decode()) == (choice == "detach")
    while choice == "cancel" and job["state"] == "running":
        time.sleep(0.05)
        job = last(client)
    assert (job["state"], job["outcome"]) == (left, "cancelled" if choice == "cancel" else "")


@pytest.mark.long
def test_a_lost_connection_is_opened_again_at_the_same_byte(world):
    client, platform, _name = world
    write(
        client.here, {"count.py": "import time\nfor n in range(400):\n    print(n, flush=True)\n    time.sleep(0.01)\n"}
    )
    process = client.start("run", "count.py", bufsize=0)  # communicate() would lose what is buffered
    lines = [process.stdout.readline() for _ in range(20)]
    for pid in platform.pids("gateway"):
        os.kill(pid, signal.SIGKILL)
    out, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, err
    assert (b"".join(lines) + out).split() == [b"%d" % n for n in range(400)]
    assert b"retrying" in err
    platform.wait_healthy()


@pytest.mark.long
def test_what_was_sent_is_listed_and_removed_unless_something_reads_it(client):
    write(client.here, {"wait.py": "import time; time.sleep(600)", "more.txt": "x" * 1000})
    name = client.run("run", "wait.py", "--detach").stdout.strip()
    (sent,) = client.json("checkouts", "ls")
    assert (sent["files"] > 1, sent["bytes"] > 1000, sent["used_by"]) == (True, True, [f"job {name}"])
    assert f"is used by job {name}" in client.refused("checkouts", "rm", sent["name"], code=4)
    assert client.json("checkouts", "rm", "--older", "0") == []
    client.run("cancel", name)
    while last(client)["state"] != "error":
        time.sleep(0.05)
    assert client.json("checkouts", "rm", "--older", "1") == []
    assert "no such checkout" in client.refused("checkouts", "rm", "none", code=4)
    assert "not both" in client.refused("checkouts", "rm", sent["name"], "--older", "1", code=2)
    assert [row["name"] for row in client.json("checkouts", "rm", sent["name"])] == [sent["name"]]
    assert client.json("checkouts", "ls") == []
    assert client.run("checkouts", "ls").stdout.split() == ["NAME", "FILES", "SIZE", "AGE", "USED", "BY"]
    again = client.run("run", "wait.py", "--detach")
    assert "sent 0 of " in again.stderr, "the platform has it of the first job"
    assert [row["files"] for row in client.json("checkouts", "ls")] == [sent["files"]]
