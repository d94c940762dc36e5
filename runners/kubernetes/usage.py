"""What runs use over time, as the cluster's metrics API tells it: CPU and memory of each pod, every 15 seconds or so.
Written down as `RunSpec.usage` says. Disk and GPUs are not part of that API. A thread of the watch (`watch.Watcher`).

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

from runners.base import RunnerError

from . import files, object_names, status
from .cluster import Cluster

log = logging.getLogger(__name__)

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
LOOK_S = 15.0  # how often metrics-server itself looks, unless it is told otherwise
WITHOUT_S = 300.0  # until the next question where nobody serves that API
LOOKS = 600  # in the time that a run has had so far, so that a file stays small however long the run takes
MIB = 1 << 20


def of_pods(cluster: Cluster) -> dict[str, dict]:
    """The PodMetrics of the platform's pods by the pods' names. Raises RunnerError where nobody serves them."""
    listing = client.CustomObjectsApi(cluster.client).list_namespaced_custom_object
    answer = cluster.list(partial(listing, GROUP, VERSION, plural="pods"), object_names.SELECTOR)
    return {each["metadata"]["name"]: each for each in answer["items"]}


class Sampler(threading.Thread):
    """Of all processes that share `folder` one writes. `watcher` knows the runs and their pods."""

    def __init__(self, watcher, cluster: Cluster, folder: Path):
        super().__init__(name="usage", daemon=True)
        self.watcher, self.cluster, self.folder = watcher, cluster, folder
        self.written: dict[str, float] = {}  # object name -> the time of its last line
        self.told = False

    def run(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.folder / "usage.lock", "ab") as lock:
            pause = LOOK_S
            while not self.watcher.stopped.wait(pause):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # kept until the process ends
                    pause = self.look()
                except BlockingIOError:
                    continue
                except Exception:  # a bug must not end it for good
                    log.exception("what runs use")

    def look(self) -> float:
        """Adds a line to each run of which there is news; returns when to look again, in seconds."""
        runs = [run for key in list(self.watcher.jobs.objects) if (run := self.watcher.known(key)) and is_kept(run[0])]
        self.written = {key: when for key, when in self.written.items() if key in self.watcher.jobs.objects}
        if not runs:
            return LOOK_S
        try:
            found = of_pods(self.cluster)
        except RunnerError as error:
            if not self.told:
                log.warning("what runs use is not known: %s", error)
            self.told = True
            return WITHOUT_S
        self.told = False
        for record, pods in runs:
            try:
                self._write(record, [pod for pod in pods if status.is_alive(pod)], found)
            except (OSError, ValueError, KeyError, TypeError) as error:  # its script is in the way; an odd answer
                log.warning("what %s uses cannot be written: %s", record["metadata"]["name"], error)
        return LOOK_S

    def _write(self, record: dict, pods: list[dict], found: dict[str, dict]) -> None:
        key = record["metadata"]["name"]
        started = min((moment for pod in pods if (moment := status.started_at(pod))), default=None)
        mine = [found[pod["metadata"]["name"]] for pod in pods if pod["metadata"]["name"] in found]
        if started is None or not mine:
            return  # a pod is not in it before it was looked at for the first time
        seen = max(status.seconds(each["timestamp"]) for each in mine)
        age = seen - started
        if age < 0 or seen - self.written.get(key, 0.0) < max(1.0, age / LOOKS):
            return
        containers = [one["usage"] for each in mine for one in each["containers"]]
        cpu = sum(float(parse_quantity(one["cpu"])) for one in containers)
        ram = sum(int(parse_quantity(one["memory"])) for one in containers)
        row = {"after": round(age, 1), "cpu": round(cpu, 3), "ram": ram // MIB}
        path = Path(status.annotation(record, object_names.SPEC)["usage"])
        with files.opened(path, self.cluster.settings.storage_root) as file:
            os.write(file, json.dumps(row).encode() + b"\n")
        self.written[key] = seen


def is_kept(record: dict) -> bool:
    """Whether its spec names a file for it, and the run has not ended."""
    return bool(status.annotation(record, object_names.SPEC).get("usage")) and not status.finished(record)
