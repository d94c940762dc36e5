"""Compares the ledger with the platform at the end: nothing lost, nothing doubled, nothing out of order."""

from __future__ import annotations

import hashlib
import json
import urllib.parse
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime

from .client import Caller, token_of
from .ledger import Ledger
from .load.actor import World
from .site import Site

LOG_PAGE = 1000
# What may follow in an object's history. "" is before its creation.
LEGAL = {
    "job": {("", "running"), ("", "creating"), ("creating", "running"), ("creating", "error"), ("running", "finished"),
            ("running", "error"), ("finished", "deleting"), ("error", "deleting")},
    "dataset": {("", "creating"), ("creating", "ready"), ("creating", "error"), ("ready", "deleting"),
                ("error", "deleting")},
    "model": {("", "creating"), ("creating", "ready"), ("creating", "error"), ("ready", "deleting"),
              ("error", "deleting")},
    "application": {("", "creating"), ("creating", "ready"), ("creating", "error"), ("ready", "creating"),
                    ("ready", "error"), ("ready", "deleting"), ("error", "deleting")},
    "sweep": {("", "running"), ("running", "finished"), ("finished", "deleting")},
}  # fmt: skip


class Comparison:
    """The differences between a ledger and the platform that wrote its acknowledgements; `differences` has them."""

    def __init__(self, site: Site, ledger: Ledger, caller_for: Callable[[str], Caller]):
        self.site, self.ledger, self.caller_for = site, ledger, caller_for
        self.differences: list[str] = []
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        for check in (
            self.accounts,
            self.tokens,
            self.files,
            self.states,
            self.jobs,
            self.sweeps,
            self.seen,
            self.points,
            self.lines,
        ):
            check()

    def differ(self, line: dict, words: str) -> None:
        self.differences.append(f"{words}; the ledger's line: {json.dumps(line)[:400]}")

    def get(self, user: str, path: str):
        """Return the object at this path of the API, None when there is none."""
        caller = self.caller_for(user)
        answer = caller.until_known(lambda: caller.call("GET", path))
        return answer.json() if answer.ok else None

    # --- users --------------------------------------------------------------------------------------------------------
    def accounts(self) -> None:
        admin = self.caller_for("admin")
        for user, (possible, line) in self.last(
            "account", lambda line: line["user"], lambda line: line["state"]
        ).items():
            answer = admin.until_known(lambda user=user: admin.call("GET", f"users/{user}"))
            state = answer.json()["state"] if answer.ok else None
            self.counts["accounts"] += 1
            if state not in possible and not (state == "Actived" and None in possible):
                self.differ(line, f"the account {user} is {state}, not {sorted(map(str, possible))}")

    def tokens(self) -> None:
        for line in self.ledger.read("token"):
            for kind, wanted in (("dead", False), ("living", True)):
                if line.get(kind):
                    caller = Caller(self.site.base, self.caller_for("admin").wrong, line[kind])
                    works = caller.until_known(lambda caller=caller: caller.call("GET", "auth")).ok
                    self.counts["tokens"] += 1
                    if works != wanted and not (wanted and self._has_ended(line["user"])):
                        self.differ(line, f"the {kind} token of {line['user']} {'works' if works else 'does not work'}")

    def _has_ended(self, user: str) -> bool:
        return any(line["state"] == "NotActive" for line in self.ledger.read("account") if line["user"] == user)

    # --- files and objects --------------------------------------------------------------------------------------------
    def last(self, what: str, key: Callable, value: Callable) -> dict:
        """Return key -> (the values that it may have now, its last line). None among them: it may be absent."""
        known: dict = {}
        for line in self.ledger.read(what):
            before = known.get(key(line), ({None}, line))[0]
            known[key(line)] = ({value(line)} if line["sure"] else before | {value(line)}), line
        return known

    def files(self) -> None:
        datasets = self.last("dataset", lambda line: (line["user"], line["name"]), lambda line: line["state"])
        last_lines = self.last("file", lambda line: (line["user"], line["path"]), lambda line: line["sha"])
        for (user, path), (possible, line) in last_lines.items():
            folder = path.partition("/")[0]
            states = datasets.get((user, folder), ({"ready"}, None))[0]
            if "ready" not in states:
                continue  # deleted with its dataset, or never reported ready
            wanted = possible | {None} if "gone" in states else possible
            caller = self.caller_for(user)
            url = f"/data/{user}/{urllib.parse.quote(path)}"
            answer = caller.until_known(lambda caller=caller, url=url: caller.ask("GET", url))
            content = hashlib.sha256(answer.body).hexdigest() if answer.ok else None
            self.counts["files"] += 1
            if content not in wanted:
                self.differ(line, f"{user}/{path} has {content} ({answer.status}), not {wanted}")

    def states(self) -> None:
        """Compare the states of datasets, models and the application; what was deleted must be gone."""
        for what, path in (("dataset", "datasets"), ("model", "models"), ("job deleted", "jobs")):
            last_lines = self.last(
                what, lambda line: (line["user"], line["name"]), lambda line: line.get("state", "gone")
            )
            for (user, name), (possible, line) in last_lines.items():
                row = self.get(user, f"users/{user}/{path}/{name}")
                state = row["state"] if row else "gone"
                self.counts[path] += 1
                ok = {"gone" if expected is None else expected for expected in possible}
                if what == "job deleted" and ok == {"gone"} and not line["sure"]:
                    continue  # asked for without an answer
                if "creating" in ok:
                    ok |= {"error"}  # the load did not go on with it, and it was ended
                if state not in ok:
                    self.differ(line, f"{what} {user}/{name} is {state}, not {sorted(ok)}: {row}")
        for line in self.ledger.read("application"):
            row = self.get(line["user"], f"users/{line['user']}/apps/{line['name']}")
            if row is None or row["state"] != "ready":
                self.differ(line, f"the application is {row}")

    # --- jobs ---------------------------------------------------------------------------------------------------------
    def jobs(self) -> None:
        deleted = {(line["user"], line["name"]) for line in self.ledger.read("job deleted")}
        for line in self.ledger.read("job"):
            user, name = line["user"], line["name"]
            row = self.get(user, f"users/{user}/jobs/{name}")
            if row is None:
                if line["sure"] and (user, name) not in deleted:
                    self.differ(line, f"the job {user}/{name} is lost")
                continue
            self.counts["jobs"] += 1
            right = "error" if line["kind"] in ("failing", "cancelled") else "finished"
            if row["state"] != right:
                self.differ(line, f"the job {user}/{name} is {row['state']}, not {right}: {row}")
            elif line["kind"] == "retrying" and row["attempt"] < 2:
                self.differ(line, f"the job {user}/{name} has finished at its first attempt, which fails")
            self.metrics(line, row)
            if row["attempt"] == 1 and row["state"] == "finished":
                self.log(line)

    def sweeps(self) -> None:
        """Compare the results of each sweep with the trials that it was to have: each by one job, and no job more."""
        for line in self.ledger.read("sweep"):
            user, name = line["user"], line["name"]
            row = self.get(user, f"users/{user}/sweeps/{name}")
            if row is None:
                if line["sure"]:
                    self.differ(line, f"the sweep {user}/{name} is lost")
                continue
            trials = self.get(user, f"users/{user}/sweeps/{name}/trials?limit=1000")
            jobs = {trial["job"] for trial in trials}
            query = urllib.parse.quote(f"group = {name}")
            runs = self.get(user, f"users/{user}/runs?limit=1000&filter={query}")["runs"]
            self.counts["trials"] += len(trials)
            numbers = sorted(trial["number"] for trial in trials)
            if row["state"] != "finished" or row["counts"]["complete"] != line["trials"]:
                self.differ(line, f"the sweep {user}/{name} is {row['state']}, {row['reason']}: {row['counts']}")
            if numbers != list(range(line["trials"])) or jobs != {run["name"] for run in runs}:
                self.differ(line, f"the sweep {user}/{name} has the trials {numbers} and {len(runs)} jobs")

    def metrics(self, line: dict, row: dict) -> None:
        """Compare what the script has noted as acknowledged with what is stored."""
        user, name = line["user"], line["name"]
        rows = list(reversed(self.get(user, f"users/{user}/jobs/{name}/metrics?limit=1000") or []))
        self.counts["metrics"] += len(rows)
        ended = datetime.fromisoformat(row["ended"]).timestamp() if row["ended"] else float("inf")
        for rank in range(line["workers"]):
            stored = [row["epoch"] for row in rows if row["loss"] == rank]
            acked = list(self.acked(user, name, rank))
            must = [note["epoch"] for note in acked if note["at"] < ended or row["state"] == "finished"]
            if stored != sorted(set(stored)):
                self.differ(line, f"metrics of {user}/{name} are doubled or out of order: {stored}")
            if missing := sorted(set(must) - set(stored)):
                self.differ(line, f"metrics of {user}/{name} are lost: {missing} of {len(must)}")
            if row["state"] == "finished" and len(stored) != line["rows"]:
                self.differ(line, f"{user}/{name} has reported {line['rows']} rows, {len(stored)} are stored")

    def acked(self, user: str, name: str, rank: int) -> Iterator[dict]:
        path = self.site.root / "jobs" / user / name / f"acked.{rank}"
        for text in path.read_text().splitlines() if path.exists() else ():
            yield json.loads(text)

    def log(self, line: dict) -> None:
        """Compare the log of a job whose run was not disturbed, at the job and among the log lines."""
        user, name = line["user"], line["name"]
        caller = self.caller_for(user)
        answer = caller.until_known(lambda: caller.call("GET", f"users/{user}/jobs/{name}/log"))
        shown = [text for text in answer.body.decode().splitlines() if f"storm {name} " in text]
        followed = Counter(row["log"] for row in self.stored_lines(user, name) if f"storm {name} " in row["log"])
        self.counts["lines of jobs"] += len(shown)
        wanted = line["rows"] * line["workers"]
        if len(shown) != wanted or len(set(shown)) != wanted:
            self.differ(line, f"the log of {user}/{name} has {len(shown)} lines, {len(set(shown))} different")
        if followed != Counter(shown):
            odd = (Counter(shown) - followed) + (followed - Counter(shown))
            self.differ(line, f"the log lines of {user}/{name} differ from its log: {dict(odd)}")

    def seen(self) -> None:
        """Compare what a websocket has sent, from its opening to its normal end, with the stored rows."""
        for line in self.ledger.read("seen"):
            user, name = line["user"], line["name"]
            rows = self.get(user, f"users/{user}/jobs/{name}/metrics?limit=1000")
            self.counts["websockets"] += 1
            if rows is not None and line["rows"] != [[row["epoch"], row["loss"]] for row in reversed(rows)]:
                self.differ(line, f"the websocket of {user}/{name} has not sent what is stored")

    def points(self) -> None:
        """Compare the points that MLflow clients have logged with the histories of their runs."""
        stored: dict[tuple, Counter] = {}
        for line in self.ledger.read("points"):
            counts = []
            for key, step, value in line["points"]:
                place = line["user"], line["run"], key
                if place not in stored:
                    stored[place] = self.history(*place)
                counts.append(stored[place].pop((step, value), 0))
            self.counts["points"] += sum(counts)
            if any(count > 1 for count in counts) or (line["sure"] and 0 in counts):
                self.differ(line, f"points of the run {line['run']} are stored {counts} times")
            elif len(set(counts)) > 1:
                self.differ(line, f"a batch of points of the run {line['run']} is stored in part: {counts}")
        for (_user, run, key), left in stored.items():
            if left:
                self.differences.append(f"points of {key} of the run {run} that nobody has sent: {dict(left)}")

    def history(self, user: str, run: str, key: str) -> Counter:
        """Return how often each point of a metric is stored."""
        caller = self.caller_for(user)
        query = urllib.parse.urlencode({"run_id": run, "metric_key": key})
        answer = caller.until_known(lambda: caller.ask("GET", f"/mlflow/api/2.0/mlflow/metrics/get-history?{query}"))
        return Counter((metric["step"], metric["value"]) for metric in answer.json()["metrics"])

    # --- log lines ----------------------------------------------------------------------------------------------------
    def lines(self) -> None:
        stored: dict[tuple, Counter] = {}
        wanted: dict[tuple, list] = defaultdict(list)
        for line in self.ledger.read("lines"):
            wanted[line["user"], line["workload"]].append(line)
        for (user, workload), batches in wanted.items():
            stored = Counter(row["log"] for row in self.stored_lines(user, workload))
            for line in batches:
                counts = [stored.pop(text, 0) for text in line["texts"]]
                self.counts["log lines"] += sum(counts)
                if any(count > 1 for count in counts) or (line["sure"] and 0 in counts):
                    self.differ(line, f"log lines of {user}/{workload} are stored {counts} times")
                elif len(set(counts)) > 1:
                    self.differ(line, f"a batch of log lines of {user}/{workload} is stored in part: {counts}")
            if stored:
                self.differences.append(f"log lines of {user}/{workload} that nobody has sent: {dict(stored)}")

    def stored_lines(self, user: str, workload: str) -> Iterator[dict]:
        offset = 0
        while True:
            path = f"aiops/logs?namespace={user}&deployment={workload}&limit={LOG_PAGE}&offset={offset}"
            rows = self.get(user, path) or []
            yield from rows
            if len(rows) < LOG_PAGE:
                return
            offset += LOG_PAGE


def history_of(rows: list[tuple]) -> list[str]:
    """Return what is wrong in the history: rows of (kind, id, owner, name, source, target), oldest first."""
    wrong, state = [], {}
    for kind, number, owner, name, source, target in rows:
        if kind in LEGAL:
            before = state.get((kind, number), "")
            if source != before or (source, target) not in LEGAL[kind]:
                wrong.append(f"the history of {kind} {owner}/{name} goes from {before!r} by {source!r} to {target!r}")
            state[kind, number] = target
    return wrong


def callers(site: Site, world: World) -> Callable[[str], Caller]:
    """Return a function that returns the caller of an actor, or of the administrator."""
    known: dict[str, Caller] = {}

    def caller_for(user: str) -> Caller:
        if user not in known:
            caller = known[user] = world.caller(world.tokens.get(user, ""))
            caller.token = caller.token or token_of(caller, user, site.environment["MLP_ADMIN_PASSWORD"])
        return known[user]

    return caller_for
