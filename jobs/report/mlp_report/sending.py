"""Sends what a script reports: a bounded queue, and a thread that posts batches of it.

On the wire: `POST {MLP_API_URL}/api/v1/users/{user}/job_metrics/{job}` with a list of objects (user, name, epoch,
accuracy, loss, progress, time; accuracy and loss only if the script gave them, and `reported` names them unless it gave
both), `POST .../jobs/{job}/values` with a list of objects (step, values, time), and
`PUT .../jobs/{job}:heartbeat` with {"state", "progress"}. Each POST carries the header
`X-Message-Id: {job}:{attempt}:{run}:{counter}`; `run` is drawn once per process and `counter` is that of the list's
first object, all of that address being counted from 0. A POST that is tried again is the same list under the same id,
so the platform knows each object by `{job}:{attempt}:{run}:{counter + its index in the list}` and stores it once. What
is not taken yet is in a journal, too (keeping.py).
"""

import http.client
import json
import math
import os
import random
import re
import shutil
import sys
import threading
import time
from urllib.parse import quote, urlsplit

from .keeping import Channel, Journal, copied, seconds_of

QUEUE_SIZE, BATCH_SIZE, TRY_AGAIN = 10000, 1000, (408, 425, 429)
BATCH_S, TIMEOUT_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, MAX_WAIT_S = 0.5, 10.0, 0.5, 15.0, 10.0
MAX_REFUSALS, MAX_NUMBERS = 20, 100  # in a row: then it is not this or that object's fault; in one object
OWN, MEASURED = ("epoch", "accuracy", "loss", "progress"), ("accuracy", "loss")
UNUSABLE = "MLP_API_URL, MLP_USER or MLP_JOB is not given or not valid"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/ -]{0,99}")


class Away(Exception):
    """The platform could not be reached, or has a fault; the request is worth retrying."""


