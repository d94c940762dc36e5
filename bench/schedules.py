"""200 schedules that are due in the same second: how late the last of them has submitted its job.

The limit is printed beside it: the jobs themselves are created at the same time by as many POSTs of one client.
"""

from __future__ import annotations

import time

import instance

COUNT = 200
DUE = """
from datetime import timedelta
from django.utils import timezone
from automation.models import Schedule
print(Schedule.objects.update(next_at=timezone.now() - timedelta(seconds=1)))
"""
LAST = """
from automation.models import Firing
from django.db.models import Max, Min
from jobs.models import Job
rows = Firing.objects.filter(state="submitted")
span = Job.objects.filter(firings__isnull=False).aggregate(first=Min("created"), last=Max("created"))
print(rows.count(), (span["last"] - span["first"]).total_seconds() if rows.count() else 0)
"""
WAIT_S = 300


def name(stem: str, number: int) -> str:
    return stem + chr(97 + number // 26) + chr(97 + number % 26)


def main() -> None:
    job = {"entry": "work.py", "cpu": 0.1, "ram": 100}
    with instance.running(MLP_SCHEDULES_PER_USER=str(COUNT)) as platform:
        platform.script("work.py", "print('done')\n")
        for number in range(COUNT):
            body = {"name": name("s", number), "cron": "0 0 1 1 *", "job": job}
            platform.call("POST", "/users/bench/schedules", body)
        platform.manage("shell", text=DUE)
        end, count = time.monotonic() + WAIT_S, 0
        while count < COUNT and time.monotonic() < end:
            time.sleep(0.5)
            count, spent = (float(part) for part in platform.manage("shell", text=LAST).split()[-2:])
        began = time.monotonic()
        for number in range(COUNT):
            platform.call("POST", "/users/bench/jobs", {"name": name("j", number), **job})
        posts = time.monotonic() - began
    print(f"{int(count)} of {COUNT} schedules, due in the same second {instance.load()}")
    print(f"  from the first job to the last     {spent:6.1f} s   {1000 * spent / COUNT:6.0f} ms each")
    print(f"  as many POSTs of jobs by one client {posts:5.1f} s   {1000 * posts / COUNT:6.0f} ms each")


if __name__ == "__main__":
    main()
