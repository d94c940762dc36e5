"""The demo's AIOps part: the platform's logs are watched, a model learns them, a job fails in a way that its log has
never shown, and the line is marked as an anomaly.

Only administrators may do this, so it needs an administrator's password: MLP_ADMIN_PASSWORD, or the file
{MLP_ROOT}/admin-password.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

JOB = "watched"
COMPONENTS = ("web", "worker", "ingest")
LEARN_S, JUDGE_S = 240, 60
ENOUGH = 150  # lines of the job before the model learns
FAULT = "RuntimeError: device-side assert triggered: gradients exploded in layer conv_out"
SCRIPT_FOLDER, SIGNAL_FOLDER = "watched", "watched-signal"
# Logs as a training does, until a file `break` appears in the folder beside its own: then it fails in a new way. A job
# runs a snapshot of its script's folder, but reads the other folders of .home as they are.
SCRIPT = f'''
import os, random, sys, time
beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "{SIGNAL_FOLDER}", "break")
for step in range(1, 100000):
    print(f"step {{step}} loss {{random.random():.4f}} took {{random.randrange(9, 40)}} ms", flush=True)
    if step % 10 == 0:
        print(f"saved checkpoint ckpt/step{{step}}.pt with {{random.randrange(1000, 9000)}} bytes", flush=True)
    if step % 25 == 0:
        print(f"evaluated {{random.randrange(90, 99)}} pictures, accuracy 0.{{random.randrange(80, 99)}}", flush=True)
    if os.path.exists(beside):
        print("{FAULT}", flush=True)
        sys.exit(1)
    time.sleep(0.02 if step < 400 else 0.5)
'''


def operator_password() -> str | None:
    """Return the operator's password, None where this user may not read it."""
    given = os.environ.get("MLP_ADMIN_PASSWORD")
    if given:
        return given
    root = Path(os.environ.get("MLP_ROOT") or Path(__file__).resolve().parent.parent / "var")
    try:
        return (root / "admin-password").read_text().strip()
    except OSError:
        return None


def begin_job(platform, username: str, put) -> None:
    """Start the job; `put(text, path)` stores a file in the user's .home."""
    put(SCRIPT, f"{SCRIPT_FOLDER}/watched.py")
    put("The demo's job ends when a file named break appears here.\n", f"{SIGNAL_FOLDER}/README.txt")
    body = {"name": JOB, "entry": f"{SCRIPT_FOLDER}/watched.py", "cpu": 0.2, "ram": 128}
    platform.must("POST", f"users/{username}/jobs", body)


def break_job(put) -> None:
    put("now", f"{SIGNAL_FOLDER}/break")


def watch(platform, operator, username: str, say) -> None:
    """Wait for enough lines, put the job and some components on the watchlist, and follow the training."""
    query = f"aiops/logs?limit=1&namespace={username}&deployment={JOB}"
    wait(platform, LEARN_S, lambda: count(operator, query) >= ENOUGH, "the job's lines are not stored")
    names = [(username, JOB), *(("platform", name) for name in COMPONENTS)]
    items = [{"clusterId": "local", "namespace": space, "deployment": name} for space, name in names]
    operator.must("POST", "aiops/model/train", {"items": items, "anew": True})
    end, shown = time.monotonic() + LEARN_S, -1
    while time.monotonic() < end:
        state = operator.must("GET", "aiops/model/status")
        percent = int((state["statistics"] or {}).get("percentageCompleted") or 0)
        if percent // 10 != shown // 10:
            shown = percent
            say(f"  {percent:3} %  {(state['statistics'] or {}).get('stage', '')}")
        if state["status"] == "completed":
            say("  the model is trained, verified and active")
            return
        if state["status"] == "training failed":
            raise platform.failed(f"the training failed: {state['reason']}")
        time.sleep(1)
    raise platform.failed(f"the training did not end within {LEARN_S} s. {state['reason']}")


def provoke(platform, operator, username: str, say) -> None:
    """Make the job fail; the line of its failure must be an anomaly, its usual lines must not."""
    query = f"aiops/logs?namespace={username}&deployment={JOB}"
    anomalies: list[dict] = []

    def is_judged() -> bool:
        anomalies[:] = [row for row in operator.must("GET", f"{query}&level=Anomaly&limit=20") if row["log"] == FAULT]
        return bool(anomalies)

    wait(platform, JUDGE_S, is_judged, "the fault was not judged an anomaly")
    row = anomalies[0]
    normal = count(operator, f"{query}&level=Normal&limit=1")
    usual = 100 * row["opnilog_confidence"]
    say(f"  {normal} of the job's lines are normal, and this one is an anomaly (confidence {usual:.0f} %):")
    say(f"    {row['log']}")
    say(f"  see {platform.url}/aiops?level=Anomaly")


def count(operator, query: str) -> int:
    """Return how many lines match, at most 1000."""
    return len(operator.must("GET", query.replace("limit=1", "limit=1000")))


def wait(platform, seconds: float, true, failure: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise platform.failed(failure)
        time.sleep(1)