class Reporter:
    """The whole module as an object, with a given environment; the module's functions share one."""

    def __init__(self, environment=None):
        self.environment = os.environ if environment is None else environment
        get = self.environment.get
        self.token, self.user, self.job = get("MLP_TOKEN", ""), get("MLP_USER", ""), get("MLP_JOB", "")
        self.warned, self.attempt = set(), get("MLP_ATTEMPT", "") or "1"
        self.flush_s = seconds_of(get("MLP_REPORT_FLUSH_S"), 20.0)
        self.online = bool(self.token and self._usable())
        if self.token and not self.online:
            why = "the network policy of this job is none" if get("MLP_NETWORK") == "none" else UNUSABLE
            self.warn("environment", why + ": nothing is sent")
        self.last, self.journal = {"epoch": -1, "progress": 0}, None
        self.reset()

    def _usable(self):
        """Return whether the environment says where to report."""
        try:
            self.url = urlsplit(self.environment.get("MLP_API_URL", "").rstrip("/"))
            self.port = self.url.port  # raises where it is not a number
        except ValueError:
            return False
        return bool(self.url.scheme in ("http", "https") and self.url.hostname and self.user and self.job)

    def reset(self):
        """Start with an empty queue: at first, and in a forked child, which has the memory but not the thread."""
        self.run = f"{random.SystemRandom().getrandbits(64):016x}"
        self.changed = threading.Condition()
        user, job = quote(self.user, safe=""), quote(self.job, safe="")
        self.job_path = f"/api/v1/users/{user}/jobs/{job}"
        self.metrics = Channel("m", f"/api/v1/users/{user}/job_metrics/{job}")
        self.numbers = Channel("v", self.job_path + "/values")
        self.channels = (self.metrics, self.numbers)
        self.media, self.heartbeat, self.confirmed = 0, None, None  # how many; the newest to send; the last confirmed
        self.flushing, self.dropped = 0, 0  # callers that wait for an empty queue; reports that found no place
        self.thread, self.connection, self.used, self.away = None, None, 0.0, False  # away: retries fail
        if self.journal is not None:
            self.journal.leave()
        self.journal = Journal(self.environment.get("MLP_WORKSPACE", "") if self.online else "", self.attempt, self.run)

    # --- what a script calls ------------------------------------------------------------------------------------
    def report(self, epoch=None, accuracy=None, loss=None, progress=None, **extra):
        """Report one line of metrics. The epoch defaults to the next one, the progress to its last value.

        Numbers under other names go beside it, at this epoch; where only such are given, no line is made.
        """
        given = {"epoch": epoch, "accuracy": accuracy, "loss": loss, "progress": progress}
        checked = {name: self._metric(name, value) for name, value in given.items() if value is not None}
        if None in checked.values():
            return
        both, now = {name: checked[name] for name in MEASURED if name in checked}, round(time.time(), 3)
        finite = all(map(math.isfinite, both.values()))  # a line has finite numbers only; values may be NaN or infinite
        with self.changed:
            if checked or not extra:
                checked = {"epoch": self.last["epoch"] + 1, **checked}
                self.last.update((name, checked[name]) for name in self.last if name in checked)
                if self.online:
                    if finite:
                        part = {"reported": list(both)} if len(both) < len(MEASURED) else {}
                        named = {"user": self.user, "name": self.job, "time": now}
                        self._enqueue(self.metrics, {**self.last, **both, **part, **named})
                    if self.last["progress"] >= 0:
                        self._set_heartbeat("running", self.last["progress"])
            step = max(0, self.last["epoch"])
        self._numbers(checked, step, extra, now, {} if finite else both)

    def values(self, step, **numbers):
        """Report numbers under your own names at a step (a whole number from 0): learning rate, gradient norm, …"""
        step = self._metric("step", step)
        if step is not None:
            self._numbers({"step": step}, step, numbers, round(time.time(), 3))

    def _numbers(self, shown, step, numbers, now, more=()):
        """Send the valid numbers and those in `more`; outside the platform, print them after `shown`."""
        numbers = {name: self._number(name, value) for name, value in numbers.items() if self._named(name)}
        pairs = [(name, value) for name, value in numbers.items() if value is not None]
        if not self.online:
            return self.say("  ".join(f"{name} {value:g}" for name, value in [*shown.items(), *pairs]))
        pairs = [*dict(more).items(), *pairs]
        with self.changed:
            for at in range(0, len(pairs), MAX_NUMBERS):
                self._enqueue(self.numbers, {"step": step, "values": dict(pairs[at : at + MAX_NUMBERS]), "time": now})

    def artifact(self, path, name=None):
        """Copy a file or folder to the job's output; return its new path, None where that failed."""
        target = os.path.join(self.environment.get("MLP_WORKSPACE", "."), "artifacts", name or os.path.basename(path))
        try:
            return copied(path, target)
        except (OSError, shutil.Error) as error:
            return self.warn("artifact", f"{path} could not be kept: {error}")

    def progress(self, percent, remaining=None):
        """Report the job's progress, 0 to 100, and, if known, the remaining seconds."""
        number = self._metric("progress", percent)
        seconds = None if remaining is None else self._number("remaining", remaining)
        if number is not None:
            with self.changed:
                self.last["progress"] = number
                if self.online:
                    self._set_heartbeat("running", number, seconds)
                else:
                    self.say(f"progress {number:g}" + ("" if seconds is None else f"  remaining {seconds:g} s"))

    def notice(self, media):
        """Notify the job's open pages of new media."""
        with self.changed:
            self.media = media
            self._set_heartbeat("running", self.last["progress"])

    def finish(self):
        """Report that the job has finished, after all other reports. Waits at most the flush time."""
        self._end("finished", 100)

    def fail(self, reason=""):
        """Report that the job has failed. The reason goes to stderr, and so into the job's log."""
        self.say(f"failed: {reason}", sys.stderr)
        self._end("error", min(99, max(0, self.last["progress"])))

    def flush(self, seconds=None):
        """Wait until everything is sent; return False when that takes longer than `seconds`."""
        deadline = time.monotonic() + (self.flush_s if seconds is None else seconds)
        with self.changed:
            self.flushing += 1
            try:
                while self.heartbeat or self._left():
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._ensure_thread():
                        return False
                    self.changed.notify_all()
                    self.changed.wait(min(left, BATCH_S))
                return True
            finally:
                self.flushing -= 1

    def close(self):
        """Send the rest at exit, for at most the flush time."""
        if self.flush():
            self.journal.remove()
        else:
            later = "; it reads them from the job's folder" if self.journal.works else ""
            self.warn("left", f"the platform did not take the last {self._left()} reports in {self.flush_s:g} s{later}")
        if self.dropped:
            reports = "1 report was" if self.dropped == 1 else f"{self.dropped} reports were"
            self.warn("dropped", f"{reports} dropped while the platform was unavailable")

    # --- checks -----------------------------------------------------------------------------------------------
    def _number(self, name, value):
        """Return the value as a float; None, with a warning, if it is not a number."""
        try:
            if isinstance(value, (bool, str, bytes)):
                raise TypeError
            number = float(value)  # also of numpy's and torch's scalars
        except Exception:
            return self.warn("type " + name, f"{name} is not a number: {repr(value)[:60]}; such reports are not sent")
        return number

    def _metric(self, name, value):
        """Return the same for the platform's own names: a progress is a percentage, a step a whole number."""
        number = self._number(name, value)
        if number is None or name in MEASURED:
            return number
        if not math.isfinite(number):
            return self.warn("finite " + name, f"{name} is {number}; such reports are not sent")
        if name == "progress":
            return max(-1, min(100, int(number)))
        if number != int(number) or not 0 <= number < 2**63:
            return self.warn(name, f"{name} is {number:g}, not a whole number from 0; such reports are not sent")
        return int(number)

    def _named(self, name):
        """Return whether the platform accepts numbers under this name."""
        good = self.is_name(name) and name not in OWN
        why = f"goes by report({name}=...)" if name in OWN else "is no name (letters, digits, _.:/- and spaces)"
        return good or self.warn("name " + name, f"{ascii(name)[:120]} {why}; values under it are not sent")

    @staticmethod
    def is_name(name):
        return NAME.fullmatch(name) is not None

    def warn(self, kind, words):
        """Print one line on stderr, once for each kind; return None."""
        if kind not in self.warned:
            self.warned.add(kind)
            self.say("mlp_report: " + words, sys.stderr)

    @staticmethod
    def say(words, stream=None):
        try:
            print(words, file=stream or sys.stdout, flush=True)
        except (OSError, ValueError):  # a closed stream is no reason to stop a training
            return

    # --- the queue (all with `changed` held) --------------------------------------------------------------------
    def _enqueue(self, channel, element):
        text = json.dumps(element, separators=(",", ":"))  # values may be NaN or infinite
        if len(channel.queue) >= QUEUE_SIZE and not self._wait_for_place(channel):
            channel.queue.popleft()
            self.journal.needed = True
            if self.journal.works:
                self.warn("full", "the platform has been away for long: it reads the oldest reports at the job's end")
            else:
                self.dropped += 1
                self.warn("full", "the platform has been away for long: the oldest reports are dropped")
        self.journal.add(channel.kind, channel.counter, text)
        channel.queue.append((channel.counter, text))
        channel.counter += 1
        self._ensure_thread()
        self.changed.notify_all()

    def _wait_for_place(self, channel):
        """Wait while a script reports faster than the platform takes it; return whether there is a place."""
        end = time.monotonic() + MAX_WAIT_S
        while len(channel.queue) >= QUEUE_SIZE and time.monotonic() < end and not self.away and self._ensure_thread():
            self.changed.wait(end - time.monotonic())
        return len(channel.queue) < QUEUE_SIZE

    def _set_heartbeat(self, state, progress, remaining=None):
        if self.confirmed and self.confirmed["state"] != "running":
            return  # the end is reported already
        message = {"state": state, "progress": max(0, progress)}
        if remaining is not None and math.isfinite(remaining):
            message["remaining"] = min(1e10, max(0.0, round(remaining, 1)))
        elif self.heartbeat and self.heartbeat["progress"] == message["progress"] and "remaining" in self.heartbeat:
            message["remaining"] = self.heartbeat["remaining"]
        if self.media:
            message["media"] = self.media
        if message != self.confirmed and (self.heartbeat is None or self.heartbeat["state"] == "running"):
            self.heartbeat = message
            self._ensure_thread()
            self.changed.notify_all()

    def _ensure_thread(self):
        """Return whether a thread sends; none can be started while the interpreter shuts down."""
        if self.thread is None or not self.thread.is_alive():
            self.thread = threading.Thread(target=self._send_forever, name="mlp_report", daemon=True)
            try:
                self.thread.start()
            except RuntimeError:
                return False
        return True

    def _end(self, state, progress):
        if not self.online:
            return self.say(state)
        with self.changed:
            self._set_heartbeat(state, progress)
        self.flush()

    def _left(self):
        return sum(len(channel.queue) + len(channel.batch) for channel in self.channels)

    def _wait(self, pause):
        """Wait until there is something to send, then for more to batch, or for the next retry."""
        while not (self.heartbeat or self._left()):
            self.changed.wait()
        began = time.monotonic()
        while True:
            full = any(len(channel.queue) >= BATCH_SIZE for channel in self.channels)
            limit = min(pause, FIRST_PAUSE_S) if self.flushing else pause or (0 if full else BATCH_S)
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
                for channel in self.channels:
                    if not channel.batch:
                        channel.batch = [channel.queue.popleft() for _ in range(min(BATCH_SIZE, len(channel.queue)))]
                heartbeat = self.heartbeat
                if heartbeat and heartbeat["state"] != "running" and any(channel.queue for channel in self.channels):
                    heartbeat = None  # the end is reported last
                self.changed.notify_all()
            try:
                self._send(heartbeat)
                pause, self.away = 0.0, False
            except Away as error:
                if pause:  # not at the first failure, which may be an idle connection closed by the other side
                    self.away = True
                    self.warn("away", f"the platform cannot be reached ({error}); it will be tried again")
                pause = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, pause * 2 * random.uniform(0.8, 1.2)))
            with self.changed:
                self.changed.notify_all()

    def _send(self, heartbeat):
        """Send the batches, then the heartbeat; remove each once it is settled. Raises Away."""
        for channel in self.channels:
            self._send_batch(channel)
        with self.changed:
            if not self._left():
                self.journal.clear()
        if heartbeat:
            self._settle("PUT", self.job_path + ":heartbeat", json.dumps(heartbeat), {})
            with self.changed:
                self.confirmed = heartbeat
                self.heartbeat = None if self.heartbeat is heartbeat else self.heartbeat

    def _send_batch(self, channel):
        """Send it whole, then in ever smaller parts where that is refused, so that one bad object affects no other."""
        size = len(channel.batch)
        while channel.batch:
            part = channel.batch[:size]
            number = f"{self.job}:{self.attempt}:{self.run}:{part[0][0]}"
            body = "[" + ",".join(text for _, text in part) + "]"
            taken = self._settle("POST", channel.path, body, {"X-Message-Id": number})
            channel.refusals = 0 if taken else channel.refusals + 1
            if taken or len(part) == 1 or channel.refusals > MAX_REFUSALS:
                del channel.batch[: len(part)]
                size *= 2
            else:
                size = len(part) // 2

    def _settle(self, method, path, body, headers):
        """Return whether the platform accepted it or refused it for good. Raises Away when it should be retried."""
        try:
            refusal = self._call(method, path, body, headers)
            return not refusal or self.warn("refused " + method, f"the platform refuses {method} {path}: {refusal}")
        except Away:
            raise
        except Exception as error:  # it must neither stop the thread nor be retried for ever
            return self.warn("failed " + method, f"{method} {path} failed: {error!r}")

    def _call(self, method, path, body, headers):
        """Return why the platform refuses it for good; "" when it accepted it. Raises Away."""
        headers = {**headers, "Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        try:
            connection = self._connect()
            connection.request(method, self.url.path + path, body=body.encode(), headers=headers)
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
        if 200 <= answer.status < 300:
            return ""
        try:
            return str(json.loads(text.decode())["msg"])[:500] or "it does not say why"
        except (ValueError, KeyError, TypeError):
            return f"it answers {answer.status}"

    def _connect(self):
        """Return the connection, a new one after an idle time: the other side may have closed the old one."""
        if self.connection is None or time.monotonic() - self.used > 2:
            self._disconnect()
            kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
            self.connection = kind(self.url.hostname, self.port, timeout=TIMEOUT_S)
        return self.connection

    def _disconnect(self):
        if self.connection is not None:
            self.connection.close()
        self.connection = None
