"""Brings runs from here to an MLflow server. Each run there has a tag with its id here, by which it is found again: an
export that was interrupted is continued, and creates no run twice.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from urllib.parse import quote, urlsplit

from accounts.models import User
from jobs.models import Job, Project, State
from jobs.models.nesting import PARENT
from kernel import storage
from kernel.units import count
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, Caller
from mlflow_protocol.reading import Fields
from tracking.mlflow import artifact_paths, metrics, shown

from .memory import checksum
from .report import CHANGED, LEFT, NEW, SAME, Report
from .server import PROXY, Away, ServerError
from .source import PROXIED, Source

OURS, MARK = "platform.run_id", "platform.exported"  # tags of a run there
TOGETHER = 100  # runs
MAX_LINKS = 40  # one to the other, as Linux has it
LIVE = ("RUNNING", "SCHEDULED")


def name_of(run: dict) -> str:
    """Return what the report calls a run."""
    return f"run {run['info']['run_id']} ({run['info']['run_name'][:100]})"


def _target(path: str, links: dict[str, str]) -> str:
    """Return the path that a link leads to, over further links; nothing for one that goes round in circles."""
    for _step in range(MAX_LINKS):
        if path not in links:
            return path
        path = posixpath.normpath(posixpath.join(posixpath.dirname(path), links[path]))
    return ""


def tags_of(run: dict) -> dict[str, str]:
    """Return the tags of a run."""
    return {tag["key"]: tag["value"] for tag in run["data"].get("tags") or []}


class RunsOut:
    """Sends the runs of projects. `there` has the id of each exported run at the server, by its id here."""

    def __init__(self, target: Source, user: User, report: Report, again: bool = False, artifacts: bool = True):
        self.target, self.server, self.report = target, target.server, report
        self.again, self.artifacts = again, artifacts
        self.caller = Caller(user.pk, user.username)
        self.there: dict[str, str] = {}
        self.orphans: list[tuple[str, str]] = []  # run there, and its parent's id here
        self.uris: dict[str, str] = {}  # where the server keeps the artifacts of a run
        self.verified = {"run": [0, 0], "point": [0, 0], "param": [0, 0], "file": [0, 0]}
        self.clean = True

    def send(self, project: Project, experiment: str, since) -> None:
        """Send the runs of a project to an experiment. Without an experiment they are only counted."""
        known = {}
        for run in self.target.runs(experiment, None, True) if experiment else ():
            if ours := tags_of(run).get(OURS):
                known[ours] = run
                self.there[ours] = run["info"]["run_id"]
        jobs = Job.kept.filter(project=project).exclude(state__in=(State.CREATING, State.DELETING))
        jobs = jobs.select_related("user", "project").order_by("started", "pk")
        rows = (jobs.filter(started__gte=since) if since else jobs).iterator(TOGETHER)
        while some := list(islice(rows, TOGETHER)):
            for job, run in zip(some, shown.runs_of(some), strict=True):
                self.report.found["run"] += 1
                try:
                    self._send_run(job, run, known.get(job.run_id.hex), experiment)
                except Away:
                    raise
                except ServerError as problem:
                    self.report.problem(name_of(run), problem)

    def _send_run(self, job: Job, run: dict, there: dict | None, experiment: str) -> None:
        mark = checksum(run)
        if there is not None and there["info"].get("lifecycle_stage") == "deleted":
            self.report.count("run", LEFT)
            self.report.note("runs that were deleted there since an earlier export are left out")
            return
        self.verified["run"][0] += 1
        self.verified["run"][1] += there is not None
        live = run["info"]["status"] in LIVE
        if there is not None and not live and not self.again and tags_of(there).get(MARK) == mark:
            self.report.count("run", SAME)
            return
        self.report.count("run", NEW if there is None else CHANGED)
        if not experiment:
            return
        self.clean = True
        info = self._created(run, experiment) if there is None else there["info"]
        self.verified["run"][1] += there is None
        self.there[job.run_id.hex], self.uris[info["run_id"]] = info["run_id"], info.get("artifact_uri") or ""
        self._fill(job, run, info)
        end = {"end_time": run["info"]["end_time"]} if "end_time" in run["info"] else {}
        self.server.post("runs/update", run_id=info["run_id"], run_uuid=info["run_id"],
                         status=run["info"]["status"], run_name=run["info"]["run_name"], **end)  # fmt: skip
        if self.clean:
            self.server.post("runs/set-tag", run_id=info["run_id"], run_uuid=info["run_id"], key=MARK, value=mark)

    def _created(self, run: dict, experiment: str) -> dict:
        info = run["info"]
        answer = self.server.post(
            "runs/create", experiment_id=experiment, user_id=info["user_id"], run_name=info["run_name"],
            start_time=info["start_time"], tags=[{"key": OURS, "value": info["run_id"]}],
        )  # fmt: skip
        return answer["run"]["info"]

    # --- what it has -------------------------------------------------------------------------------------------------
    def _fill(self, job: Job, run: dict, info: dict) -> None:
        there = info["run_id"]
        tags = tags_of(run)
        if parent := tags.pop(PARENT, ""):
            if parent in self.there:
                tags[PARENT] = self.there[parent]
            else:
                self.orphans.append((there, parent))
        self._batches(run, there, "tags", [{"key": key, "value": value} for key, value in tags.items()], 100)
        params = run["data"]["params"]
        self._batches(run, there, "params", params, limits.BATCH_PARAMS)
        points = 0
        for metric in run["data"]["metrics"]:
            for page in self._history(job, metric["key"]):
                self._batches(run, there, "metrics", page, limits.BATCH_METRICS)
                points += len(page)
        for dataset in run["inputs"]["dataset_inputs"]:
            self.try_to(f"{name_of(run)}: dataset", lambda dataset=dataset: self.server.post(
                "runs/log-inputs", run_id=there, datasets=[dataset]))  # fmt: skip
            self.report.count("input", NEW)
        self._artifacts(job, run, info)
        self._verify(run, there, points)

    def _batches(self, run: dict, there: str, kind: str, rows: list[dict], most: int) -> None:
        for at in range(0, len(rows), most):
            self._batch(run, there, kind, rows[at : at + most])
        if kind != "tags":
            self.report.count({"params": "param", "metrics": "point"}[kind], NEW, len(rows))

    def _batch(self, run: dict, there: str, kind: str, rows: list[dict]) -> None:
        """Send a batch; where it is refused, find the entries that are."""
        try:
            self.server.post("runs/log-batch", run_id=there, **{kind: rows})
        except ServerError as problem:
            if problem.status not in (400, 413):
                raise
            if len(rows) > 1:
                self._batch(run, there, kind, rows[: len(rows) // 2])
                self._batch(run, there, kind, rows[len(rows) // 2 :])
            else:
                self.give_up(f"{name_of(run)}: {kind} {rows[0]['key'][:200]}", problem)

    def _history(self, job: Job, key: str) -> Iterator[list[dict]]:
        token = ""
        while True:
            fields = Fields({"run_id": job.run_id.hex, "metric_key": key, "page_token": token})
            answer = metrics.get_history(Call(None, self.caller, fields))
            yield answer["metrics"]
            if not (token := answer.get("next_page_token", "")):
                return

    def _artifacts(self, job: Job, run: dict, info: dict) -> None:
        if not self.artifacts:
            return
        top = storage.job_dir(job.user.username, job.name)
        self.upload(top / artifact_paths.FOLDER, info["run_id"], "", name_of(run))
        logged = {path for path, _info in storage.files(top / artifact_paths.FOLDER)}
        self.upload(
            top, info["run_id"], "", name_of(run),
            lambda path: artifact_paths.is_output(path) and path not in logged,
        )  # fmt: skip

    def upload(
        self, top, there: str, folder: str, name: str, wanted: Callable[[str], bool] = lambda path: True, uri: str = ""
    ) -> bool:
        """Send the files of a folder that are `wanted` to the artifacts of a run there, or of the logged model at
        `uri`; return whether all of them are there.
        """
        files, complete = self._found(top, name, wanted)
        of_model, uri = bool(uri), uri or self.uris.get(there, "")
        if not files:
            return complete
        if urlsplit(uri).scheme != PROXIED:
            artifacts = count(len(files), "artifact")
            self.give_up(f"{name}: {artifacts}", f"the server does not take files itself, only at {uri}")
            return False
        root = "/".join(filter(None, (urlsplit(uri).path.strip("/"), folder)))
        have = {file.path: file.size for file in self._listed(there, uri, of_model)}
        for path, place, info in files:
            self.verified["file"][0] += 1
            inner = "/".join(filter(None, (folder, path)))
            if have.get(inner) == info.st_size and not self.again:
                self.verified["file"][1] += 1
                self.report.count("file", SAME)
                continue
            sent = self.try_to(f"{name}: artifact {path[:200]}", lambda path=path, place=place, info=info:
                self.server.upload(f"{PROXY}/{quote(f'{root}/{path}')}", lambda: storage.open_file(top, place),
                                   info.st_size))  # fmt: skip
            complete = complete and sent
            if sent:
                self.verified["file"][1] += 1
                self.report.count("file", NEW)
                self.report.count("byte", NEW, info.st_size)
        return complete

    def _found(self, top, name: str, wanted: Callable) -> tuple[list[tuple[str, str, os.stat_result]], bool]:
        """Return the files of a folder: of each its path, the path of its bytes (that of another file where it is a
        link) and its stat. The second says whether that is all; what is missing is reported.
        """
        files, links, complete = dict(storage.files(top, every=True)), {}, True

        def refuse(path: str, why: str) -> None:
            nonlocal complete
            complete = False
            self.give_up(f"{name}: artifact {storage.shown(path)[:200]}", why)

        for entry in storage.left_out(top):
            if entry.target:
                links[entry.path] = entry.target
            elif wanted(entry.path):
                refuse(entry.path, f"is nested more than {storage.LEVELS} folders deep" if entry.deep else "is no file")
        artifacts = []
        for path in sorted(filter(wanted, [*files, *links])):
            place = path if path in files else _target(path, links)
            if place not in files:
                refuse(path, "is a link that leads to no file of the output")
            elif storage.shown(path) != path:
                refuse(path, "a server takes no such name")
            else:
                artifacts.append((path, place, files[place]))
        return artifacts, complete

    def _listed(self, there: str, uri: str, of_model: bool):
        try:
            return list((self.target.model_files if of_model else self.target.artifacts)(there, uri))
        except Away:
            raise
        except ServerError:
            return []

    def _verify(self, run: dict, there: str, points: int) -> None:
        """Compare the numbers of a run that was sent with what the server answers of it."""
        answer = self.server.get("runs/get", run_id=there, run_uuid=there)["run"].get("data") or {}
        keys = [metric["key"] for metric in answer.get("metrics") or []]
        here = {"param": len(run["data"]["params"]), "point": points}
        got = {
            "param": len(answer.get("params") or []),
            "point": sum(len(page) for key in keys for page in self.target.history(there, key)),
        }
        for kind, number in here.items():
            self.verified[kind][0] += number
            self.verified[kind][1] += min(number, got[kind])

    # --- at the end --------------------------------------------------------------------------------------------------
    def finish(self) -> None:
        """Link runs to their parent where that was sent after them, and give the report the comparison."""
        for there, parent in self.orphans:
            if parent in self.there:
                self.try_to(f"run {there}: parent", lambda there=there, parent=parent: self.server.post(
                    "runs/set-tag", run_id=there, run_uuid=there, key=PARENT, value=self.there[parent]))  # fmt: skip
        self.report.verified += [(kind, *numbers) for kind, numbers in self.verified.items() if numbers[0]]

    def try_to(self, what: str, call: Callable[[], Any]) -> bool:
        """Make a call; record what is refused. Return whether it was not."""
        try:
            call()
        except Away:
            raise
        except (ServerError, OSError) as problem:
            self.give_up(what, problem)
            return False
        return True

    def give_up(self, what: str, why: object) -> None:
        """Record what could not be sent of the current run or model."""
        self.clean = False
        self.report.problem(what, why)
