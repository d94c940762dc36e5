"""Brings the runs of a server here: rows of Job of an MLflow client, with their ids, times and whole histories.

Each step may be repeated: a point is known by its run, key, step, time and value, a parameter by its name. So a run
that was interrupted is simply taken again, and nothing is there twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from django.db import DataError, transaction
from django.utils import timezone

from accounts.models import User
from jobs import trash
from jobs.models import ENDED, Job, Origin, Project, RunInput
from jobs.models.nesting import PARENT
from jobs.summaries import labels
from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE
from mlflow_protocol import limits
from mlflow_protocol.protocol import Call, Caller, MlflowError
from mlflow_protocol.reading import Fields, WrongField, whole_of
from tracking import client_runs
from tracking.mlflow import logged, lookup, metrics, runs, writing
from tracking.mlflow.writing import Points, Tags

from .memory import Kind, Memory, checksum
from .report import CHANGED, LEFT, NEW, SAME, Report
from .server import Away, ServerError
from .source import Source

BY = "import"
TOGETHER = 200  # runs that are looked up together
AT_ONCE = 4  # requests for histories
KEYS = 16  # metrics that are fetched together
BATCH = 10_000  # points of one transaction
ORIGINAL = "mlflow.imported.run_id"  # the id at the server, where it is another run's here
WRONG = (MlflowError, WrongField, Refused, DataError, ServerError)  # what is wrong with one object


@dataclass
class Given:
    """A run as the server has it."""

    run_id: str
    info: dict
    data: dict
    whole: dict

    @classmethod
    def of(cls, row: dict) -> Given:
        info = row.get("info") or {}
        return cls(str(info.get("run_id") or info.get("run_uuid") or ""), info, row.get("data") or {}, row)

    @property
    def tags(self) -> list[tuple[str, str]]:
        return [(str(tag.get("key")), str(tag.get("value", ""))) for tag in self.data.get("tags") or []]

    @property
    def deleted(self) -> bool:
        return self.info.get("lifecycle_stage") == "deleted"

    @property
    def state(self) -> str:
        status = self.info.get("status")
        return runs.STATES.get(runs.NUMBERED.get(status, status), client_runs.RUNNING)

    def time(self, name: str) -> datetime | None:
        """Return a time of the run; None where there is none. Raises WrongField for one that cannot be stored."""
        ms = whole_of(self.info.get(name))
        if ms is None or (ms == 0 and name == "end_time"):
            return None
        if not 0 <= ms <= metrics.MAX_MS:
            raise WrongField("cannot be stored: it is not within the years 1970 to 9999, in milliseconds")
        return runs.moment(ms)


class Runs:
    """Takes the runs of experiments. `files` takes the artifacts of one run and returns how many, and their bytes."""

    def __init__(self, source: Source, memory: Memory, report: Report, files: Callable | None = None,
                 again: bool = False):  # fmt: skip
        self.source, self.memory, self.report, self.files, self.again = source, memory, report, files, again
        self.user: User = memory.user
        self.caller = Caller(self.user.pk, self.user.username)
        self.clean = True  # nothing of the current run was refused

    def take(self, incoming: Iterable[dict], project: Project | None) -> None:
        """Take runs of one experiment. Without a project they are only counted."""
        rows = map(Given.of, incoming)
        while some := list(islice(rows, TOGETHER)):
            known = self.memory.several(Kind.RUN, [given.run_id for given in some])
            jobs = Job.objects.select_related("user").in_bulk([row.object_id for row in known.values()])
            for given in some:
                self.report.found["run"] += 1
                row = known.get(given.run_id)
                job = jobs.get(row.object_id) if row else None
                try:
                    self._take_run(given, row, job, project)
                except Away:
                    raise
                except WRONG as problem:
                    self.report.problem(_name(given), problem)

    def _take_run(self, given: Given, row, job: Job | None, project: Project | None) -> None:
        mark = checksum(given.whole)
        if row is not None and (job is None or job.trashed is not None) and not (given.deleted and job is not None):
            self.report.count("run", LEFT)
            self.report.note("runs that were deleted here since an earlier import are left out")
            return
        if row is not None and row.mark == mark and not self.again and given.state != client_runs.RUNNING:
            self.report.count("run", SAME)
            return
        self.report.count("run", NEW if row is None else CHANGED)
        if project is None:
            self._foresee(given)
            return
        self.memory.require_room()
        self.clean = True
        if row is None:
            row, job = self._create(given, project)
        elif job.trashed is not None:
            return
        else:
            self._change(given, job)
        counts = self._fill(given, job)
        if given.deleted:
            trash.trash_one(job, BY)
        self.memory.complete(row, mark if self.clean else "", **counts)

    def _foresee(self, given: Given) -> None:
        self.report.count("param", NEW, len(given.data.get("params") or []))
        self.report.count("input", NEW, len(_datasets(given)))

    # --- the row -----------------------------------------------------------------------------------------------------
    def _create(self, given: Given, project: Project):
        if own := self._own(given.run_id):
            self.report.note("runs that are here by their id already, from another address, are continued")
            with transaction.atomic():
                row = self.memory.remember(Kind.RUN, given.run_id, own.pk)
            self._change(given, own)
            return row, own
        tags = self._tags(given)
        key, kept = _free_id(given.run_id)
        if not kept:
            tags.system[ORIGINAL] = given.run_id
            self.report.note("runs whose id is in use here have another one; the tag mlflow.imported.run_id has theirs")
        if given.info.get("user_id"):
            tags.system.setdefault("mlflow.user", str(given.info["user_id"])[: limits.MAX_KEY])
        title = str(given.info.get("run_name") or tags.title or given.run_id)[: limits.MAX_NAME]
        begun, ended = self._time(given, "start_time"), self._time(given, "end_time")
        begun = begun or ended or timezone.now()
        if given.state != client_runs.RUNNING and ended is None:
            self.report.note("runs that ended at the server without a time have that of their start")
        with transaction.atomic():
            job = client_runs.create(
                self.user, project, title=UNSTORABLE.sub("", title),
                started=begun, by=BY, tags=tags.own, system_tags=tags.system, notes=tags.notes or "", run_id=key,
                state=given.state, ended=ended or begun,
            )  # fmt: skip
            return self.memory.remember(Kind.RUN, given.run_id, job.pk), job

    def _own(self, run_id: str) -> Job | None:
        key = lookup.run_key(run_id)
        same = Job.kept.filter(user=self.user, run_id=key, origin=Origin.CLIENT).select_related("user")
        return same.first() if key else None

    def _change(self, given: Given, job: Job) -> None:
        """Change a run that was taken before: its tags, and its end."""
        tags = self._tags(given)
        title = str(given.info.get("run_name") or tags.title or "") or None
        _begun, ended = self._time(given, "start_time"), self._time(given, "end_time")
        if given.state != client_runs.RUNNING or job.state in ENDED:
            client_runs.report(job.pk, state=given.state, ended=ended, by=BY)
        if PARENT in tags.system and PARENT in job.system_tags:
            del tags.system[PARENT]  # which is the parent's id here
        writing.write(self._call(), job.run_id.hex, tags=tags._replace(title=title and title[: limits.MAX_NAME]))

    def _time(self, given: Given, name: str) -> datetime | None:
        try:
            return given.time(name)
        except WrongField as problem:
            self._refused(given, f"{name.replace('_', ' ')} {given.info.get(name)}", problem)
            return None

    def _tags(self, given: Given) -> Tags:
        tags = Tags({}, {}, None, None)
        for pair in given.tags:
            try:
                parsed = writing.sorted_tags([pair])
                labels.tags(parsed.own)
            except (WrongField, Refused) as problem:
                self._refused(given, f"tag {pair[0]}", problem)
                continue
            tags.own.update(parsed.own)
            tags.system.update(parsed.system)
            tags = tags._replace(title=parsed.title or tags.title, notes=parsed.notes or tags.notes)
            if len(pair[1]) > limits.MAX_TAG:
                self._refused(given, f"tag {pair[0]}", f"cut to {limits.MAX_TAG} characters")
        for key in list(tags.own)[labels.MAX_TAGS :]:
            self._refused(given, f"tag {key}", f"a run has at most {labels.MAX_TAGS} tags")
            del tags.own[key]
        return tags

    # --- what it has -------------------------------------------------------------------------------------------------
    def _fill(self, given: Given, job: Job) -> dict[str, int]:
        """Take parameters, points, datasets and artifacts; return how many the server has."""
        run_id = job.run_id.hex
        counts = {
            "param": self._params(given, run_id),
            "point": self._points(given, run_id),
            "input": self._inputs(given, job),
        }
        if self.files is not None:
            number, size, complete = self.files(given.run_id, str(given.info.get("artifact_uri") or ""), job,
                                                _name(given))  # fmt: skip
            counts |= {"file": number, "byte": size}
            self.clean = self.clean and complete
        return counts

    def _params(self, given: Given, run_id: str) -> int:
        pairs = [(str(param.get("key")), str(param.get("value", ""))) for param in given.data.get("params") or []]
        good = []
        for name, value in pairs:
            try:
                good.append((limits.key(name), value[: limits.MAX_PARAM]))
            except WrongField as problem:
                self._refused(given, f"parameter {name}", problem)
            if len(value) > limits.MAX_PARAM:
                self.report.note(f"values of parameters are cut to {limits.MAX_PARAM} characters")
        try:
            if good:
                writing.write(self._call(), run_id, params=good)
        except WRONG as problem:
            self._refused(given, "parameters", problem)
        self.report.count("param", NEW, len(good))
        return len(pairs)

    def _points(self, given: Given, run_id: str) -> int:
        """Take the histories of all metrics, in batches that go across them."""
        keys = [str(metric.get("key")) for metric in given.data.get("metrics") or []]
        columns, number = Points([], [], [], []), 0
        try:
            for key, rows in self._histories(given, keys):
                number += len({(row.get("step"), row.get("timestamp"), str(row.get("value"))) for row in rows})
                more = self._checked(given, key, rows)
                for have, come in zip(columns, more, strict=True):
                    have.extend(come)
                if len(columns.names) >= BATCH:
                    self._write(run_id, columns)
                    columns = Points([], [], [], [])
            self._write(run_id, columns)
        except Away:
            raise
        except WRONG as problem:
            self._refused(given, "metrics", problem)
        return number

    def _write(self, run_id: str, columns: Points) -> None:
        for at in range(0, len(columns.names), BATCH):
            part = Points(*(column[at : at + BATCH] for column in columns))
            self.memory.require_room()
            writing.write(self._call(), run_id, points=part)
            self.report.count("point", NEW, len(part.names))

    def _histories(self, given: Given, keys: list[str]) -> Iterator[tuple[str, list[dict]]]:
        """Yield the points of metrics by pages. The first pages of several metrics are fetched at once."""

        def first(key: str):
            pages = self.source.history(given.run_id, key)
            return key, next(pages), pages

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for at in range(0, len(keys), KEYS):
                for key, rows, others in pool.map(first, keys[at : at + KEYS]):
                    yield key, rows
                    for page in others:
                        yield key, page

    def _checked(self, given: Given, key: str, rows: list[dict]) -> Points:
        """Return the points as columns, without those that cannot be stored."""
        for row in rows:
            row.setdefault("key", key)
        try:
            return metrics.points_of(rows)
        except WrongField:
            pass
        points = Points([], [], [], [])
        for row in rows:
            try:
                checked = metrics.points_of([row])
            except WrongField as problem:
                self._refused(given, f"metric {key}", problem)
                continue
            for have, come in zip(points, checked, strict=True):
                have.extend(come)
        return points

    def _inputs(self, given: Given, job: Job) -> int:
        datasets = _datasets(given)
        for dataset in datasets:
            known = dataset.get("dataset") or {}
            key = {"name": known.get("name"), "digest": known.get("digest")}
            if RunInput.objects.filter(job=job, **key).exists():
                continue
            try:
                logged.log_inputs(self._call(run_id=job.run_id.hex, datasets=[dataset]))
                self.report.count("input", NEW)
            except WRONG as problem:
                self._refused(given, f"dataset {key['name']}", problem)
        return len(datasets)

    def _call(self, **fields) -> Call:
        return Call(None, self.caller, Fields(fields))

    def _refused(self, given: Given, what: str, why: object) -> None:
        self.clean = False
        self.report.problem(f"{_name(given)}: {what[:200]}", why)


def link_parents(memory: Memory) -> None:
    """Link runs to their parent where that was taken after them, or has another id here."""
    of_import = memory.rows(Kind.RUN)
    jobs = Job.objects.filter(pk__in=of_import.values("object_id"), parent=None, system_tags__has_key=PARENT)
    for job in jobs.only("pk", "system_tags").iterator():
        row = memory.find(Kind.RUN, job.system_tags[PARENT])
        parent = Job.objects.filter(pk=row.object_id).first() if row else None
        if parent is not None and parent.pk != job.pk:
            tags = {**job.system_tags, PARENT: parent.run_id.hex}
            Job.objects.filter(pk=job.pk).update(parent=parent, system_tags=tags)


def _datasets(given: Given) -> list[dict]:
    rows = (given.whole.get("inputs") or {}).get("dataset_inputs") or []
    return [row for row in rows if isinstance(row, dict)]


def _free_id(text: str) -> tuple[uuid.UUID, bool]:
    """Return the id for a run: that of the server where no run here has it. The second says whether it is that one."""
    try:
        key = uuid.UUID(text)
    except ValueError:
        return uuid.uuid4(), False
    return (uuid.uuid4(), False) if Job.objects.filter(run_id=key).exists() else (key, True)


def _name(given: Given) -> str:
    return f"run {given.run_id} ({str(given.info.get('run_name') or '')[:100]})"
