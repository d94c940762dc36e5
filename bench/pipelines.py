"""A pipeline of 100 steps that do nothing, beside as many jobs submitted one after the other by a client that waits.

What a step costs beyond its job is what the pipeline adds: looking for what comes next, and its rows.
"""

from __future__ import annotations

import time

import instance

STEPS = 100
WAIT_S = 900
JOB = {"entry": "work.py", "cpu": 0.1, "ram": 100}


def name(number: int) -> str:
    return "j" + chr(97 + number // 26) + chr(97 + number % 26)


def a_pipeline(platform: instance.Instance) -> tuple[float, float]:
    """Return the seconds of a chain of steps, and those of a second run, in which nothing has changed."""
    steps = {f"s{n}": {**JOB, "needs": [f"s{n - 1}"] if n else []} for n in range(STEPS)}
    platform.call("POST", "/users/bench/pipelines", {"name": "chain", "steps": steps})
    spent = []
    for _ in range(2):
        began = time.monotonic()
        number = platform.call("POST", "/users/bench/pipelines/chain/runs", {})["number"]
        while time.monotonic() - began < WAIT_S:
            row = platform.call("GET", f"/users/bench/pipelines/chain/runs/{number}")
            if row["state"] != "running":
                break
            time.sleep(0.2)
        if row["state"] != "finished":
            raise SystemExit(f"the run is {row['state']}: {row['reason']}")
        spent.append(time.monotonic() - began)
    return spent[0], spent[1]


def by_hand(platform: instance.Instance) -> float:
    """Return the seconds of as many jobs, each submitted when the one before has finished."""
    began = time.monotonic()
    for number in range(STEPS):
        platform.call("POST", "/users/bench/jobs", {"name": name(number), **JOB})
        platform.wait_job(name(number), "finished")
    return time.monotonic() - began


def main() -> None:
    print(f"a chain of {STEPS} steps that do nothing {instance.load()}", flush=True)
    with instance.running() as platform:
        platform.script("work.py", "print('done')\n")
        hand = by_hand(platform)
        first, again = a_pipeline(platform)
    for what, spent in (
        ("jobs, a client that waits", hand),
        ("a pipeline", first),
        ("again, nothing changed", again),
    ):
        print(f"  {what:30} {spent:7.1f} s   {1000 * spent / STEPS:7.0f} ms a step", flush=True)


if __name__ == "__main__":
    main()
