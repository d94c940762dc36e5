"""The logs of the platform's own parts in the cluster: what their pods print, copied to `log/{part}/{pod}.log` below
the storage root, where they are on one machine as well. So the platform watches itself here, too.

As with runs a copy goes on where it was (logs.py), so no line that the node still keeps is lost or comes twice. A file
that is full becomes `.log.1`; the files of pods that are gone are removed after KEPT_S. The leading `reconcile` copies.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path

from runners.errors import RunnerError

from . import pod_status
from .cluster import Cluster
from .logs import Copy, Position, log_interruption

log = logging.getLogger(__name__)

PODS = "app in (mlp-platform,mlp-server)"  # the label selector of the chart's pods
PART_LABELS = ("mlp-part", "mlp-server")
NOT_COPIED = {"aiops"}  # which does not watch itself: a line about a line would cause another one
LOOK_S = 15.0  # between two looks for new pods
PAUSE_S = 2.0  # before a stream that ended is opened again
FULL_BYTES = 10 << 20
KEPT_S = 7 * 86400


class PartCopy(Copy):
    """The copy of the log of one pod of a part."""

    def __init__(self, cluster: Cluster, folder: Path, pod: dict, file: Path):
        name = pod["metadata"]["name"]
        self.cluster, self.file, self.root = cluster, file, cluster.settings.storage_root
        self.container, self.limit = pod["spec"]["containers"][0]["name"], 1 << 62
        self.notes, self.lock = folder / f"{name}.json", folder / f"{name}.lock"
        self.position, self.marks = Position(), b""

    def _append(self, data: bytes) -> None:
        super()._append(data)
        if self.position.size >= FULL_BYTES and data.endswith(b"\n"):
            self.file.replace(self.file.with_name(f"{self.file.name}.1"))
            self.position.size = 0
            self._record()

    def _open(self, pod: str) -> None:
        if not self.file.exists():  # full, and the process was killed before it had noted that
            self.position.size = 0
        super()._open(pod)

    def _append_marks(self) -> None:
        self.marks = b""  # for the pages of runs only


class PartLogs:
    """The threads that copy, one for each pod. `there`: the pods of the last look, by name."""

    def __init__(self, cluster: Cluster):
        self.cluster, self.root = cluster, cluster.settings.storage_root
        self.notes = self.root / "run" / "pods" / "parts"
        self.there: dict[str, dict] = {}
        self.copying: dict[str, threading.Thread] = {}
        self.whole: set[str] = set()  # the uids of ended pods whose logs are copied

    def run(self, stopped: threading.Event) -> None:
        """Copy until stopped."""
        pause = 0.0
        while not stopped.wait(pause):
            pause = LOOK_S
            try:
                self._look(stopped)
            except (RunnerError, OSError) as error:
                log.warning("the logs of the platform's parts: %s", error)
            except Exception:  # a bug must not end the copying for good
                log.exception("the logs of the platform's parts")

    def _look(self, stopped: threading.Event) -> None:
        pods = self.cluster.list(self.cluster.core.list_namespaced_pod, PODS)["items"]
        self.there = {pod["metadata"]["name"]: pod for pod in pods if _part(pod) not in {"", *NOT_COPIED}}
        self.copying = {name: thread for name, thread in self.copying.items() if thread.is_alive()}
        self.whole &= {pod["metadata"]["uid"] for pod in pods}
        for name, pod in self.there.items():
            if name not in self.copying and pod_status.ran(pod) and pod["metadata"]["uid"] not in self.whole:
                thread = threading.Thread(target=self._copy, args=(name, stopped), name=f"log-{name}", daemon=True)
                self.copying[name] = thread
                thread.start()
        self._remove_old()

    def _copy(self, name: str, stopped: threading.Event) -> None:
        """Copy what the pod prints until it has ended. Its stream ends with its container, which may begin again."""
        while not stopped.is_set() and (pod := self.there.get(name)):
            file = self.root / "log" / _part(pod) / f"{name}.log"
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            copy = PartCopy(self.cluster, self.notes, pod, file)
            try:
                with copy.mine() as mine:
                    if mine:
                        copy.follow(pod, lambda: not stopped.is_set())
                        if not pod_status.is_alive(pod):
                            self.whole.add(pod["metadata"]["uid"])
                            return
            except (RunnerError, OSError) as error:
                log_interruption(name, error)
            stopped.wait(PAUSE_S)

    def _remove_old(self) -> None:
        """Remove the files and notes of pods that are gone, when nothing was written there for long."""
        for notes in self.notes.glob("*.json") if self.there else ():
            name = notes.stem
            if name in self.there or time.time() - notes.stat().st_mtime < KEPT_S:
                continue
            for path in (*self.root.glob(f"log/*/{name}.log*"), notes.with_suffix(".lock"), notes):
                path.unlink(missing_ok=True)


def _part(pod: dict) -> str:
    """Return the name of the part or server, which is that of its folder; empty where the pod is none of the chart."""
    labels = pod["metadata"].get("labels") or {}
    return os.path.basename(next(filter(None, map(labels.get, PART_LABELS)), ""))
