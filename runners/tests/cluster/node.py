"""The fake cluster's one node: places pods, runs their commands as processes, keeps their output with times."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from kubernetes.utils.quantity import parse_quantity

from runners.kubernetes.config import ClusterConfig
from runners.kubernetes.inventory import has_affinity, is_tolerated
from runners.kubernetes.object_names import DOMAIN

from .store import Store, now
from .validation import Refusal

INDEX = "batch.kubernetes.io/job-completion-index"


NAME = "node-1"
GPU_TAINT = ClusterConfig(Path("/"), gpu_resource="")  # no taint is left out
RECORD = 16 << 10  # bytes: a container runtime keeps a longer line in parts, each with a time of its own


@dataclass
class Record:
    """A line of output, or a part of a line that has not ended yet."""

    time: float
    text: bytes

    def render(self, with_time: bool) -> bytes:
        whole, part = divmod(time_ns := int(self.time * 1e9), 10**9)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{part:09d}Z "
        assert time_ns
        return (stamp.encode() if with_time else b"") + self.text


@dataclass
class Output:
    records: list[Record] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    removed: bool = False  # with its container


class Node:
    """`held`: no pod starts, so that a test can decide its end; `silent`: none ends, as on a node without network;
    `bad_images` cannot be pulled.
    """

    def __init__(self, store: Store, root: Path):
        self.store, self.root = store, Path(root)
        self.capacity = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2", "ephemeral-storage": "100Gi"}
        self.bad_images: dict[str, tuple[str, str]] = {}
        self.claims: dict[str, Path] = {}
        self.held = self.silent = False
        self.crash_pause_s = 0.3
        self.links = tempfile.TemporaryDirectory()
        self.outputs: dict[str, Output] = {}
        self.processes: dict[str, subprocess.Popen] = {}
        self.addresses: dict[str, str] = {}  # of pods that listen
        self.lock = threading.Lock()
        self.stopping = False

    def stop(self) -> None:
        self.stopping = True
        for process in list(self.processes.values()):
            kill(process, signal.SIGKILL)

    def output(self, name: str) -> Output:
        if self.store.get("pods", name) is None:
            raise Refusal(404, "NotFound", f'pods "{name}" not found')
        path = self.outputs.get(name)
        if path is None:
            words = f'container "run" in pod "{name}" is waiting to start: ContainerCreating'
            raise Refusal(400, "BadRequest", words)
        return path

    def usage(self, pod: dict) -> dict | None:
        """Return the usage as metrics-server does, of the first process only: CPU since its start, memory now."""
        process = self.processes.get(pod["metadata"]["name"])
        with contextlib.suppress(AttributeError, OSError, IndexError):
            words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks, clock = sum(map(int, words[11:13])), os.sysconf("SC_CLK_TCK")
            age = float(Path("/proc/uptime").read_text().split()[0]) - int(words[19]) / clock
            cpu, pages = int(ticks / clock / max(age, 0.01) * 1e9), int(words[21])
            used = {"cpu": f"{cpu}n", "memory": f"{pages * os.sysconf('SC_PAGE_SIZE') >> 10}Ki"}
            meta = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
            metrics = {"timestamp": now(), "window": "10s", "containers": [{"name": "run", "usage": used}]}
            return {"metadata": meta | {"creationTimestamp": now()}} | metrics
        return None

    # --- a pod's life -------------------------------------------------------------------------------------
    def sync(self, pod: dict) -> None:
        """Reconcile every pod; called whenever anything has changed."""
        if pod["metadata"]["namespace"] != self.store.namespace:
            return  # others' pods are numbers only
        name, phase = pod["metadata"]["name"], pod["status"].get("phase", "Pending")
        process = self.processes.get(name)
        if pod["metadata"].get("deletionTimestamp"):
            if self.silent:
                return
            if phase in {"Succeeded", "Failed"} or process is None:
                self._gone(name, phase)
            elif process is not None:
                self._end(name, process, pod["metadata"]["deletionGracePeriodSeconds"])
        elif phase == "Pending" and name not in self.outputs and not self.held:
            problem = self.place(pod) or self.pull(pod)
            if not problem:
                self._start(pod)

    def _gone(self, name: str, phase: str) -> None:
        if phase not in {"Succeeded", "Failed"}:
            self.store.set_status("pods", name, phase="Failed")
        # A moment longer, as by the finalizer by which the Job controller counts pods.
        threading.Timer(0.15, self.store.remove, ("pods", name)).start()

    def place(self, pod: dict) -> bool:
        """Return whether it cannot be scheduled, which is recorded in its conditions."""
        wanted = pod["spec"]["containers"][0].get("resources", {}).get("requests", {})
        short = [key for key, value in wanted.items() if parse_quantity(value) > self.free(key)]
        condition = {"type": "PodScheduled", "status": "True"}
        node = self.store.get("nodes", NAME) or {"metadata": {}}
        if not has_affinity(node, pod["spec"]):
            message = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            short = ["affinity"]
        elif not is_tolerated(node, pod["spec"].get("tolerations") or [], GPU_TAINT):
            message = "0/1 nodes are available: 1 node(s) had untolerated taint {…}."
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
            short = ["taint"]
        elif short:
            message = f"0/1 nodes are available: 1 Insufficient {short[0]}. preemption: 0/1 nodes are available: 1 No"
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        else:
            self.store.bind(pod["metadata"]["name"], NAME)
        self.store.set_status("pods", pod["metadata"]["name"], phase="Pending", conditions=[condition])
        return bool(short)

    def free(self, key: str):
        pods = [pod for pod in self.store.list("pods") if pod["metadata"]["name"] in self.processes]
        requests = [pod["spec"]["containers"][0].get("resources", {}).get("requests", {}) for pod in pods]
        return parse_quantity(self.capacity.get(key, "0")) - sum(
            parse_quantity(each.get(key, "0")) for each in requests
        )

    def pull(self, pod: dict) -> bool:
        container = pod["spec"]["containers"][0]
        reason, message = self.bad_images.get(container["image"], ("", ""))
        for source in container.get("envFrom") or []:
            if self.store.get("secrets", source["secretRef"]["name"]) is None:
                reason, message = "CreateContainerConfigError", f'secret "{source["secretRef"]["name"]}" not found'
        if reason:
            self.waiting(pod["metadata"]["name"], reason, message)
        return bool(reason)

    def waiting(self, name: str, reason: str, message: str, **more) -> None:
        state = {"state": {"waiting": {"reason": reason, "message": message}}} | more
        self.store.set_status("pods", name, phase="Pending", containerStatuses=[{"name": "run"} | state])

    def surroundings(self, pod: dict) -> tuple[dict[str, str], dict[str, str], str]:
        """Return the folders of the container's mounts, its environment and its working folder."""
        container = pod["spec"]["containers"][0]
        where = {mount["mountPath"]: self.folder(pod, mount) for mount in container["volumeMounts"]}
        where = self.together({path: folder for path, folder in where.items() if folder})
        return where, self.environment(pod, container, where), rewritten(container["workingDir"], where)

    def together(self, where: dict[str, str]) -> dict[str, str]:
        """Return the places with links in one folder for files that are mounted into one folder of the container."""
        files = {path: Path(place) for path, place in where.items() if Path(place).is_file()}
        for path, place in files.items():
            beside = sorted(f"{other}\0{files[other]}" for other in files if Path(other).parent == Path(path).parent)
            folder = Path(self.links.name) / hashlib.sha256("\0".join(beside).encode()).hexdigest()[:16]
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(FileExistsError):
                (folder / Path(path).name).symlink_to(place)
            where[path] = str(folder / Path(path).name)
        return where

    def _start(self, pod: dict) -> None:
        name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]
        where, environment, folder = self.surroundings(pod)
        command = [rewritten(expanded(word, environment), where) for word in container["command"]]
        command = [self.address(name) if before == "--host" else word for before, word in pairwise(["", *command])]
        output = self.outputs[name] = Output()
        begun = time.time()
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            words = f'exec: "{command[0]}": {error.strerror}'
            end = {"exitCode": 128, "reason": "StartError", "message": words}
            self._ended(name, begun, end)
            return
        self.processes[name] = process
        before = (pod["status"].get("containerStatuses") or [{"restartCount": 0}])[0]
        running = before | {"name": "run", "state": {"running": {"startedAt": now()}}, "ready": False}
        self.store.set_status("pods", name, phase="Running", startTime=now(), containerStatuses=[running])
        threading.Thread(target=self._read, args=(name, process, output, begun), daemon=True).start()

    def address(self, name: str) -> str:
        """Return the pod's own address: a service of each pod listens at its port."""
        return self.addresses.setdefault(name, f"127.0.1.{len(self.addresses) % 250 + 1}")

    def address_of_service(self, name: str) -> str:
        """Return the address of a pod behind the service, the newest one."""
        label = f"{DOMAIN}/run"
        pods = self.store.list("pods", lambda each: each["metadata"].get("labels", {}).get(label) == name)
        known = [self.addresses[pod["metadata"]["name"]] for pod in pods if pod["metadata"]["name"] in self.addresses]
        return known[-1] if known else "127.0.0.1"

    def folder(self, pod: dict, mount: dict) -> str:
        volume = next(each for each in pod["spec"]["volumes"] if each["name"] == mount["name"])
        claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
        root = self.root if mount["name"] == "storage" else self.claims.get(claim)
        return str(root / mount.get("subPath", "")) if root else ""

    def environment(self, pod: dict, container: dict, where: dict) -> dict[str, str]:
        variables = {}
        for source in container.get("envFrom") or []:
            data = self.store.get("secrets", source["secretRef"]["name"])["data"]
            variables |= {key: base64.b64decode(value).decode() for key, value in data.items()}
        for each in container.get("env") or []:
            value = each.get("value")
            if value is None:
                path = each["valueFrom"]["fieldRef"]["fieldPath"]
                value = NAME if path == "spec.nodeName" else pod["metadata"]["annotations"][INDEX]
            variables[each["name"]] = value
        variables = {
            key: ":".join(rewritten(part, where) for part in value.split(":")) for key, value in variables.items()
        }
        return {key: re.sub(r"^mlp-.*-0\..*\.svc\..*$", "127.0.0.1", value) for key, value in variables.items()}

    def _read(self, name: str, process: subprocess.Popen, output: Output, begun: float) -> None:
        last = 0.0
        while text := process.stdout.readline(RECORD):
            last = max(time.time(), last + 1e-6)
            whole = text.endswith(b"\n") or len(text) == RECORD
            output.records.append(Record(last, text if whole else text + b"\n"))
        code = process.wait()
        kill(process, signal.SIGKILL)  # the rest of its group
        output.over.set()
        self.processes.pop(name, None)
        code = 128 - code if code < 0 else code
        if not self.stopping:
            self._ended(name, begun, {"exitCode": code, "reason": "Error" if code else "Completed"})

    def _ended(self, name: str, begun: float, end: dict) -> None:
        self.outputs[name].over.set()
        pod = self.store.get("pods", name)
        if pod is None:
            return
        end |= {"startedAt": now(begun - time.time()), "finishedAt": now()}
        if pod["spec"].get("restartPolicy", "Always") == "Always" and not pod["metadata"].get("deletionTimestamp"):
            before = (pod["status"].get("containerStatuses") or [{}])[0].get("restartCount", 0)
            last = {"lastState": {"terminated": end}, "restartCount": before + 1, "ready": False}
            if before:
                self.waiting(name, "CrashLoopBackOff", "back-off 10s restarting failed container", **last)
                return
            self.waiting(name, "ContainerCreating", "", **last)
            self.outputs.pop(name, None)
            return
        phase = "Failed" if end["exitCode"] else "Succeeded"
        state = {"name": "run", "state": {"terminated": end}, "restartCount": 0, "ready": False}
        self.store.set_status("pods", name, phase=phase, containerStatuses=[state])

    def _end(self, name: str, process: subprocess.Popen, grace: float) -> None:
        kill(process, signal.SIGTERM)
        due = time.monotonic() + grace
        with self.lock:
            if getattr(process, "due", due + 1) <= due:
                return
            process.due = due
        timer = threading.Timer(grace, kill, (process, signal.SIGKILL))
        timer.daemon = True
        timer.start()

    def probe(self) -> None:
        """Check readiness as the kubelet does."""
        for pod in self.store.list("pods"):
            container = pod["spec"]["containers"][0]
            name, statuses = pod["metadata"]["name"], pod["status"].get("containerStatuses") or []
            probes = [container[key] for key in ("startupProbe", "readinessProbe") if key in container]
            if name not in self.processes or not probes or not statuses:
                continue
            ready = all(succeeds(self.addresses.get(name, "127.0.0.1"), probe) for probe in probes)
            if "running" in statuses[0]["state"] and statuses[0]["ready"] != ready:
                self.store.set_status("pods", name, containerStatuses=[statuses[0] | {"ready": ready}])


def succeeds(host: str, probe: dict) -> bool:
    to = probe.get("httpGet") or probe["tcpSocket"]
    link = http.client.HTTPConnection(host, to["port"], timeout=1)
    try:
        link.connect()
        if "path" not in to:
            return True
        link.request("GET", to["path"])
        return link.getresponse().status < 400
    except OSError:
        return False
    finally:
        link.close()


def expanded(word: str, environment: dict[str, str]) -> str:
    """Expand variables as the kubelet does: `$(NAME)` where there is one; `$$` is `$`."""

    def value_of(match: re.Match) -> str:
        return "$" if match[0] == "$$" else environment.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", value_of, word)


def rewritten(word: str, where: dict[str, str]) -> str:
    for path, folder in where.items():
        if word == path or word.startswith(f"{path}/"):
            return folder + word[len(path) :]
    return word


def kill(process: subprocess.Popen, number: int) -> None:
    """Kill all processes of the container. (A pod of the fake cluster may get two requests: the second is for its end
    only.)
    """
    if number == signal.SIGTERM and getattr(process, "asked", False):
        return
    process.asked = True
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
