"""Misuses the job's connection to the message bus: listens to others, publishes for others, calls the server's API.

Arguments: another user and a job of theirs.
"""

import json
import os
import socket
import sys
import time
from urllib.parse import urlsplit

from attempts import report


class Bus:
    """The protocol of NATS, by hand: a client library would refuse half of this."""

    def __init__(self):
        url = urlsplit(os.environ["MLP_NATS_URL"])
        self.file = socket.create_connection((url.hostname, url.port), 20).makefile("rwb")
        self.info = json.loads(self.file.readline().removeprefix(b"INFO "))
        hello = {"user": url.username, "pass": url.password, "verbose": False, "pedantic": False, "headers": True}
        self.send(b"CONNECT %s" % json.dumps(hello | {"protocol": 1, "no_responders": True}).encode())
        self.last = 0

    def send(self, *lines):
        self.file.write(b"".join(line + b"\r\n" for line in lines))
        self.file.flush()

    def settle(self):
        """Return the lines that arrive up to the answer to a PING."""
        lines = []
        self.send(b"PING")
        while (line := self.file.readline().strip()) != b"PONG":
            if not line:
                raise ConnectionError(repr(lines))
            if not line.startswith(b"INFO"):
                lines.append(line)
        return lines

    def subscribe(self, subject):
        self.last += 1
        self.send(b"SUB %s %d" % (subject.encode(), self.last))
        return self.settle()

    def publish(self, subject, body=b"{}", reply="", headers=b""):
        words = " ".join(filter(None, [subject, reply]))
        if headers:
            head = b"NATS/1.0\r\n" + headers + b"\r\n\r\n"
            self.send(b"HPUB %s %d %d" % (words.encode(), len(head), len(head) + len(body)), head + body)
        else:
            self.send(b"PUB %s %d" % (words.encode(), len(body)), body)
        return self.settle()


def refused(lines):
    return any(line.startswith(b"-ERR 'Permissions Violation") for line in lines)


other, job = sys.argv[1:]
me, mine = os.environ["MLP_USER"], os.environ["MLP_JOB"]
bus = Bus()
inbox = os.environ["MLP_NATS_INBOX"]
row = json.dumps({"user": me, "name": mine, "epoch": 1, "accuracy": 0.5, "loss": 0.5, "progress": 1}).encode()
report("control: subscribe to the own inbox", not refused(bus.subscribe(f"{inbox}.>")))
answer = bus.publish(f"job_metrics.{me}.{mine}", row, f"{inbox}.a")
end = time.monotonic() + 20  # the acknowledgement may come after the answer to our PING
while b"MSG" not in b"".join(answer) and time.monotonic() < end:
    answer += bus.settle()
report("control: publish the own metrics", b"MSG" in b"".join(answer))
SUBJECTS = [
    ">", "*", "*.>", "$SYS.>", "$JS.>", "$JS.API.>", "$JS.EVENT.>", "$JS.ACK.>", "$KV.>", "$O.>", "_INBOX.>", "_R_.>",
    f"_INBOX_{other}_{job}.>", f"job_metrics.{other}.{job}", "job_metrics.>", f"job_metrics.{me}.*", "raw_logs",
    "$SYS.REQ.USER.AUTH", f"{inbox}*.>", "preprocessed_logs", "train_model",
]  # fmt: skip
for subject in SUBJECTS:
    report(f"subscribe to {subject}", not refused(bus.subscribe(subject)))
    report(f"subscribe as a queue to {subject}", not refused(bus.subscribe(f"{subject} ingest")))
CALLS = {
    f"job_metrics.{other}.{job}": row, f"job_metrics.{me}.{mine}.more": row, "raw_logs": b"[]", "train_model": b"{}",
    "$JS.API.STREAM.DELETE.JOB_METRICS": b"", "$JS.API.STREAM.PURGE.JOB_METRICS": b"", "$JS.API.INFO": b"",
    "$JS.API.CONSUMER.CREATE.JOB_METRICS": b"{}", "$JS.API.CONSUMER.MSG.NEXT.JOB_METRICS.platform": b"1",
    "$JS.API.DIRECT.GET.JOB_METRICS": b'{"seq":1}', "$JS.ACK.JOB_METRICS.platform.1.1.1.1.1": b"+ACK",
    "$KV.mlp-aiops.key": b"x", "$SYS.REQ.SERVER.PING": b"", "$SYS.ACCOUNT.PLATFORM.CONNECT": b"",
    f"_INBOX_{other}_{job}.a": b"{}", "_INBOX.a.b": b"{}",
}  # fmt: skip
for subject, body in CALLS.items():
    report(f"publish on {subject}", not refused(bus.publish(subject, body, f"{inbox}.b")))
for subject in CALLS:
    bus.publish(f"job_metrics.{me}.{mine}", row, subject)
    bus.publish(f"job_metrics.{me}.{mine}", b"{}", subject, b"Nats-Expected-Last-Sequence: 99\r\nNats-Msg-Id: a")
rest = [line for line in bus.settle() if line.startswith((b"MSG", b"HMSG")) and inbox.encode() not in line]
report("hear others", rest, repr(rest))
