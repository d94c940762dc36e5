"""The resource usage of runs over time, from the metrics API: CPU and memory of each pod, about every 15 seconds.

Written to the file that `RunSpec.usage` names. Disk and GPUs are not part of that API. A thread of `watch.Watcher`.

Source: https://github.com/kubernetes/metrics (`metrics.k8s.io/v1beta1`, PodMetrics), which metrics-server serves.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from functools import partial
from pathlib import Path

from kubernetes import client
from kubernetes.utils.quantity import parse_quantity

from kernel.messages import Message
from runners.errors import RunnerError
from runners.processes import Now, WorkerUse, clock

from . import files, object_names, pod_status, status
from .cluster import ApiError, Cluster

log = logging.getLogger(__name__)

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
LOOK_S = 15.0  # the default interval of metrics-server itself
WITHOUT_S = 300.0  # until the next request where the cluster has no such API
LOOKS = 600  # lines a file has at most, whatever the age of the run
MIB = 1 << 20
ABSENT = (404, 503)  # not registered, or what serves it does not run
OF_WORKERS = Message("On Kubernetes the use of each worker is known, about every 15 s, but not that of each process.")
NOT_MEASURED = Message("The cluster does not report what pods use: its metrics API (metrics-server) is missing.")
NOT_YET = Message("The cluster has not measured this run yet.")


def of_pods(cluster: Cluster, selector: str = object_names.SELECTOR) -> dict[str, dict]:
    """Return the PodMetrics of the platform's pods by pod name. Raises RunnerError where the cluster has none."""
    listing = client.CustomObjectsApi(cluster.client).list_namespaced_custom_object
    metrics = cluster.list(partial(listing, GROUP, VERSION, plural="pods"), selector)
    return {each["metadata"]["name"]: each for each in metrics["items"]}


def now(cluster: Cluster, key: str, pods: list[dict]) -> Now:
    """Return what each worker of the run has used as of the last sample. Raises RunnerError."""
    try:
        metrics = of_pods(cluster, f"{object_names.RUN}={key}")
    except ApiError as error:
        if error.status not in ABSENT:
            raise
        return Now(clock(), note=NOT_MEASURED)
    workers = {}
    for pod in filter(pod_status.is_alive, pods):
        if measured := metrics.get(pod["metadata"]["name"]):
            workers[pod_status.worker_of(pod)] = _sum(measured)
    rows = tuple(WorkerUse(worker, *workers[worker]) for worker in sorted(workers))
    return Now(clock(), workers=rows, note=OF_WORKERS if rows else NOT_YET)


def _sum(metrics: dict) -> tuple[float, int]:
    """Return the cores and the bytes that the containers of a pod use."""
    used = [container["usage"] for container in metrics["containers"]]
    cpu = sum(float(parse_quantity(each["cpu"])) for each in used)
    return cpu, sum(int(parse_quantity(each["memory"])) for each in used)


class Sampler(threading.Thread):
    """Writes the usage of all runs; of all processes that share `folder` only one does. `watcher` has the runs."""

    def __init__(self, watcher, cluster: Cluster, folder: Path):
        super().__init__(name="usage", daemon=True)
        self.watcher, self.cluster, self.folder = watcher, cluster, folder
        self.written: dict[str, float] = {}  # object name -> the time of its last line
        self.warned = False

    def run(self) -> None:
        """Sample until the watcher is stopped."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / "usage.lock", "ab") as lock:
            pause = LOOK_S
            while not self.watcher.stopped.wait(pause):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # kept until the process ends
                    pause = self.poll()
                except BlockingIOError:
                    continue
                except Exception:  # a bug must not end it for good
                    log.exception("sampling the resource usage of runs")

    def poll(self) -> float:
        """Add a line for each run with new metrics; return the seconds until the next look."""
        runs = [run for key in list(self.watcher.jobs.objects) if (run := self.watcher.known(key)) and is_kept(run[0])]
        self.written = {key: when for key, when in self.written.items() if key in self.watcher.jobs.objects}
        if not runs:
            return LOOK_S
        try:
            metrics = of_pods(self.cluster)
        except RunnerError as error:
            if not self.warned:
                log.warning("the metrics API gives no resource usage: %s", error)
            self.warned = True
            return WITHOUT_S
        self.warned = False
        for record, pods in runs:
            try:
                self._write(record, [pod for pod in pods if pod_status.is_alive(pod)], metrics)
            except (
                OSError,
                ValueError,
                KeyError,
                TypeError,
            ) as error:  # the script has replaced the file; an odd reply
                log.warning("the resource usage of %s cannot be written: %s", record["metadata"]["name"], error)
        return LOOK_S

    def _write(self, record: dict, pods: list[dict], metrics: dict[str, dict]) -> None:
        key = record["metadata"]["name"]
        started = min((moment for pod in pods if (moment := pod_status.started_at(pod))), default=None)
        mine = [metrics[pod["metadata"]["name"]] for pod in pods if pod["metadata"]["name"] in metrics]
        if started is None or not mine:
            return  # a new pod has no metrics yet
        seen = max(pod_status.seconds(each["timestamp"]) for each in mine)
        age = seen - started
        if age < 0 or seen - self.written.get(key, 0.0) < max(1.0, age / LOOKS):
            return
        cpu, ram = map(sum, zip(*map(_sum, mine), strict=True))
        line = json.dumps({"after": round(age, 1), "cpu": round(cpu, 3), "ram": ram // MIB}).encode() + b"\n"
        with own(self.folder, key).open("ab") as file:
            file.write(line)
        self.written[key] = seen
        path = Path(status.annotation(record, object_names.SPEC)["usage"])
        with files.opened(path, self.cluster.settings.storage_root) as opened:
            os.write(opened, line)


def own(folder: Path, object_name: str) -> Path:
    """Return the file that no run can write. It is removed with what else is kept of the run (logs.remove)."""
    return folder / f"{object_name}.usage"


def is_kept(record: dict) -> bool:
    """Return whether the usage of the run is recorded: its spec names a file, and it has not ended."""
    return bool(status.annotation(record, object_names.SPEC).get("usage")) and not status.finished(record)
