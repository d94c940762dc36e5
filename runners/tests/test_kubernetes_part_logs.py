"""What the pods of the platform's own parts print is in the files that the log service follows, each line once."""

from __future__ import annotations

import os
import sys
import time

import pytest

from runners.kubernetes import KubernetesRunner, part_logs

from .helpers import eventually

CODE = """
import os, sys
for number in range(int(sys.argv[1])):
    print("line", number)
    if number % 10 == 9:
        os.mkfifo(f"go{number}")
        sys.stdout.flush()
        open(f"go{number}").close()
"""


@pytest.fixture
def printing(cluster, tmp_path, monkeypatch):
    """Return a function that makes a pod of a part. It prints ten lines, and ten more after each `go_on`."""
    monkeypatch.setattr(part_logs, "LOOK_S", 0.02)
    monkeypatch.setattr(part_logs, "PAUSE_S", 0.02)

    def make(name: str, part: str, lines: int = 20, label: str = "mlp-part") -> None:
        app = "mlp-server" if label == "mlp-server" else "mlp-platform"
        (folder := tmp_path / name).mkdir()
        command = [sys.executable, "-c", CODE, str(lines)]
        container = {"name": part, "image": "i", "command": command, "workingDir": str(folder), "volumeMounts": []}
        meta = {"name": name, "namespace": "mlp", "labels": {"app": app, label: part}}
        body = {"metadata": meta, "status": {"phase": "Pending"}}
        body["spec"] = {"containers": [container], "restartPolicy": "Never"}
        cluster.store.create("pods", body)

    return make


@pytest.fixture
def leader(configured):
    """Return a function that watches as the leading `reconcile` does, in a context."""
    return lambda: KubernetesRunner(configured()).watch(lambda: None)


def go_on(folder, number: int) -> None:
    eventually((folder / f"go{number}").exists)
    os.close(os.open(folder / f"go{number}", os.O_WRONLY))


def lines_of(path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def numbered(count: int) -> list[str]:
    return [f"line {number}" for number in range(count)]


def test_a_part_s_log_is_copied_on_by_another_leader_without_gap_or_repetition(printing, leader, tmp_path):
    printing("mlp-web-1", "web")
    printing("mlp-nats-0", "nats", 10, "mlp-server")
    printing("mlp-aiops-1", "aiops", 10)
    web, nats = tmp_path / "log/web/mlp-web-1.log", tmp_path / "log/nats/mlp-nats-0.log"
    with leader():
        eventually(lambda: lines_of(web) == numbered(10) and lines_of(nats) == numbered(10))
    go_on(tmp_path / "mlp-web-1", 9)
    with leader(), leader():  # one of two copies
        eventually(lambda: len(lines_of(web)) >= 20)
        go_on(tmp_path / "mlp-web-1", 19)
    assert lines_of(web) == numbered(20)
    assert not (tmp_path / "log/aiops").exists()  # a line about a line would cause another one


def test_a_full_file_is_kept_as_the_one_before(printing, leader, tmp_path, monkeypatch):
    monkeypatch.setattr(part_logs, "FULL_BYTES", 130)  # 20 lines
    printing("mlp-web-1", "web", 30)
    file, before = tmp_path / "log/web/mlp-web-1.log", tmp_path / "log/web/mlp-web-1.log.1"
    with leader():
        for number in (9, 19):
            go_on(tmp_path / "mlp-web-1", number)
        eventually(lambda: lines_of(before) + lines_of(file) == numbered(30))
    assert len(lines_of(before)) >= 18


def test_the_log_of_an_ended_pod_is_read_to_its_end_and_not_again(printing, leader, cluster, tmp_path):
    printing("mlp-setup-1", "setup", 10)
    printing("mlp-web-1", "web", 20)
    go_on(tmp_path / "mlp-setup-1", 9)
    eventually(lambda: cluster.store.get("pods", "mlp-setup-1")["status"]["phase"] == "Succeeded")
    reads = lambda name: sum(path.endswith(f"/{name}/log") for _method, path in list(cluster.requests))  # noqa: E731
    with leader():
        eventually(lambda: lines_of(tmp_path / "log/setup/mlp-setup-1.log") == numbered(10))
        eventually(lambda: lines_of(tmp_path / "log/web/mlp-web-1.log") == numbered(10))
        cluster.break_streams()
        looks = sum(path.endswith("/pods") for _method, path in list(cluster.requests))
        eventually(lambda: sum(path.endswith("/pods") for _method, path in list(cluster.requests)) > looks + 3)
    assert reads("mlp-setup-1") == 1 < reads("mlp-web-1")


def test_files_of_pods_that_are_gone_are_removed_after_a_while(printing, leader, cluster, tmp_path):
    printing("mlp-web-1", "web", 10)
    printing("mlp-web-2", "web", 10)
    files = {name: tmp_path / f"log/web/{name}.log" for name in ("mlp-web-1", "mlp-web-2", "mlp-web-3")}
    with leader():
        eventually(lambda: all(lines_of(files[name]) == numbered(10) for name in ("mlp-web-1", "mlp-web-2")))
    go_on(tmp_path / "mlp-web-1", 9)
    cluster.store.remove("pods", "mlp-web-1")
    notes = tmp_path / "run/pods/parts"
    with leader():
        eventually(lambda: files["mlp-web-1"].exists())  # its last lines may still be wanted
        old = time.time() - part_logs.KEPT_S - 1
        os.utime(notes / "mlp-web-1.json", (old, old))
        eventually(lambda: not files["mlp-web-1"].exists() and not (notes / "mlp-web-1.json").exists())
    assert files["mlp-web-2"].exists()
