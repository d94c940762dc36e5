"""The resource usage of runs from the cluster's metrics API, in the file that the spec names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runners.kubernetes import usage

from .helpers import end_of, eventually, spec

BUSY = "import time\nheld = bytearray(60 << 20)\nwhile True: sum(range(100_000)); time.sleep(0.02)"


@pytest.fixture
def watched(kubernetes, monkeypatch):
    monkeypatch.setattr(usage, "LOOK_S", 0.05)
    monkeypatch.setattr(usage, "WITHOUT_S", 0.1)
    with kubernetes.watch(lambda: None):
        eventually(lambda: all(feed.current for feed in kubernetes._watcher.feeds))
        yield kubernetes


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def busy(samples: list[dict]) -> bool:
    return max(row["cpu"] for row in samples) > 0.01  # of a machine that is busy with others


@pytest.mark.long
def test_cpu_and_memory_are_recorded_over_time(watched, tmp_path):
    path = tmp_path / "work/log/usage.jsonl"
    watched.start(spec(tmp_path, BUSY, usage=path))
    eventually(lambda: len(samples := rows(path)) >= 3 and max(row["ram"] for row in samples) >= 60 and busy(samples))
    watched.stop("job-1-1", 0)
    end_of(watched)
    samples = rows(path)
    moments = [row["after"] for row in samples]
    assert moments == sorted(set(moments))
    assert all(set(row) == {"after", "cpu", "ram"} for row in samples)
    assert max(row["cpu"] for row in samples) < 4
    assert max(row["ram"] for row in samples) < 200
    assert watched.poll("job-1-1").state == "exited"
    size, other = path.stat().st_size, tmp_path / "other.jsonl"
    watched.start(spec(tmp_path, BUSY, usage=other, name="job-2-1"))
    eventually(lambda: len(rows(other)) >= 3)  # by the same thread
    assert path.stat().st_size == size


def test_workers_are_counted_together(watched, tmp_path):
    path = tmp_path / "work/usage.jsonl"
    watched.start(spec(tmp_path, BUSY, usage=path, workers=2))
    assert eventually(lambda: [row for row in rows(path) if row["ram"] >= 120])


def test_usage_is_recorded_once_the_metrics_api_is_available(watched, cluster, tmp_path):
    cluster.measured = False
    path = tmp_path / "work/usage.jsonl"
    watched.start(spec(tmp_path, BUSY, usage=path))
    asked = "/apis/metrics.k8s.io/v1beta1/namespaces/mlp/pods"
    eventually(lambda: cluster.requests.count(("GET", asked)) > 2)
    assert watched.poll("job-1-1").state == "running"
    assert rows(path) == []
    cluster.measured = True
    assert eventually(lambda: rows(path))


def test_a_run_without_a_usage_file_is_not_queried(watched, cluster, tmp_path, monkeypatch):
    look, looks = usage.Sampler.poll, []
    monkeypatch.setattr(usage.Sampler, "poll", lambda sampler: looks.append(look(sampler)) or looks[-1])
    watched.start(spec(tmp_path, "import os; os.mkfifo('go'); open('go').read()"))
    eventually(lambda: watched.poll("job-1-1").started)
    looks.clear()
    eventually(lambda: len(looks) >= 3)
    (tmp_path / "work/go").write_text("")
    assert end_of(watched).succeeded
    assert not any("metrics.k8s.io" in path for _, path in cluster.requests)


def test_links_instead_of_the_usage_file_are_not_followed(watched, cluster, tmp_path):
    (tmp_path / "precious").write_text("unharmed")
    link = "os.symlink(os.path.abspath('../precious'), 'link'); os.replace('link', 'usage.jsonl')"
    code = f"import os; {link}\n{BUSY}"
    watched.start(spec(tmp_path, code, usage=tmp_path / "work/usage.jsonl"))
    asked = "/apis/metrics.k8s.io/v1beta1/namespaces/mlp/pods"
    eventually(lambda: (tmp_path / "work/usage.jsonl").is_symlink())
    before = cluster.requests.count(("GET", asked))
    eventually(lambda: cluster.requests.count(("GET", asked)) > before + 2)
    assert (tmp_path / "precious").read_text() == "unharmed"


@pytest.mark.long
def test_only_one_of_two_processes_writes(watched, configured, tmp_path):
    path = tmp_path / "work/usage.jsonl"
    second = type(watched)(configured())
    with second.watch(lambda: None):
        watched.start(spec(tmp_path, BUSY, usage=path))
        eventually(lambda: len(rows(path)) >= 3)
    moments = [row["after"] for row in rows(path)]
    assert moments == sorted(set(moments))


def test_what_each_worker_uses_now_is_that_of_the_metrics_api(kubernetes, cluster, tmp_path):
    assert kubernetes.now("job-1-1").workers == ()
    kubernetes.start(spec(tmp_path, BUSY, workers=2))
    found = eventually(lambda: len(now := kubernetes.now("job-1-1").workers) == 2 and now)
    assert [worker.worker for worker in found] == [0, 1]
    eventually(lambda: all(worker.ram >= 60 << 20 for worker in kubernetes.now("job-1-1").workers))
    assert kubernetes.now("job-1-1").note == usage.OF_WORKERS
    cluster.measured = False
    now = kubernetes.now("job-1-1")
    assert (now.workers, now.processes, now.note) == ((), (), usage.NOT_MEASURED)
