"""What must be true at the end, whatever was sent: the platform is healthy, nothing is stuck, no part has ended."""

from __future__ import annotations

import json
import re
import urllib.error
from collections import Counter

from fuzzing import world
from fuzzing.ledger import Ledger
from fuzzing.world import World, wait

HEAL_S, END_S = 30, 120
SPAWNED = re.compile(r"spawned: '([^']+)'")
# But not what a refused request is logged by, for its host or for a name that is taken; nor the database's start.
EXPECTED = re.compile(r"django\.security|duplicate key value violates unique constraint|database system is starting up")
FAULTY = re.compile(
    r"Traceback \(most recent call last\)|\bCRITICAL\b|\bERROR\b|\bFATAL\b|\bPANIC\b|core dumped|\[emerg\]"
)


def judge(home: World, ledger: Ledger) -> None:
    """Add what is wrong with the platform to the findings."""
    problem = wait(lambda: _healthy(home), HEAL_S, f"not healthy within {HEAL_S} s")
    problem = problem or wait(lambda: home.tidy(0) == 0, END_S, "objects are stuck")
    for user in (*world.USERS, *home.registered[-world.MAX_USERS :]) if problem else ():
        for kind in ("apps", "models", "jobs", "datasets"):
            for row in home.admin.call("GET", f"/users/{user}/{kind}"):
                ledger.find("the end", f"{kind} {row['state']}", json.dumps(row))
    if problem:
        ledger.find("the end", problem, "", "")
    _tenant(home, ledger)
    _logs(home, ledger)


def _healthy(home: World) -> bool:
    try:
        return json.loads(home.platform.request("GET", "/healthz"))["status"] == "ok"
    except (urllib.error.HTTPError, OSError):
        return False


def _tenant(home: World, ledger: Ledger) -> None:
    for row in home.admin.call("GET", "/tenants"):
        for kind in ("cpu", "gpu", "ram", "rom"):
            if not 0 <= row[f"{kind}_inuse"] <= row[kind]:
                ledger.find("the end", f"{kind} of the tenant {row['name']}", json.dumps(row))


def _logs(home: World, ledger: Ledger) -> None:
    logs = home.platform.root / "log"
    spawned = Counter(SPAWNED.findall((logs / "supervisor" / "supervisor.log").read_text(errors="replace")))
    for part, times in spawned.items():
        if times > 1:
            ledger.find("the end", f"the part {part} was started {times} times", str(logs / part))
    for path in sorted(logs.glob("*/*")):
        text = path.read_text(errors="replace")
        for match in FAULTY.finditer(text):
            around = text[text.rfind("\n", 0, match.start()) + 1 : match.start() + 1500]
            if EXPECTED.search(around.split("\n")[0]):
                continue
            ledger.find(f"log of {path.parent.name}", around.split("\n")[0][:200], str(path), around)
