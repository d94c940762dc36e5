"""Report a training's progress to the platform. One file, standard library only, Python 3.8 or newer.

    from mlp_report import report
    for epoch in range(10):
        ...
        report(epoch=epoch, accuracy=0.93, loss=0.21, progress=100 * (epoch + 1) / 10)

Also `progress(40)` alone, and at the end, where wanted, `finish()` or `fail("why")`: without them the exit code
decides.

The platform puts this file on a job's path and tells it by MLP_API_URL, MLP_TOKEN, MLP_USER, MLP_JOB and MLP_ATTEMPT
where to report. Run by hand, without MLP_TOKEN, it prints each report to stdout instead.

It never raises and never waits: reports go into a bounded queue, and a thread sends them in batches, twice a second.
While the platform is away it tries again, ever less often; when the queue is full the oldest reports are dropped. At
the exit of the program what is left is sent, for at most MLP_REPORT_FLUSH_S seconds (20). What goes wrong is one line
on stderr, once.

On the wire: `POST {MLP_API_URL}/api/v1/users/{user}/job_metrics/{job}` with a list of objects (user, name, epoch,
accuracy, loss, progress), and `PUT .../jobs/{job}:heartbeat` with {"state", "progress"}. Each POST carries the header
`X-Message-Id: {job}:{attempt}:{run}:{counter}`; `run` is drawn once per process and `counter` is that of the list's
first object, all objects being counted from 0. A POST that is tried again is the same list under the same id, so the
platform knows each object by `{job}:{attempt}:{run}:{counter + its index in the list}` and stores it once.
"""

import atexit
import collections
import http.client
import json
import math
import os
import random
import sys
import threading
import time
from urllib.parse import quote, urlsplit

__all__ = ["Reporter", "fail", "finish", "flush", "progress", "report"]

QUEUE_SIZE = 10000
BATCH_SIZE = 1000
BATCH_S = 0.5
TIMEOUT_S = 10.0
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 15.0
TRY_AGAIN = (408, 425, 429)


class Refused(Exception):
    """The platform has the message and does not take it: to send it again would change nothing."""


class Away(Exception):
    """The platform could not be reached, or has a fault: worth another try."""


