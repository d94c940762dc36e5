"""Runs as Jobs (work) and Deployments (services) of a Kubernetes cluster. Chosen by `runners.get`.

The Job or Deployment itself is the record: it exists from `start` until `forget`, and its annotations have the state of
the run, so any process of the platform, also after a restart, can read it.

    suspended, no pod, never asked to stop      unknown: being started; `start` again continues
    started, not ended                          running
    annotation "stop", pods exist               running (being stopped)
    annotation "end"                            exited or lost, as written there, whatever happens to the pods

The order of a start: the suspended Job; the objects it owns (Secret, Service, Ingress); then it is resumed. Two
callers, a message that comes twice or a crash in between do no harm.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from kernel.messages import Message, clip, stored
from kernel.sockets import Address
from runners.attaching import Attached, Wanted
from runners.base import NO_SUCH_RUN, STOPPED, Runner, RunSpec, RunStatus, check_name
from runners.errors import RunnerError
from runners.processes import Now, clock

from . import (
    attaching,
    belongings,
    inventory,
    kueue,
    logs,
    object_names,
    objects,
    pod_status,
    routes,
    staging,
    status,
    trouble,
    usage,
)
from .cluster import Cluster, Conflict, Forbidden, NotFound
from .config import ClusterConfig
from .lost_nodes import LostNodes
from .part_logs import PartLogs
from .watch import Watcher, beside, freshest

log = logging.getLogger(__name__)

LOG_PATIENCE_S = 30
TRIES = 8


class KubernetesRunner(Runner):
    """See the module. Many processes may use the same namespace at once; a namespace belongs to one platform."""

    ends_looked_for_s = 0.2

    def __init__(self, config: ClusterConfig):
        self.config, self.cluster = config, Cluster(config)
        self.folder = config.storage_root / "run" / "pods"
        self._watcher: Watcher | None = None
        self._ends: dict[
            str, RunStatus
        ] = {}  # by the uid of the record: ends recorded since the last event of the watch
        self._trouble, self._nodes = trouble.Trouble(self.cluster), inventory.Nodes(self.cluster, config)
        self._workloads = kueue.Workloads(self.cluster)

    # --- verbs --------------------------------------------------------------------------------------------
    def start(self, spec: RunSpec) -> None:
        record = self._record(spec.name)
        if record is None:
            mounts = staging.mounts(spec, self.config)
            staging.chown_to_user(spec, self.config)
            record = self._create(spec, mounts)
        if object_names.END in record["metadata"]["annotations"] or status.stop_of(record) or status.is_begun(record):
            return
        belongings.ensure(self.cluster, spec, record)
        if ingress := objects.ingress(spec, self.config, record):
            routes.hold(self.cluster, ingress, record)
        self._begin(spec.name, record, kueue.queue_for(spec, self.config))

    def poll(self, name: str) -> RunStatus:
        record, pods = self._look(name)
        if record is None:
            return RunStatus("unknown", reason=NO_SUCH_RUN)
        uid = record["metadata"]["uid"]
        if end := status.annotation(record, object_names.END):
            self._ends.pop(uid, None)
            return status.restored_end(end)
        if uid in self._ends:  # recorded, but the watch has not seen it yet
            return self._ends[uid]
        now = time.time()
        state = status.assess(record, pods, now)
        if not state.begun:
            return RunStatus("unknown", reason=Message("the run has not started"))
        if state.ended and self._watcher:  # the pods have the cause, and their watch may be behind that of the record
            pods = freshest(self._pods(record), pods)
            state = status.assess(record, pods, now)
        if state.ended:
            return self._record_end(name, record, pods, state.ended, now)
        if status.stop_of(record):
            if not self._watcher:  # the cluster removes a deleted pod together with its output
                self._finish_logs(record, [pod for pod in pods if pod_status.ran(pod)], whole=False)
            return RunStatus("running", started=state.started)
        if kueue.is_held(record):
            return self._workloads.status(record, now)
        state = state if state.problem else self._trouble.find(record, pods, state, now)
        if state.problem and self._gives_up(record, state, now):
            why = stored(Message("could not start: %(problem)s", problem=state.problem))
            self._halt(record, pods, {"why": why, "failed": True, "grace_s": 1.0})
        reason = state.problem
        if not (reason or state.started) and trouble.is_slow(record, now):
            reason = pod_status.stage(pods)
        if state.started:
            self._workloads.note_start(record)
        return RunStatus("running", reason=reason, started=state.started, waits=state.started is None)

    def _gives_up(self, record: dict, state: status.Assessment, now: float) -> bool:
        """Return whether a run that has not started fails: nothing will help, or the time-out is over. One that only
        waits for others to leave a node that is large enough waits its turn.
        """
        if state.hopeless or now - (state.since or now) <= self.config.start_timeout_s:
            return state.hopeless
        return not (state.turn and self._nodes.fit(record))

    def stop(self, name: str, grace_s: float = 10) -> None:
        record = self._record(name)
        if record is None or object_names.END in record["metadata"]["annotations"] or status.finished(record):
            return
        pods = self._pods(record)
        self._halt(record, pods, {"why": stored(STOPPED), "grace_s": max(0.0, float(grace_s))})

    def forget(self, name: str) -> None:
        if self.poll(name).state == "running":
            raise RunnerError("run %(run)s: still running", run=name)
        key, core = object_names.object_name(name), self.cluster.core
        # These first: a run of the same name that starts right after must not see the old ones.
        self.cluster.delete(core.delete_namespaced_secret, key)
        self.cluster.delete(core.delete_namespaced_service, key)
        if record := self._record(name):
            routes.release(self.cluster, record)
        with contextlib.suppress(Forbidden):  # the roles of an earlier release
            self.cluster.delete(self.cluster.networking.delete_namespaced_network_policy, key)
        self.cluster.delete(self.cluster.batch.delete_namespaced_job, key)
        self.cluster.delete(self.cluster.apps.delete_namespaced_deployment, key)
        logs.remove(self.folder, key)

    def usage_of(self, name: str) -> Path:
        return usage.own(self.folder, object_names.object_name(name))

    def attach(self, name: str, wanted: Wanted) -> Attached:
        record, pods = self._look(name)
        if record is None:
            raise RunnerError("the run has ended")
        return attaching.begin(self.cluster, pods, wanted)

    def now(self, name: str) -> Now:
        record, pods = self._look(name)
        return usage.now(self.cluster, record["metadata"]["name"], pods) if record else Now(clock())

    def names(self) -> list[str]:
        return sorted(each["metadata"]["annotations"][object_names.NAME] for each in self._records())

    def address(self, name: str) -> Address | None:
        record, _ = self._look(name)
        if record is None or record["kind"] != "Deployment" or self.poll(name).state != "running":
            return None
        host = f"{record['metadata']['name']}.{self.config.namespace}.svc.{self.config.cluster_domain}"
        if self.config.service_address == "ip":
            service = self.cluster.get(self.cluster.core.read_namespaced_service, record["metadata"]["name"]) or {}
            host = (service.get("spec") or {}).get("clusterIP") or host
        return host, status.annotation(record, object_names.SPEC)["port"]

    def place(self, source: Path, target: str) -> str:
        return target

    @property
    def python(self) -> str:
        return self.config.python

    def facts(self, runtime: str, image: str = "") -> dict[str, str]:
        return {"MLP_IMAGE": self.config.image(runtime, image)}

    @property
    def images(self) -> Mapping[str, str]:
        return self.config.job_images

    @property
    def many_workers(self) -> bool:
        return True

    @property
    def starts_at_once(self) -> bool:
        return False

    @property
    def listen(self) -> str:
        return "0.0.0.0"  # in its pod; clients use its Service

    def capacity(self) -> dict | None:
        return inventory.capacity(self.cluster, self.config)

    def largest(self, purpose: str, gpu: int) -> dict | None:
        return inventory.largest(self.cluster, self.config, purpose, gpu)

    def gpu_products(self) -> dict[str, int]:
        return inventory.products(self.cluster, self.config)

    def need_gpus(self, kind: str, count: int) -> None:
        inventory.affinity(self.cluster, self.config, kind)  # pods wait for busy nodes by themselves

    @property
    def adds_nodes(self) -> bool:
        return self.config.autoscales

    def reach(self, timeout_s: float) -> None:
        self.cluster.version(timeout_s)

    def gpu_info(self) -> list[dict[str, str]]:
        """Return one entry for each node and GPU resource: node, name, capacity, allocatable."""
        return inventory.gpus(self.cluster)

    @contextlib.contextmanager
    def watch(self, changed: Callable[[], None], ended: Callable[[str], object] | None = None) -> Iterator[None]:
        self._watcher = Watcher(self.cluster, self.folder, changed)
        self._watcher.start()
        try:
            with beside(PartLogs(self.cluster).run):
                yield
        finally:
            watcher, self._watcher = self._watcher, None
            watcher.stop()
            self._ends.clear()

    def watch_nodes(self) -> contextlib.AbstractContextManager[None]:
        return beside(LostNodes(self.cluster).run)

    # --- starting -----------------------------------------------------------------------------------------
    def _create(self, spec: RunSpec, mounts: list[dict]) -> dict:
        make, create = objects.job, self.cluster.batch.create_namespaced_job
        if spec.kind == "service":
            make, create = objects.deployment, self.cluster.apps.create_namespaced_deployment
        body = make(spec, self.config, mounts, inventory.affinity(self.cluster, self.config, spec.gpu_type))
        created = self.cluster.create(create, body) or self._record(spec.name)
        if created is None:
            raise RunnerError("run %(run)s: forgotten while it was being started", run=spec.name)
        return {"kind": body["kind"], "apiVersion": body["apiVersion"]} | created

    def _begin(self, name: str, record: dict, queue: str = "") -> None:
        """Let the pods start, unless the run was asked to stop meanwhile; with a queue when Kueue admits the Job."""
        for _ in range(TRIES):
            with contextlib.suppress(Conflict):  # changed since it was read: read it again
                self._patch(record, kueue.go(record, queue))
                return
            record = self._record(name)
            if record is None:
                raise RunnerError("run %(run)s: forgotten while it was being started", run=name)
            if status.stop_of(record) or status.is_begun(record):
                return
        raise RunnerError("run %(run)s: changed by others again and again while it was being started", run=name)

    # --- ending -------------------------------------------------------------------------------------------
    def _halt(self, record: dict, pods: list[dict], stop: dict) -> None:
        """Record the request, prevent new pods and delete the existing ones. The first request gives the reason; a
        later one can only shorten the grace period.
        """
        started = min((moment for pod in pods if (moment := pod_status.started_at(pod))), default=None)
        before = status.stop_of(record)
        if before:
            stop = before | {"grace_s": min(stop["grace_s"], before["grace_s"])}
        else:
            stop = stop | {"seen": started, "at": time.time()}
        quiet = {"suspend": True} if record["kind"] == "Job" else {"replicas": 0}
        body = {"metadata": {"annotations": {object_names.STOP: json.dumps(stop)}}, "spec": quiet}
        if object_names.queue_of(record):  # else Kueue would resume it
            body["metadata"]["labels"] = {object_names.QUEUE: None}
        with contextlib.suppress(NotFound):
            self._patch(record, body, stale=True)
        for pod in pods:
            if pod_status.is_alive(pod):
                # Never 0: that would remove the pod object while its containers may still run.
                own = pod["spec"].get("terminationGracePeriodSeconds") or 30
                grace = min(own, max(1, math.ceil(stop["grace_s"])))
                name = pod["metadata"]["name"]
                self.cluster.delete(self.cluster.core.delete_namespaced_pod, name, gracePeriodSeconds=grace)

    def _record_end(self, name: str, record: dict, pods: list[dict], end: RunStatus, now: float) -> RunStatus:
        """Complete the log, then record the end, so that the log of an ended run is complete, or says that it is not.
        A failed service is scaled to zero.
        """
        late = now - (end.ended or now) > LOG_PATIENCE_S
        if not self._finish_logs(record, pods, late=late):
            return RunStatus("running", started=end.started)
        end = replace(end, reason=clip(end.reason, 2000), ended=end.ended or now)
        if end.state == "lost" or record["kind"] == "Deployment":
            self._halt(record, pods, {"why": stored(end.reason), "grace_s": 1.0})
        body = {
            "metadata": {"annotations": {object_names.END: json.dumps(asdict(end) | {"reason": stored(end.reason)})}}
        }
        with contextlib.suppress(NotFound, Conflict):
            self._patch(record, body, stale=record["kind"] == "Deployment" or end.state == "lost")
        fresh = self._record(name)
        recorded = status.annotation(fresh, object_names.END) if fresh else {}
        if not recorded:
            return RunStatus("running", started=end.started)
        if self._watcher:
            self._ends[record["metadata"]["uid"]] = status.restored_end(recorded)
        return status.restored_end(recorded)

    def _finish_logs(self, record: dict, pods: list[dict], *, whole: bool = True, late: bool = False) -> bool:
        """Return whether the logs are complete, as far as possible; without `whole` only fetch the output so far.

        One that cannot be fetched is closed with a remark when it is `late`; another process that copies it is waited
        for however long it takes.
        """
        complete = True
        for worker in range(status.annotation(record, object_names.SPEC)["workers"]):
            copy = logs.Copy(self.cluster, self.folder, record, worker)
            with copy.mine() as mine:
                if not mine:  # another process copies it, and will see the same end
                    complete = False
                    continue
                pod = pod_status.newest(pods, worker)
                try:
                    if not whole:
                        copy.catch_up(pod)
                    elif pod and pod_status.ran(pod):
                        copy.finish(pod)
                    else:
                        copy.give_up("the pod is gone; what it wrote last is not known" if copy.position.pod else "")
                except RunnerError as error:
                    log.warning("the log of %s: %s", record["metadata"]["name"], error)
                    complete = complete and late
                    if late:
                        copy.give_up("the rest of the log cannot be had: the cluster did not answer")
                except OSError as error:  # the script has replaced the file by something else
                    log.warning("the log of %s cannot be written: %s", record["metadata"]["name"], error)
        return complete

    # --- looking ------------------------------------------------------------------------------------------
    def _look(self, name: str) -> tuple[dict | None, list[dict]]:
        """Return the record and its pods, from this process's watch if it knows the run, else from the API."""
        check_name(name)
        if self._watcher and (known := self._watcher.known(object_names.object_name(name))):
            return known
        record = self._record(name)
        return record, self._pods(record) if record else []

    def _record(self, name: str) -> dict | None:
        key = object_names.object_name(name)
        record = self.cluster.get(self.cluster.batch.read_namespaced_job, key)
        record = record and {"kind": "Job", "apiVersion": "batch/v1"} | record
        if record is None:
            record = self.cluster.get(self.cluster.apps.read_namespaced_deployment, key)
            record = record and {"kind": "Deployment", "apiVersion": "apps/v1"} | record
        if record is None or record["metadata"].get("deletionTimestamp"):
            return None
        if record["metadata"].get("annotations", {}).get(object_names.NAME) != name:
            raise RunnerError(
                "run %(run)s: %(object)s in namespace %(namespace)s is not the platform's",
                run=name, object=key, namespace=self.config.namespace,
            )  # fmt: skip
        return record

    def _records(self) -> list[dict]:
        """Return all Jobs and Deployments: from memory in the process that watches, where each round asks for them."""
        known = self._watcher.records() if self._watcher else None
        if known is not None:
            return [each for each in known if not each["metadata"].get("deletionTimestamp")]
        jobs = self.cluster.list(self.cluster.batch.list_namespaced_job, object_names.SELECTOR)["items"]
        deployments = self.cluster.list(self.cluster.apps.list_namespaced_deployment, object_names.SELECTOR)["items"]
        return [each for each in jobs + deployments if not each["metadata"].get("deletionTimestamp")]

    def _pods(self, record: dict) -> list[dict]:
        selector = f"{object_names.RUN}={record['metadata']['name']}"
        pods = self.cluster.list(self.cluster.core.list_namespaced_pod, selector)["items"]
        return [pod for pod in pods if pod_status.belongs(pod, record)]

    def _patch(self, record: dict, body: dict, stale: bool = False) -> dict:
        """Patch the record. Raises Conflict when it has changed since it was read, unless `stale` is true."""
        if not stale:
            body.setdefault("metadata", {})["resourceVersion"] = record["metadata"]["resourceVersion"]
        function = self.cluster.batch.patch_namespaced_job
        if record["kind"] == "Deployment":
            function = self.cluster.apps.patch_namespaced_deployment
        return self.cluster.patch(function, record["metadata"]["name"], body)
