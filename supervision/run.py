"""`manage.py up`: starts the platform, stays in the foreground, stops it in order. See `up` and `down`.

What happens when something is killed:

    up           its lock ends with it; supervisord and the parts go on, and the next `up` ends them before it starts
    supervisord  the parts die with it (launch.py), and `up` starts it again
    a part       supervisord starts it again; launch.py first ends what is left of the old one
    a set-up     migrations are transactions, the database cluster is renamed into place when it is complete
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

import runners
from kernel import machine
from runners.gpus import devices
from supervision import health

from . import forking, launch, leftovers, ports, release, reserve, setup, tls
from .control import Supervisord, SupervisorEnding, SupervisorGone, pid_file, restarted
from .part import Part, run_dir
from .parts import LOADED, platform_parts
from .root import HALF_RESTORED, holder, lock, make_root
from .waiting import Waiting
from .watchdog import Watchdog

START_LIMIT_S = 300  # a busy machine takes its time; a part that crashes is noticed at once (TOO_OFTEN)
TOO_OFTEN = 3  # a part that ends at once this often in a row, while the platform starts, has failed
RUNS_GRACE_S = 4
LOOK_EVERY_S = 2
SOON_S = 0.2  # while something is not as it should be
ASK_EVERY_S = 10  # for the processes of the parts, though none has ended
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(Exception):
    """A signal arrived while the platform was starting."""


class Failed(Exception):
    """The platform cannot be started; the message is shown at the terminal."""


def up() -> int:
    """Run the platform until a signal comes; return 0 when everything has ended in order, 1 when it could not be
    started.
    """
    os.umask(0o077)  # only the owner may read what the platform stores
    make_root()
    if (settings.MLP_ROOT / HALF_RESTORED).exists():
        say(
            f"{settings.MLP_ROOT} has not been restored completely. Run `manage.py restore` again, or remove the "
            "folder."
        )
        return 1
    with lock() as held:
        if not held:
            say(f"The platform on {settings.MLP_ROOT} is running already (process {holder() or 'unknown'}).")
            say("Stop it first (Ctrl-C there, or `make down`), or choose another MLP_ROOT and MLP_PORT_BASE.")
            return 1
        try:
            release.check_root()
            runners.get()  # a wrong MLP_RUNNER is reported here
            tls.install()
            return Platform(platform_parts()).run()
        except (ImproperlyConfigured, release.TooNew) as problem:
            say(f"\n{problem}")
            return 1


def down(keep_runs: bool = False) -> int:
    """Stop the platform of this root, wherever it runs; also what a killed `up` has left.

    With `keep_runs` jobs and applications go on, for the next start to find: `up` is killed, whatever its release, and
    what it has left is stopped in order.
    """
    with lock() as held:
        if held:
            Platform(platform_parts()).end_predecessor()
            say(f"Nothing runs on {settings.MLP_ROOT}.")
            return 0
    pid = holder()
    if pid:
        number = signal.SIGKILL if keep_runs else signal.SIGTERM
        say(f"Stopping the platform on {settings.MLP_ROOT} (process {pid}) ...")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    end = time.monotonic() + 40
    while time.monotonic() < end:
        with lock() as held:
            if held:
                if keep_runs:
                    Platform(platform_parts()).end_predecessor()
                say("Stopped; jobs and applications go on." if keep_runs else "Stopped.")
                return 0
        time.sleep(0.1)
    say("It has not stopped within 40 s.")
    return 1


class Platform:
    """One run of the platform, from the check of the ports to the end of the last process."""

    def __init__(self, parts: list[Part]):
        self.parts = parts
        self.supervisord = Supervisord(parts)
        self.started: list[Part] = []
        self.ready = False  # it has been, since its start
        self.idle = False  # supervisord runs again, and has no orders yet
        self.waiting = Waiting()
        self.signals = 0
        self.signalled = float("-inf")
        self.began = time.monotonic()

    # --- the whole ---------------------------------------------------------------------------------------------------
    def run(self) -> int:
        old = {number: signal.getsignal(number) for number in SIGNALS}
        for number in SIGNALS:
            # nohup wants SIGHUP ignored; SIGINT is ignored only because shells do that for background jobs
            if number != signal.SIGHUP or old[number] is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        code = 1
        try:
            self.start()
            self.ready = True
            self.watch()
        except Stopped:
            code = 0
        except (Failed, ports.Taken, SupervisorGone, ImproperlyConfigured, OSError, RuntimeError) as problem:
            say(f"\nThe platform could not be started: {problem}")
        finally:
            self.end()
        return code

    def _on_signal(self, number, frame) -> None:
        """Count signals; those within a second count as one (make passes on what the terminal sends
        to both processes).
        """
        if time.monotonic() - self.signalled > 1:
            self.signals += 1
            self.signalled = time.monotonic()
        self.waiting.wake()

    def pause(self, seconds: float) -> bool:
        """Wait for the end of a process, at most so long; return whether one has ended. Raises Stopped when a signal
        came.
        """
        ended = self.waiting.wait(0 if self.signals else seconds)
        if self.signals:
            raise Stopped
        return ended

    # --- start -------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        say(f"ML platform on {settings.MLP_ROOT}")
        self.end_predecessor()
        reserve.hold(say_now)
        ports.check(self.parts)
        for part in self.parts:
            part.forget_starts()
        self.supervisord.configure()
        forking.load(LOADED)
        self.supervisord.start()
        servers = [part for part in self.parts if part.stage == "servers"]
        self.start_parts(servers)
        self.pause(0)
        setup.run(self.pause)
        self.progress("migrations, administrator, static files", "ready")
        rest = [part for part in self.parts if part.stage != "servers"]
        self.start_parts(rest)
        self.wait_healthy()
        self.greet()

    def end_predecessor(self) -> None:
        """Stop what a killed `up` has left, in order. Job runs go on: they outlive every server."""
        folders = [part.folder for part in [self.supervisord.part, *self.parts]]
        if launch.living(*folders):
            say("Processes of a killed platform are still running: stopping them first.")
            self.end_processes()
        leftovers.clear()

    def start_parts(self, parts: list[Part]) -> None:
        """Start all parts at once and wait until those with a readiness check pass it."""
        self.started += parts
        try:
            self.start_started()
        except SupervisorGone as problem:  # keep() starts it again
            if self.supervisord.alive() and not isinstance(problem, SupervisorEnding):
                raise
        waiting = [part for part in parts if part.ready]
        end = time.monotonic() + START_LIMIT_S
        problems = {}
        while waiting:
            problems = health.ask({part.name: part.ready for part in waiting})
            for part in [part for part in waiting if problems[part.name] == "ok"]:
                self.progress(part.name, "ready")
                waiting.remove(part)
            self.keep(parts)
            if waiting and time.monotonic() > end:
                why = problems[waiting[0].name]
                raise Failed(what_failed(waiting[0], f"is not ready after {START_LIMIT_S} s: {why}"))
            self.pause(0.05)

    def start_started(self) -> None:
        for part in self.started:
            self.supervisord.start_part(part)

    def revive(self) -> bool:
        """Start supervisord and its parts again when it has died; return whether it had."""
        if not self.supervisord.alive():
            say(f"{now()}  supervisord ended unexpectedly; restarting it and all parts")
            self.idle = True
            self.supervisord.start()
        elif not self.idle:
            return False
        self.start_started()
        self.idle = False
        return True

    def keep(self, parts: list[Part]) -> None:
        """Restart a killed supervisord while the platform starts; raise Failed for a part that keeps ending."""
        self.revive()
        for part in parts:
            if part.quick_ends() >= TOO_OFTEN:
                raise Failed(what_failed(part, "keeps ending right after its start"))

    def wait_healthy(self) -> None:
        end = time.monotonic() + START_LIMIT_S
        address = health.plain_gateway()
        status, body = 0, b""
        while time.monotonic() < end:
            with contextlib.suppress(OSError, health.Unwell):
                status, body = health.get(address, "/healthz", timeout_s=5)
                if status == 200:
                    return
            self.keep(self.parts)
            self.pause(0.1)
        raise Failed(f"/healthz is not 200 after {START_LIMIT_S} s: {status} {body.decode(errors='replace')[:500]}")

    def greet(self) -> None:
        password = "as given in MLP_ADMIN_PASSWORD"
        if not settings.ADMIN_PASSWORD:
            password = f"password in {settings.MLP_ROOT / 'admin-password'}"
        apps = settings.APP_GATEWAY_URL or f"http://{health.gateway_host()}:{settings.APP_GATEWAY_PORT}"
        say(f"\nReady after {time.monotonic() - self.began:.1f} s.\n")
        say(f"  Platform        {settings.GATEWAY_URL}")
        say(f"  Applications    {apps}")
        beside = f"{settings.TLS.scheme}://{health.gateway_host()}:{settings.WORKSPACE_PORT}"
        say(f"  Workspaces      {settings.WORKSPACE_URL or beside}")
        say(f"  Administration  {settings.GATEWAY_URL}/admin/ as admin; {password}")
        say(f"  Logs            {settings.MLP_ROOT / 'log'}")
        if settings.MLP_RUNNER == "local":
            say(f"  Isolation       {runners.get().confinement.summary()}")
            for bound, has, setting in (
                (f"{settings.MAX_CPU} CPUs", machine.cpus() > settings.MAX_CPU, "MLP_MAX_CPU"),
                (f"{settings.MAX_RAM_MIB} MiB", machine.ram_mib() > settings.MAX_RAM_MIB, "MLP_MAX_RAM_MIB"),
                (f"{settings.MAX_GPU} GPUs", len(devices()) > settings.MAX_GPU, "MLP_MAX_GPU"),
            ):
                if has:
                    say(f"  Requests        of one worker at most {bound}, this machine has more: {setting}")
        say("\nPress Ctrl-C to stop the platform.")

    def progress(self, what: str, how: str) -> None:
        say(f"  {time.monotonic() - self.began:5.1f} s  {what} {how}")

    # --- while it runs -----------------------------------------------------------------------------------------------
    def watch(self) -> None:
        """Start supervisord again when it dies, and report which parts had to be started again."""
        pids: dict[str, int] = {}
        watchdog, certificate = Watchdog(self.parts), tls.Watcher(self.reload_certificate)
        failures, settled, asked = 0, False, float("-inf")
        while True:
            reserve.hold(say_now)
            ended = self.pause(LOOK_EVERY_S if settled else SOON_S)
            try:
                revived, now_s = self.revive(), time.monotonic()
                if revived or ended or not settled or now_s - asked > ASK_EVERY_S:
                    running, asked = self.supervisord.pids(), now_s
                    for name in () if revived else restarted(pids, running):
                        say(f"{now()}  {name} ended and was restarted; its log: {self.log_of(name)}")
                    pids = {name: pid or pids.get(name, 0) for name, pid in running.items()}
                    self.waiting.follow((self.supervisord.process.pid, *filter(None, running.values())))
                    watchdog.look_around()
                    settled = all(running.values())
                watchdog.poll(say_now)
                certificate.poll(say_now)
                failures = 0
            except SupervisorEnding:  # after a signal; a kill brings it back sooner than an orderly shutdown
                launch.send(self.supervisord.part.folder, signal.SIGKILL)
                settled = False
            except (SupervisorGone, OSError) as problem:
                failures, settled = failures + 1, False
                if failures in {1, 10, 100}:
                    say(f"{now()}  {problem}; trying again")
                self.pause(min(0.2 * failures, 5))

    def reload_certificate(self) -> None:
        """Have NATS read the certificate; nginx looks by itself."""
        for part in self.parts:
            if part.name == "nats":
                launch.send(part.folder, signal.SIGHUP)

    def log_of(self, name: str) -> Path:
        return next(part.log for part in self.parts if part.name == name)

    # --- end ---------------------------------------------------------------------------------------------------------
    def end(self) -> None:
        """Stop job runs and all parts in order and wait for them. A second signal kills them at once.

        A start that has failed, as after an upgrade, leaves the runs of before to the next one.
        """
        say("\nStopping the platform ...")
        asked = self.signals
        began = time.monotonic()
        ends_runs = settings.MLP_RUNNER == "local" and (self.ready or asked > 0)
        self.end_processes(lambda: self.signals > asked, runs=ends_runs)
        if self.supervisord.process:
            self.supervisord.process.wait(5)
        leftovers.clear()
        for path in (pid_file(), run_dir() / "nginx" / "nginx.pid"):
            path.unlink(missing_ok=True)
        say(f"Stopped after {time.monotonic() - began:.1f} s.")

    def end_processes(self, hurry: Callable[[], bool] = lambda: False, runs: bool = False) -> None:
        """Stop what starts new work first, then the runs, the front, the servers, and supervisord.

        Of the front the gateway first: a request that it has begun is answered as ever, and not cut off, so that its
        sender does not send it again.
        """
        if not self.supervisord.answers():  # its death makes the parts end, and nothing starts them again
            launch.end_leftovers(self.supervisord.part.folder, 0)
        self.end_parts([part for part in self.parts if part.stage == "background"], hurry)
        if runs:
            end_runs(hurry)
        for stage in ("front", "servers"):
            some = [part for part in self.parts if part.stage == stage]
            self.end_parts([part for part in some if part.first], hurry)
            self.end_parts([part for part in some if not part.first], hurry)
        with contextlib.suppress(SupervisorGone):
            self.supervisord.shutdown()
        self.end_parts([self.supervisord.part], hurry)
        # Parts that a supervisord which does not answer has started again meanwhile.
        for folder in launch.living(*(part.folder for part in self.parts)):
            launch.end_leftovers(folder, 1)

    def end_parts(self, parts: list[Part], hurry: Callable[[], bool]) -> None:
        for part in parts:
            if part is not self.supervisord.part:
                with contextlib.suppress(SupervisorGone):
                    self.supervisord.stop_part(part)
        began = time.monotonic()
        while living := launch.living(*(part.folder for part in parts)):
            alive, waited = [part for part in parts if part.folder in living], time.monotonic() - began
            for part in alive:
                if waited > part.stop_wait_s + 1 or (hurry() and waited > (1 if part.name == "database" else 0)):
                    launch.send(part.folder, signal.SIGKILL)
            if waited > 15:
                say(f"{', '.join(part.name for part in alive)}: does not end")
                return
            time.sleep(0.03)


def end_runs(hurry: Callable[[], bool]) -> None:
    """Stop job runs with the platform, each with its grace period; the next start decides what becomes of the jobs."""
    runner = runners.get()
    worker = threading.Thread(target=runner.stop_all, args=(RUNS_GRACE_S,), daemon=True)
    worker.start()
    while worker.is_alive() and not hurry():
        worker.join(0.05)
    if worker.is_alive():
        runner.stop_all(0)


def what_failed(part: Part, how: str) -> str:
    tail = "\n".join("    " + line for line in part.log_tail().splitlines())
    return f"{part.name} {how}.\n  The last lines of its log, {part.log}:\n{tail}"


def now() -> str:
    return time.strftime("%H:%M:%S")


def say_now(words: str) -> None:
    say(f"{now()}  {words}")


def say(words: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # the terminal may be closed; the work goes on
        print(words, flush=True)