class Reporter:
    """All of this module as an object, with the environment it is given; the functions below share one."""

    def __init__(self, environment=None):
        self.environment = os.environ if environment is None else environment
        get = self.environment.get
        self.token = get("MLP_TOKEN", "")
        self.user, self.job = get("MLP_USER", ""), get("MLP_JOB", "")
        self.attempt = get("MLP_ATTEMPT", "") or "1"
        self.flush_s = self._seconds("MLP_REPORT_FLUSH_S", 20.0)
        self.warned = set()
        self.online = bool(self.token)
        if self.online and not self._usable():
            self.online = False
            self._warn("environment", "MLP_API_URL, MLP_USER or MLP_JOB is not given or not valid: nothing is sent")
        self.last = {"epoch": -1, "accuracy": 0.0, "loss": 0.0, "progress": 0}
        self.reset()

    def _usable(self):
        """Whether the environment says where to report."""
        try:
            self.url = urlsplit(self.environment.get("MLP_API_URL", "").rstrip("/"))
            self.port = self.url.port  # raises where it is not a number
        except ValueError:
            return False
        return bool(self.url.scheme in ("http", "https") and self.url.hostname and self.user and self.job)

    def reset(self):
        """A fresh queue: at the start, and in a forked child, which has the memory but not the thread."""
        self.run = f"{random.SystemRandom().getrandbits(64):016x}"
        self.changed = threading.Condition()
        self.queue = collections.deque()  # of (counter, object)
        self.counter = 0  # of the next object
        self.batch = []  # on its way: kept until the platform has it, or refuses it
        self.heartbeat = None  # the newest state that the platform has not been told
        self.told = None
        self.flushing = 0  # how many callers wait for the queue to be empty
        self.thread = None
        self.connection, self.used = None, 0.0

    # --- what a script calls ------------------------------------------------------------------------------------
    def report(self, epoch=None, accuracy=None, loss=None, progress=None, **extra):
        """One line of metrics. What is not given: the next epoch; accuracy, loss and progress as last reported.

        Other names are printed when run by hand, and not sent: the platform does not take them yet.
        """
        given = {"epoch": epoch, "accuracy": accuracy, "loss": loss, "progress": progress}
        checked = {}
        for name, value in given.items():
            if value is not None:
                number = self._number(name, value)
                if number is None:
                    return
                checked[name] = number
        with self.changed:
            checked.setdefault("epoch", self.last["epoch"] + 1)
            self.last.update(checked)
            values = dict(self.last)
            if self.online:
                self._enqueue(values)
        if not self.online:
            words = [f"{name} {value:g}" for name, value in values.items() if name in checked]
            words += [f"{name} {value}" for name, value in extra.items()]
            self._print("  ".join(words))

    def progress(self, percent):
        """The job's progress alone, 0 to 100."""
        number = self._number("progress", percent)
        if number is None:
            return
        with self.changed:
            self.last["progress"] = number
            if self.online:
                self._set_heartbeat("running", number)
        if not self.online:
            self._print(f"progress {number:g}")

    def finish(self):
        """Says that the job has finished, after all that was reported. Waits for it, at most the flush time."""
        self._end("finished", 100)

    def fail(self, reason=""):
        """Says that the job has failed. The reason goes to stderr, and so into the job's log."""
        self._print(f"failed: {reason}", sys.stderr)
        self._end("error", min(99, max(0, self.last["progress"])))

    def flush(self, seconds=None):
        """Waits until all is sent; False when that takes longer than the seconds."""
        deadline = time.monotonic() + (self.flush_s if seconds is None else seconds)
        with self.changed:
            self.flushing += 1
            try:
                while self._pending():
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._ensure_thread():
                        return False
                    self.changed.notify_all()
                    self.changed.wait(min(left, BATCH_S))
                return True
            finally:
                self.flushing -= 1

    def close(self):
        """At exit: sends what is left, for at most the flush time."""
        if not self.flush():
            left = len(self.queue) + len(self.batch)
            self._warn("left", f"the platform did not take the last {left} reports in {self.flush_s:g} s")

    # --- checks -----------------------------------------------------------------------------------------------
    def _number(self, name, value):
        """The value as the platform takes it; None, and a warning, where it does not."""
        try:
            if isinstance(value, (bool, str, bytes)):
                raise TypeError
            number = float(value)  # also of numpy's and torch's scalars
        except Exception:
            self._warn("type " + name, f"{name} is not a number: {repr(value)[:60]}; such reports are not sent")
            return None
        if not math.isfinite(number):
            self._warn("finite " + name, f"{name} is {number}; such reports are not sent")
            return None
        if name == "progress":
            return max(-1, min(100, int(number)))
        if name == "epoch":
            if number < 0 or number != int(number):
                self._warn("epoch", f"epoch is {number}, not a whole number from 0; such reports are not sent")
                return None
            return int(number)
        return number

    def _seconds(self, name, default):
        try:
            seconds = float(self.environment.get(name) or default)
            return seconds if 0 <= seconds < 86400 else default
        except ValueError:
            return default

    def _warn(self, kind, words):
        """One line on stderr, once for each kind."""
        if kind not in self.warned:
            self.warned.add(kind)
            self._print("mlp_report: " + words, sys.stderr)

    @staticmethod
    def _print(words, stream=None):
        try:
            print(words, file=stream or sys.stdout, flush=True)
        except (OSError, ValueError):  # a closed stream is no reason to stop a training
            return

    # --- the queue (all with `changed` held) --------------------------------------------------------------------
    def _enqueue(self, values):
        values["user"], values["name"] = self.user, self.job
        if len(self.queue) >= QUEUE_SIZE:
            self.queue.popleft()
            self._warn("full", "the platform has been away for long: the oldest reports are dropped")
        self.queue.append((self.counter, values))
        self.counter += 1
        if values["progress"] >= 0:
            self._set_heartbeat("running", values["progress"])
        self._ensure_thread()
        self.changed.notify_all()

    def _set_heartbeat(self, state, progress):
        if self.told and self.told["state"] != "running":
            return  # the last word is said
        message = {"state": state, "progress": max(0, progress)}
        if message != self.told and (self.heartbeat is None or self.heartbeat["state"] == "running"):
            self.heartbeat = message
            self._ensure_thread()
            self.changed.notify_all()

    def _ensure_thread(self):
        """True when there is a thread that sends; none can be started at the very end of the interpreter."""
        if self.thread is None or not self.thread.is_alive():
            thread = threading.Thread(target=self._send_forever, name="mlp_report", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self.thread = thread
        return True

    def _end(self, state, progress):
        if not self.online:
            self._print(state)
            return
        with self.changed:
            self._set_heartbeat(state, progress)
        self.flush()

    def _pending(self):
        return bool(self.queue or self.batch or self.heartbeat)

    def _wait(self, pause):
        """Until there is something to send, and for others to come along, or for the platform to come back."""
        while not self._pending():
            self.changed.wait()
        began = time.monotonic()
        while True:
            limit = pause or (BATCH_S if len(self.queue) < BATCH_SIZE else 0)
            if self.flushing:
                limit = min(pause, FIRST_PAUSE_S)
            left = began + limit - time.monotonic()
            if left <= 0:
                return
            self.changed.wait(left)

    # --- the thread -------------------------------------------------------------------------------------------
    def _send_forever(self):
        pause = 0.0
        while True:
            with self.changed:
                self._wait(pause)
                if not self.batch:
                    self.batch = [self.queue.popleft() for _ in range(min(BATCH_SIZE, len(self.queue)))]
                heartbeat = self.heartbeat
                if heartbeat and heartbeat["state"] != "running" and self.queue:
                    heartbeat = None  # the last word comes last
            try:
                self._send(heartbeat)
                pause = 0.0
            except Away as error:
                if pause:  # once is no news: an idle connection that the other side has closed looks like this
                    self._warn("away", f"the platform cannot be reached ({error}); it will be tried again")
                pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, pause * 2 * random.uniform(0.8, 1.2)))
            with self.changed:
                self.changed.notify_all()

    def _send(self, heartbeat):
        """The batch, then the heartbeat; each is struck off when it is settled. Raises Away."""
        user, job = quote(self.user, safe=""), quote(self.job, safe="")
        if self.batch:
            number = f"{self.job}:{self.attempt}:{self.run}:{self.batch[0][0]}"
            objects = [values for _, values in self.batch]
            self._settle("POST", f"/api/v1/users/{user}/job_metrics/{job}", objects, {"X-Message-Id": number})
            self.batch = []
        if heartbeat:
            self._settle("PUT", f"/api/v1/users/{user}/jobs/{job}:heartbeat", heartbeat, {})
            with self.changed:
                self.told = heartbeat
                if self.heartbeat is heartbeat:
                    self.heartbeat = None

    def _settle(self, method, path, body, headers):
        """Returns when the platform has taken or refused it, raises Away when it should be tried again."""
        try:
            self._call(method, path, body, headers)
        except Away:
            raise
        except Refused as error:
            self._warn("refused " + method, f"the platform refuses {method} {path}: {error}")
        except Exception as error:  # whatever it is, it must neither stop the thread nor come again for ever
            self._warn("failed " + method, f"{method} {path} failed: {error!r}")

    def _call(self, method, path, body, headers):
        data = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
        headers = dict(headers, Authorization="Bearer " + self.token)
        headers["Content-Type"] = "application/json"
        try:
            connection = self._connect()
            connection.request(method, self.url.path + path, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read(1 << 16)
            if not answer.isclosed():
                self._disconnect()
            self.used = time.monotonic()
        except (OSError, http.client.HTTPException) as error:
            self._disconnect()
            raise Away(str(error) or type(error).__name__)
        if answer.status >= 500 or answer.status in TRY_AGAIN:
            raise Away(f"it answers {answer.status}")
        if not 200 <= answer.status < 300:
            raise Refused(self._message(text) or f"it answers {answer.status}")

    @staticmethod
    def _message(text):
        try:
            return str(json.loads(text.decode())["msg"])[:500]
        except (ValueError, KeyError, TypeError):
            return ""

    def _connect(self):
        """The connection, a fresh one where the old one has been idle: the other side may have closed it."""
        if self.connection is not None and time.monotonic() - self.used > 2:
            self._disconnect()
        if self.connection is None:
            kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            self.connection = kind(self.url.hostname, self.port, timeout=TIMEOUT_S)
        return self.connection

    def _disconnect(self):
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()


_reporter = Reporter()
report, progress, flush = _reporter.report, _reporter.progress, _reporter.flush
finish, fail = _reporter.finish, _reporter.fail
atexit.register(_reporter.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)
