"""The watch: keeps the runs' objects in memory, copies their logs and records their resource usage.

One lives in the reconcile process, made by `KubernetesRunner.watch`. Without it everything works more slowly and with
more requests to the API server, but no resource usage is recorded.

Each kind of object has a thread: it lists, then watches from the resource version of the list; bookmarks advance that
version; a stream that ends or breaks is resumed from the last version, with growing pauses; after 410 (too old) it
lists again, so missed changes appear as differences.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from runners.errors import RunnerError

from . import logs, object_names, pod_status, status, usage
from .cluster import Cluster, Gone

log = logging.getLogger(__name__)

WATCH_S = 240
PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
KEEP_DELETED_S = 120
FOLLOWERS = 200


class Feed:
    """The objects of one kind as of the last event. `objects` is by name; `gone` has the last state of removed ones.

    `of_run` has both by run, since each round asks for the pods of every run.
    """

    def __init__(self, cluster: Cluster, kind: dict, listing: Callable, changed: Callable[[dict], None]):
        self.cluster, self.kind, self.listing, self.changed = cluster, kind, listing, changed
        self.objects: dict[str, dict] = {}
        self.gone: dict[str, tuple[float, dict]] = {}  # in the order in which they were removed
        self.runs: dict[str, set[str]] = {}
        self.version = ""
        self.current = False  # a list or stream is fresh: memory is what the server has
        self.relists = 0
        self.lock = threading.Lock()

    def run(self, stopped: threading.Event) -> None:
        """List and watch until stopped."""
        pause = PAUSE_S
        while not stopped.is_set():
            try:
                if not self.version:
                    self._list()
                self._watch(stopped)
                pause = PAUSE_S
                continue
            except Gone:
                self.version = ""
                continue
            except RunnerError as error:
                log.warning("watching %s: %s; retrying in %.1f s", self.kind["kind"], error, pause)
            except Exception:  # a bug must not end the watch for good
                log.exception("watching %s; listing again in %.1f s", self.kind["kind"], pause)
                self.version = ""
            self.current = False
            stopped.wait(pause * random.uniform(0.7, 1.3))
            pause = min(LONGEST_PAUSE_S, pause * 2)

    def _list(self) -> None:
        listing = self.cluster.list(self.listing, object_names.SELECTOR)
        fresh = {each["metadata"]["name"]: self.kind | each for each in listing["items"]}
        before = dict(self.objects)
        with self.lock:
            for name in before.keys() - fresh.keys():
                self._remove(name, before[name])
            for name, obj in fresh.items():
                self._put(name, obj)
        self.version, self.current = listing["metadata"]["resourceVersion"], True
        self.relists += 1
        for name in before.keys() | fresh.keys():
            if before.get(name) != fresh.get(name):
                self.changed(fresh.get(name) or before[name])

    def _watch(self, stopped: threading.Event) -> None:
        events = self.cluster.watch(self.listing, self.version, object_names.SELECTOR, WATCH_S)
        self.current = True
        for event in events:
            obj, kind = event["object"], event["type"]
            if kind != "BOOKMARK":
                self._take(kind, self.kind | obj)
            self.version = obj["metadata"]["resourceVersion"]
            if stopped.is_set():
                events.close()
                return

    def _take(self, kind: str, obj: dict) -> None:
        name = obj["metadata"]["name"]
        with self.lock:
            if kind == "DELETED":
                self._remove(name, obj)
            else:
                self._put(name, obj)
            self._forget()
        self.changed(obj)

    def of_run(self, key: str) -> list[dict]:
        """Return the objects of the run of that object name, those just removed too, as not alive."""
        with self.lock:
            names = list(self.runs.get(key, ()))
            there = [self.objects[name] for name in names if name in self.objects]
            last = [self.gone[name][1] for name in names if name not in self.objects and name in self.gone]
        return there + [removed(obj) for obj in last]

    def _put(self, name: str, obj: dict) -> None:
        self.objects[name] = obj
        self.runs.setdefault(run_of(obj), set()).add(name)

    def _remove(self, name: str, obj: dict) -> None:
        self.objects.pop(name, None)
        self.gone.pop(name, None)
        self.gone[name] = (time.monotonic(), obj)
        self.runs.setdefault(run_of(obj), set()).add(name)

    def _forget(self) -> None:
        """Forget what was removed KEEP_DELETED_S ago."""
        while self.gone:
            name, (when, obj) = next(iter(self.gone.items()))
            if when >= time.monotonic() - KEEP_DELETED_S:
                return
            del self.gone[name]
            if name not in self.objects:
                names = self.runs.get(run_of(obj), set())
                names.discard(name)
                if not names:
                    self.runs.pop(run_of(obj), None)


class Watcher:
    """Three feeds, a sampler of resource usage, and a thread for the log of each running pod. `changed` is called after
    each change.
    """

    def __init__(self, cluster: Cluster, folder: Path, changed: Callable[[], None]):
        self.cluster, self.folder, self.report = cluster, folder, changed
        self.stopped = threading.Event()
        self.following: dict[str, threading.Thread] = {}
        self.lock = threading.Lock()
        job = {"kind": "Job", "apiVersion": "batch/v1"}
        deployment = {"kind": "Deployment", "apiVersion": "apps/v1"}
        self.jobs = Feed(cluster, job, cluster.batch.list_namespaced_job, self._moved)
        self.deployments = Feed(cluster, deployment, cluster.apps.list_namespaced_deployment, self._moved)
        self.pods = Feed(cluster, {"kind": "Pod", "apiVersion": "v1"}, cluster.core.list_namespaced_pod, self._moved)
        self.threads = [
            threading.Thread(target=feed.run, args=(self.stopped,), name=f"watch-{feed.kind['kind']}", daemon=True)
            for feed in self.feeds
        ]
        self.threads.append(usage.Sampler(self, cluster, folder))

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """Return the feeds of all kinds of objects."""
        return (self.jobs, self.deployments, self.pods)

    def start(self) -> None:
        """Start the threads."""
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads; they end with their streams, and being daemons do not keep the process alive."""
        self.stopped.set()

    def known(self, key: str) -> tuple[dict, list[dict]] | None:
        """Return the record of that object name and its pods, those just removed too; None when memory may be stale."""
        if not all(feed.current for feed in self.feeds):
            return None
        record = self.jobs.objects.get(key) or self.deployments.objects.get(key)
        if record is None or record["metadata"].get("deletionTimestamp"):
            return None
        if not (status.is_begun(record) or status.stop_of(record)):
            return None  # it may have started since
        return record, [pod for pod in self.pods.of_run(key) if pod_status.belongs(pod, record)]

    def records(self) -> list[dict] | None:
        """Return all Jobs and Deployments of the platform; None when memory may be stale."""
        if not (self.jobs.current and self.deployments.current):
            return None
        objects = []
        for feed in (self.jobs, self.deployments):
            with feed.lock:
                objects += feed.objects.values()
        return objects

    # --- logs ---------------------------------------------------------------------------------------------
    def _moved(self, obj: dict) -> None:
        if obj["kind"] == "Pod" and pod_status.is_alive(obj) and pod_status.ran(obj):
            self._follow(obj)
        self.report()

    def _follow(self, pod: dict) -> None:
        uid = pod["metadata"]["uid"]
        with self.lock:
            self.following = {key: thread for key, thread in self.following.items() if thread.is_alive()}
            if uid in self.following or len(self.following) >= FOLLOWERS or self.stopped.is_set():
                return  # the log is fetched at the end of the run at the latest
            thread = threading.Thread(target=self._copy, args=(pod,), name=f"log-{uid}", daemon=True)
            self.following[uid] = thread
            thread.start()

    def _copy(self, pod: dict) -> None:
        """Copy the log until the pod has ended. The rest is fetched when the end is recorded."""
        key, name = pod["metadata"]["labels"][object_names.RUN], pod["metadata"]["name"]
        pause = PAUSE_S
        while not self.stopped.is_set():
            began = time.monotonic()
            present = self.pods.objects.get(name)
            record = self.jobs.objects.get(key) or self.deployments.objects.get(key)
            if (
                present is None
                or present["metadata"]["uid"] != pod["metadata"]["uid"]
                or not pod_status.is_alive(present)
            ):
                return
            if record is not None:
                copy = logs.Copy(self.cluster, self.folder, record, pod_status.worker_of(pod))
                try:
                    with copy.mine() as mine:
                        if mine:
                            copy.follow(pod, lambda: not self.stopped.is_set() and not self._keeps(name))
                except (RunnerError, OSError) as error:
                    logs.log_interruption(name, error)
            # A stream that lasted a while was healthy, also when silence ended it.
            pause = PAUSE_S if time.monotonic() - began > LONGEST_PAUSE_S else min(LONGEST_PAUSE_S, pause * 2)
            self.stopped.wait(pause)

    def _keeps(self, name: str) -> bool:
        """Return whether the pod has ended and stays, with its output.

        A followed log comes line by line: a copy that is behind then is left to the process that records the end, which
        gets the rest in large parts. The output of a pod that is being deleted is only in the stream.
        """
        pod = self.pods.objects.get(name)
        return pod is not None and not pod_status.is_alive(pod) and not pod["metadata"].get("deletionTimestamp")


def run_of(obj: dict) -> str:
    """Return the object name of the run that the object belongs to."""
    return obj["metadata"].get("labels", {}).get(object_names.RUN, "")


def removed(pod: dict) -> dict:
    """Return the pod as not alive: it was removed, whatever its last state."""
    last = pod.get("status") or {}
    return pod if not pod_status.is_alive(pod) else pod | {"status": last | {"phase": "Failed", "removed": True}}


def freshest(asked: list[dict], remembered: list[dict]) -> list[dict]:
    """Return the pods that the server has now, and the last known state of those that it has removed."""
    there = {pod["metadata"]["uid"] for pod in asked}
    return asked + [removed(pod) for pod in remembered if pod["metadata"]["uid"] not in there]


@contextlib.contextmanager
def beside(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run the function in a thread meanwhile; it ends when its event is set."""
    stopped = threading.Event()
    threading.Thread(target=run, args=(stopped,), daemon=True).start()
    try:
        yield
    finally:
        stopped.set()
