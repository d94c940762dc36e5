"""What the process that watches the cluster knows without asking it, so that a round costs no call for each run."""

from __future__ import annotations

import pytest

from runners.kubernetes import watch

from .helpers import end_of, eventually, spec


@pytest.fixture
def watched(kubernetes, monkeypatch):
    monkeypatch.setattr(watch, "PAUSE_S", 0.05)
    with kubernetes.watch(lambda: None):
        eventually(lambda: all(feed.current for feed in kubernetes._watcher.feeds))
        yield kubernetes


def test_all_runs_are_listed_from_memory_by_the_process_that_watches(watched, cluster, tmp_path):
    names = [f"job-{number}-1" for number in range(3)]
    for name in names:
        watched.start(spec(tmp_path, "import time; time.sleep(600)", name))
    eventually(lambda: watched.names() == names)
    asked = len(cluster.requests)
    assert [watched.names() for _ in range(20)] == [names] * 20
    assert not [path for verb, path in cluster.requests[asked:] if verb == "GET" and path.endswith("/jobs")]
    watched.stop(names[0], 0)
    end_of(watched, names[0])
    watched.forget(names[0])
    eventually(lambda: watched.names() == names[1:])


def test_pods_are_known_by_run_also_for_a_while_after_they_are_gone(watched, cluster, tmp_path, monkeypatch):
    for number in (1, 2):
        watched.start(spec(tmp_path, "import time; time.sleep(600)", f"job-{number}-1"))
    eventually(lambda: all(watched.poll(f"job-{number}-1").started for number in (1, 2)))
    pods = watched._watcher.pods

    def gone(key: str) -> list[str]:
        names = [each["metadata"]["name"] for each in pods.of_run(key)]
        return [name for name in names if name not in pods.objects]

    first, second = (pods.of_run(f"mlp-job-{number}-1")[0]["metadata"]["name"] for number in (1, 2))
    cluster.store.delete("pods", first, 1)
    eventually(lambda: gone("mlp-job-1-1") == [first])
    assert gone("mlp-job-2-1") == []
    monkeypatch.setattr(watch, "KEEP_DELETED_S", 0)
    cluster.store.delete("pods", second, 1)
    eventually(lambda: first not in gone("mlp-job-1-1"))
