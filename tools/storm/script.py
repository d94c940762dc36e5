"""The script of the storm's jobs. Runs on the platform; standard library only.

It reports row after row, each until it is acknowledged, and notes that in `acked.{rank}` before it goes on, so that the
next attempt goes on after the last one. Arguments: WAY (http or nats), ROWS, PAUSE in seconds, FAILS (attempts that
fail at their end), CODE (of a failure).
"""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

WAY, ROWS, PAUSE, FAILS, CODE = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
RANK, WORKERS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
USER, JOB, ATTEMPT = os.environ["MLP_USER"], os.environ["MLP_JOB"], int(os.environ["MLP_ATTEMPT"])
LEDGER = f"acked.{RANK}"


class Over(Exception):
    """The platform does not want reports of this job any more."""


def row(epoch):
    return {"user": USER, "name": JOB, "epoch": epoch, "accuracy": epoch / 1000, "loss": float(RANK), "progress": 1}


def by_http(epoch):
    headers = {"Authorization": "Bearer " + os.environ["MLP_TOKEN"], "Content-Type": "application/json"}
    headers["X-Message-Id"] = f"storm:{RANK}:{epoch}"
    url = f"{os.environ['MLP_API_URL']}/api/v1/users/{USER}/job_metrics/{JOB}"
    body = json.dumps(row(epoch)).encode()
    try:
        urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=70).read()
    except urllib.error.HTTPError as refusal:
        if refusal.code == 403:
            raise Over(refusal.read().decode())
        raise OSError(f"it answers {refusal.code}")


class Nats:
    """As much of the protocol as it takes to publish one message and read JetStream's acknowledgement."""

    stream = None

    def publish(self, epoch):
        if self.stream is None:
            self.connect()
        inbox = f"{os.environ['MLP_NATS_INBOX']}.{RANK}"
        head = f"NATS/1.0\r\nNats-Msg-Id: {USER}.{JOB}.{RANK}.{epoch}\r\n\r\n".encode()
        body = json.dumps(row(epoch)).encode()
        sizes = f"{len(head)} {len(head) + len(body)}"
        self.stream.write(f"HPUB job_metrics.{USER}.{JOB} {inbox} {sizes}\r\n".encode() + head + body + b"\r\n")
        self.stream.flush()
        while True:
            line = self.stream.readline()
            if line.startswith(b"PING"):
                self.stream.write(b"PONG\r\n")
                self.stream.flush()
            elif line.startswith((b"MSG", b"HMSG")):
                text = self.stream.read(int(line.split()[-1]) + 2)
                if b'"seq"' in text:
                    return
                raise OSError(f"not acknowledged: {text}")
            elif line.startswith(b"-ERR") or not line:
                raise OSError(f"the message bus says {line}")

    def connect(self):
        address = urllib.parse.urlsplit(os.environ["MLP_NATS_URL"])
        link = socket.create_connection((address.hostname, address.port), timeout=20)
        stream = link.makefile("rwb")
        stream.readline()
        hello = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "lang": "storm"}
        hello |= {"user": address.username, "pass": address.password, "version": "1", "protocol": 1}
        stream.write(f"CONNECT {json.dumps(hello)}\r\n".encode())
        stream.write(f"SUB {os.environ['MLP_NATS_INBOX']}.{RANK} 1\r\nPING\r\n".encode())
        stream.flush()
        line = stream.readline()
        if not line.startswith(b"PONG"):
            raise OSError(f"not connected: {line}")
        self.stream = stream

    def __call__(self, epoch):
        try:
            self.publish(epoch)
        except Exception:
            self.stream = None
            raise


def report(send, epoch):
    while True:
        try:
            return send(epoch)
        except (OSError, ValueError) as problem:
            print(f"again: {problem}", file=sys.stderr, flush=True)
            time.sleep(0.5)


def main():
    try:
        with open(LEDGER, "rb") as file:
            done = len(file.read().splitlines())
    except FileNotFoundError:
        done = 0
    send = Nats() if WAY == "nats" else by_http
    with open(LEDGER, "ab") as ledger:
        for number in range(done, ROWS):
            epoch = number * WORKERS + RANK
            print(f"storm {JOB} {RANK} row {number}", flush=True)
            try:
                report(send, epoch)
            except Over as words:
                print(f"over: {words}", file=sys.stderr, flush=True)
                return 4
            ledger.write(json.dumps({"epoch": epoch, "attempt": ATTEMPT, "at": time.time()}).encode() + b"\n")
            ledger.flush()
            os.fsync(ledger.fileno())
            time.sleep(PAUSE)
    return CODE if ATTEMPT <= FAILS else 0


sys.exit(main())
