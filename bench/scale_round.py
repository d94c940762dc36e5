"""Rounds of reconcile over many runs, measured inside the process: read by bench/scale.py through `manage.py shell`.

Prints a JSON object for each phase. The jobs' rows and the cluster's objects are made first, with nothing looking.
"""

from __future__ import annotations

import json
import os
import resource
import threading
import time
import urllib.request
from pathlib import Path

from django.db import close_old_connections, connection
from django.utils import timezone

import runners
from accounts.models import User
from jobs.models import Job, Project
from kernel import storage
from mlp.management.commands.reconcile import STEPS
from resources.models import ResourceRequest, Tenant
from runners import RunSpec
from runners.kubernetes import objects, staging

URL, RUNNING, QUEUED = os.environ["SCALE_URL"], int(os.environ["SCALE_RUNNING"]), int(os.environ["SCALE_QUEUED"])
ROUNDS, IDLE_S, STARTS = 5, 20.0, 5


def ask(path: str, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": "Bearer the-test-token", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}{path}", data, headers, method="GET" if body is None else "POST")
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read())


def letters(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in f"{number:06d}")


def seed() -> None:
    """Make the rows, the books and the runs."""
    users = list(User.objects.filter(username__startswith="scale").order_by("pk"))
    tenant = Tenant.objects.get(name="default")
    common = {"tenant": tenant, "entry": "train.py", "cpu": 1, "ram": 512}
    moment = timezone.now()
    projects = {user.pk: Project.objects.default_of(user) for user in users}
    rows = []
    for number in range(RUNNING + QUEUED):
        user, on = users[number % len(users)], number < RUNNING
        more = (
            {"state": "running", "reserved": True, "attempt": 1, "run_started": True, "started": moment} if on else {}
        )
        name = f"job-scale{number}-1" if on else ""
        more |= {"project": projects[user.pk], "diagnosed": True}
        rows.append(Job(user=user, name=f"j{letters(number)}", run_name=name, **common, **more))
    Job.objects.bulk_create(rows, 1000)
    asked = {"applier": "jm", "request_type": "request", "tenant": tenant, "state": "confirmed", "settled": moment}
    asked |= {"cpu": 1, "ram": 512, "gpu": 0, "rom": 0}
    requests = [ResourceRequest(id=f"job:{row.pk}", owner=row.user.username, **asked) for row in rows[:RUNNING]]
    ResourceRequest.objects.bulk_create(requests, 1000)
    Tenant.objects.filter(pk=tenant.pk).update(cpu_inuse=RUNNING, ram_inuse=512 * RUNNING)
    config = runners.get().config
    bodies = []
    for row in rows[:RUNNING]:
        folder = storage.job_dir(row.user.username, row.name)
        folder.mkdir(parents=True, exist_ok=True)
        spec = RunSpec(name=row.run_name, command=["python3", "x"], cwd=folder, environment={}, owner=row.user_id,
                       log=folder / "log" / "job.log", usage=folder / "log" / "usage.jsonl")  # fmt: skip
        bodies.append(objects.job(spec, config, staging.mounts(spec, config)))
    ask("/_scale/runs", json.loads(json.dumps(bodies, default=str)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def one_round() -> dict:
    """Run every step once; return wall and processor seconds by app."""
    seconds = {}
    for step in STEPS:
        close_old_connections()
        begun, busy = time.monotonic(), time.process_time()
        step.run()
        app = step.__name__.partition(".")[0]
        seconds[app] = [round(time.monotonic() - begun, 3), round(time.process_time() - busy, 3)]
    return seconds


def memory_mib() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def say(**facts) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    begun = time.monotonic()
    seed()
    say(phase="seeded", seconds=round(time.monotonic() - begun, 1))
    runner, changed = runners.get(), threading.Event()
    with runner.watch(changed.set):
        begun = time.monotonic()
        while not (runner._watcher and all(feed.current for feed in runner._watcher.feeds)):
            time.sleep(0.05)
        say(phase="watching", seconds=round(time.monotonic() - begun, 1), mib=memory_mib())
        first = one_round()
        ask("/_scale/counts")
        rounds = [one_round() for _ in range(ROUNDS)]
        say(phase="rounds", first=first, rounds=rounds, calls=ask("/_scale/counts"), mib=memory_mib())
        end, count = time.monotonic() + IDLE_S, 0
        while time.monotonic() < end:
            begun = time.monotonic()
            one_round()
            count += 1
            time.sleep(max(0.0, 2.0 - (time.monotonic() - begun)))
        say(phase="idle", seconds=IDLE_S, rounds=count, calls=ask("/_scale/counts"), mib=memory_mib())
        starts(changed)
    os._exit(0)  # the watch's threads end with their streams


def starts(changed: threading.Event) -> None:
    """End runs one by one and measure until another job's run has started."""
    for number in range(STARTS):
        ran = Job.objects.filter(run_started=True).exclude(run_name__startswith="job-scale").count()
        ask("/_scale/end", [f"mlp-job-scale{number}-1"])
        begun = time.monotonic()
        while Job.objects.filter(run_started=True).exclude(run_name__startswith="job-scale").count() == ran:
            if time.monotonic() - begun > 120:
                say(phase="start", seconds=None)
                return
            one_round()
            changed.wait(0.5)
            changed.clear()
        say(phase="start", seconds=round(time.monotonic() - begun, 2))


main()
