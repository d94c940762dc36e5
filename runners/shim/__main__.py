"""The supervisor of one run, independent of the server that started it: log, stop requests, record of the end.

A fork of the spawner (`spawner.py`), which has this code loaded, so that it starts in milliseconds; standard library
only. A run has three processes:

    shim     holds the lock, copies the output into the log, accepts stop requests, writes the record of the end
    guard    starts the script, reaps all its descendants, kills what is left (`guard.py`)
    script   the command, leader of its own session, with the environment of the spec; one for each worker

If any of them is killed, another one notices and ends the rest: the guard when its pipe from the shim breaks,
the shim when its pipe from the guard breaks (as a subreaper it inherits all orphans), and the script dies
with the guard. Shim and guard hold the lock, so that it is free only when no process of the run is left; the
same holds for the locks of its GPUs.

With isolation by bubblewrap (`runners/confine.py`) the shim executes bubblewrap, which executes the guard as the
first process of the run's own PID namespace: when it ends, the kernel kills everything in it.

Files in the run's folder: `spec.json`, `lock`, `begun.json` (written before the script exists; from then on
the name is never started again), `stop.json` and `attach-….json` (requests), `control` (a FIFO that wakes the shim),
`exit.json`, `shim.log`, `tmp` (the run's own /tmp). A service has a socket elsewhere (`service_socket.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time

import attach
import cgroup
import disk
import ends
import guard
import isolation
import limits
import privileges
import reasons
import relay
import route
import service_socket
import spawner
import usage
from log import Lines, Log, open_below
from prepare import prepare
from reasons import message
from record import RECORD_SIZE, private, write_record

OUT_OF_MEMORY = (
    b"MemoryError",
    b"std::bad_alloc",
    b"out of memory",
    b"Cannot allocate memory",
    b"can't allocate memory",
)
OF_A_GPU = (b"CUDA", b"cuda", b"HIP", b"GPU")  # its memory is not what the run has requested


class Shim:
    """The loop that waits for output, reports of the guard and stop requests."""

    def __init__(self, folder: str, spec: dict, lock: int):
        self.folder, self.spec, self.lock = folder, spec, lock
        self.over: reasons.Reason = ""  # which of its limits it has exceeded
        self.out_of_memory = 0
        self.stopping = ""  # the reason
        self.deadline: float | None = None  # the end of the grace period, on the monotonic clock
        self.forced = False
        self.end: dict = {}  # the guard's last report
        self.begun = {"run_id": spec["run_id"], "shim": os.getpid(), "script": None, "started": time.time()}
        self.oom_kills = disk.oom_kills()
        control = os.path.join(folder, "control")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(control, 0o600)
        # Open for both, so that it never reports an end when the last caller closes it.
        self.control = os.open(control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.signals, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def begin(self) -> None:
        """Put the run on record. From here on its name is never started again."""
        with open(self.path("exit.part"), "wb", opener=private) as file:
            file.write(b" " * RECORD_SIZE)
            file.flush()
            os.fsync(file.fileno())
        write_record(self.path("begun.json"), self.begun)

    # --- the run ------------------------------------------------------------------------------------------
    def run(self) -> None:
        try:
            log = Log(self.spec["cwd"], self.spec["log"], self.spec["log_limit"])
        except OSError as error:
            self.end = {
                "failed": message("log file %(path)s: %(problem)s", path=self.spec["log"], problem=error.strerror)
            }
            return
        try:
            prepare(self.spec)
            self.spec["service_socket"] = service_socket.bind(self.spec["socket"]) if self.spec["socket"] else None
        except (OSError, RecursionError) as error:
            self.end = {"failed": message("its files could not be prepared: %(problem)s", problem=str(error))}
            return
        self.read_request()
        if self.stopping:
            self.end = {"failed": message("stopped before it started")}
        else:
            self.make_group()
            outputs, self.reports, self.commands = self.start_guard()
            self.keep_bounds()
            self.watch(log, outputs)
            self.out_of_memory = self.group.oom_kills()
            self.group.kill()
            self.group.remove()
        lines = [line for line in log.tail[-4096:].splitlines() if not any(words in line for words in OF_A_GPU)]
        self.oom_text = any(words in line for line in lines for words in OUT_OF_MEMORY)
        log.close()

    def make_group(self) -> None:
        """Make the control group; where the kernel does not accept its limits the guard enforces them by itself."""
        workers = self.spec["workers"]
        self.group = cgroup.Group(self.spec["cgroup"], self.spec["run_id"])
        self.spec["join"] = []
        try:
            ram, cpus = self.spec["ram_mib"] * workers, self.spec["cpu"] * workers
            self.group.make(ram, self.spec["processes"], cpus)
            self.spec["join"] = self.group.open()
        except OSError as error:
            print(f"no control group: {error}", file=sys.stderr, flush=True)
            self.group.remove()
            self.spec["cgroup"], self.group = {}, cgroup.Group({}, "")

    def start_guard(self) -> tuple[list[int], int, int]:
        pipes = [os.pipe2(os.O_CLOEXEC) for _ in range(self.spec["workers"])]
        outputs, log_ends = [pipe[0] for pipe in pipes], [pipe[1] for pipe in pipes]
        reports, report_end = os.pipe2(os.O_CLOEXEC)
        command_end, commands = (end.detach() for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        self.relay = relay.Relay(self.spec)
        if (child := os.fork()) == 0:
            for fd in (*outputs, reports, commands, self.control, self.signals, self.relay.mine.detach()):
                os.close(fd)
            if self.spec["isolation"] == "bwrap":
                isolation.enter(self.spec, [self.lock, *self.spec["gpu_locks"]], log_ends, command_end, report_end)
            guard.main(self.spec, log_ends, command_end, report_end)
        self.gone = guard.end_of(child)
        for fd in (*log_ends, report_end, command_end, *guard.handed(self.spec), *self.spec.pop("held").values()):
            os.close(fd)
        return outputs, reports, commands

    def keep_bounds(self) -> None:
        def stop(reason: reasons.Reason) -> None:
            self.over = reason
            os.write(self.control, b".")

        folders = [self.spec["cwd"], self.spec["tmp"]]
        try:
            watcher = disk.Disk(folders, self.spec["disk_mib"] or 0, self.spec["reserve_mib"], stop)
        except disk.Unbounded as problem:  # left by an earlier attempt
            return stop(problem.reason)
        watcher.pids = lambda: [pid for pid in guard.descendants(os.getpid()) if pid not in self.relay.pids]
        # The kernel may have killed one process of many, for which the others would wait.
        watcher.others = [lambda: self.too_much_memory() if self.group.oom_kills() else ""]
        if "memory" not in self.spec["cgroup"]:
            watcher.others.append(lambda: self.hidden_memory(watcher.pids()))
        watcher.start()
        self.keep_usage(watcher)

    def hidden_memory(self, pids: list[int]) -> reasons.Reason:
        """Return the reason to end a run whose files in memory are too large, which the guard cannot look at."""
        held, most = disk.unnamed(pids), self.spec["ram_mib"] * self.spec["workers"] * limits.MIB
        return self.too_much_memory() if held and limits.proportional(pids, held) > most else ""

    def keep_usage(self, watcher: disk.Disk) -> None:
        """Record the resource usage; where its file cannot be opened the run goes on without."""
        if not self.spec["usage"]:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            # The second one is for the platform, which believes nothing that the run may have written.
            files = [open_below(self.spec["cwd"], self.spec["usage"]), os.open(self.path("usage.jsonl"), flags, 0o600)]
        except OSError as error:
            return print(f"the resource usage is not recorded: {error}", file=sys.stderr, flush=True)
        devices = self.spec["environment"].get("CUDA_VISIBLE_DEVICES", "") if self.spec["gpu"] else ""
        known = (lambda: watcher.grown) if self.spec["disk_mib"] else (lambda: None)
        usage.Usage(files, list(filter(None, devices.split(","))), watcher.pids, known).start()

    def watch(self, log: Log, outputs: list[int]) -> None:
        """Serve until the guard has ended, which it does only when no process below it is left; then read what
        is still in the pipes.
        """
        sinks = {fd: log if len(outputs) == 1 else Lines(log, rank) for rank, fd in enumerate(outputs)}
        poller = select.poll()
        for fd in (*outputs, self.reports, self.control, self.signals, self.gone, self.relay.poller):
            poller.register(fd, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll(self.wait_ms())}
            for output in ready & sinks.keys():
                data = os.read(output, 1 << 16)
                sinks[output].write(data)
                if not data:
                    poller.unregister(output)
            if self.signals in ready:
                os.read(self.signals, 512)
                self.ask_to_stop(self.spec["grace_s"], message("stopped because its supervisor received SIGTERM"))
            if self.control in ready:
                os.read(self.control, 4096)
                self.read_request()
                attach.pass_on(self.folder, self.commands)
                if self.over:
                    self.command(b"K")
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self.deadline, self.forced = None, True
                self.command(b"K")
            self.relay.poll()
            self.group.settle()
            if self.gone in ready:  # a bubblewrap killed at its start leaves a process that would hang for ever
                poller.unregister(self.gone)
                guard.kill_below()
            if self.reports in ready and not self.read_reports():
                break
        guard.kill_below()  # nothing, unless the guard itself was killed
        for output, sink in sinks.items():
            os.set_blocking(output, False)
            with contextlib.suppress(BlockingIOError):
                while data := os.read(output, 1 << 16):
                    sink.write(data)
            if sink is not log:
                sink.close()

    def wait_ms(self) -> float | None:
        due = [at for at in (self.deadline, self.group.settles, self.relay.next_due()) if at is not None]
        return max(0, min(due) - time.monotonic()) * 1000 + 1 if due else None

    def read_reports(self) -> bool:
        """Return False at the end of the guard. A report is one line, shorter than an atomic write to a pipe."""
        data = os.read(self.reports, 1 << 16)
        for line in data.splitlines():
            report = json.loads(line)
            if "script" in report:
                self.begun.update(report)
                with contextlib.suppress(OSError):  # for people only, nothing depends on it
                    write_record(self.path("begun.json"), self.begun)
            elif "over" in report:
                self.over = self.over or report["over"]
            else:
                self.end = report
        return bool(data)

    # --- stopping -----------------------------------------------------------------------------------------
    def read_request(self) -> None:
        with contextlib.suppress(FileNotFoundError, ValueError), open(self.path("stop.json"), "rb") as file:
            self.ask_to_stop(float(json.load(file)["grace_s"]), message("stopped on request"))

    def ask_to_stop(self, grace_s: float, why: reasons.Reason) -> None:
        """Send SIGTERM at the first request; a later one can only shorten the grace period."""
        deadline = time.monotonic() + max(0.0, grace_s)
        if not self.stopping:
            self.stopping, self.deadline, self.grace_s = why, deadline, grace_s
            self.command(b"T")
        elif self.deadline is not None and deadline < self.deadline:
            self.deadline, self.grace_s = deadline, grace_s

    def command(self, letter: bytes) -> None:
        with contextlib.suppress(AttributeError, BrokenPipeError):  # the guard has not started, or has ended
            os.write(self.commands, letter)

    # --- the end ------------------------------------------------------------------------------------------
    def record(self) -> dict:
        status = self.end.get("status")
        code = os.waitstatus_to_exitcode(status) if status is not None else None
        reason = self.reason(code)
        record = {
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": -code if code is not None and code < 0 else None,
            "reason": reasons.text(reason)[:2000],
            "started": self.begun["started"],
            "ended": self.end.get("ended") or time.time(),
        }
        whole = record | {"message": reason}
        return whole if len(json.dumps(whole)) < RECORD_SIZE else record

    def reason(self, code: int | None) -> reasons.Reason:
        """Return what happened, for the run's owner."""
        if "failed" in self.end:
            failed = self.end["failed"]
            return failed if self.stopping else message("could not start: %(problem)s", problem=failed)
        if code is None and self.spec["isolation"] == "bwrap" and not self.begun["script"]:
            with contextlib.suppress(OSError), open(self.path("shim.log"), "rb") as file:
                problem = file.read()[-500:].decode(errors="replace").strip() or "bubblewrap failed"
                return message("could not start: %(problem)s", problem=problem)
        if code is None:
            return message("killed together with its guard process")
        end = reasons.end_reason(code)
        if code and self.spec["workers"] > 1:
            end = message("worker %(rank)s: %(end)s", rank=self.end["rank"], end=end)
        why = self.why(code)
        return message("%(why)s, %(end)s", why=why, end=end) if why else end

    def why(self, code: int) -> reasons.Reason:
        """Return what made the run end so; "" where it ended by itself."""
        if self.over:
            return self.over
        if code and self.out_of_memory:
            return self.too_much_memory()
        if self.stopping and self.forced:
            return message("%(why)s, did not end within %(seconds)s s", why=self.stopping, seconds=f"{self.grace_s:g}")
        if self.stopping:
            return self.stopping
        if code and self.oom_text:
            return message("out of memory (requested %(ram)s MiB)", ram=self.spec["ram_mib"])
        if code == -signal.SIGKILL and disk.oom_kills() > self.oom_kills:
            return message("probably out of memory: the machine had none left")
        return ""

    def too_much_memory(self) -> reasons.Reason:
        return limits.too_much_memory(self.spec["ram_mib"] * self.spec["workers"])

    def finish(self) -> None:
        """Write the record of the end, again and again until it is on disk: until then the run counts as running."""
        if self.spec["socket"]:
            service_socket.remove(self.spec["socket"])
        while True:
            try:
                write_record(self.path("exit.json"), self.record(), room=self.path("exit.part"))
                return ends.tell(self.spec["ends"], self.spec["name"])
            except OSError as error:
                if not os.fstat(self.lock).st_nlink:  # the folder was deleted: nobody looks for the end of this run
                    return None
                print(f"cannot record the end: {error}", file=sys.stderr, flush=True)
                time.sleep(1)


def main(folder: str, lock: int, gpu_locks: list[int], begun: int) -> None:
    """Keep a run until it has ended; write to `begun` when it is on record."""
    os.umask(0o022)
    guard.become_subreaper()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # the wake-up pipe does the work
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        shim = Shim(folder, json.load(file), lock)
    shim.spec["gpu_locks"] = gpu_locks
    if shim.spec["uid"] is not None or shim.spec["isolation"] != "none":
        privileges.hide()
    shim.begin()
    with contextlib.suppress(BrokenPipeError):
        os.write(begun, b".")
    os.close(begun)
    try:
        shim.run()
    except Exception as error:
        guard.kill_below()
        shim.end = {"failed": message("its supervisor failed: %(problem)s", problem=repr(error))}
        raise
    finally:
        shim.finish()


if __name__ == "__main__":
    if sys.argv[1] == "route":
        route.try_here(sys.argv[2:])
        sys.exit()
    spawner.serve(main)
