"""Brings the models that runs of MLflow 3 have logged, with their parameters, tags, metrics and files. A model keeps
its id, unless that is in use here. Those of earlier imports are artifacts of their run, in a folder of its name.

A model that was logged outside of a run, or whose run the server has deleted, gets a run of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from django.db import transaction
from django.utils import timezone

from jobs.models import Job, LoggedModel, ModelUse, Project
from kernel.errors import Refused
from kernel.sanitize import UNSTORABLE
from mlflow_protocol import limits
from mlflow_protocol.reading import WrongField, number_of, number_out, whole_of
from models_app.models import Imported
from tracking import client_runs
from tracking.mlflow import metrics
from tracking.mlflow.logged import NUMBERED
from tracking.mlflow.runs import moment

from .files_in import Files, Folder
from .memory import Kind, Memory, checksum
from .options import Options
from .report import CHANGED, LEFT, NEW, SAME, Report
from .runs_in import BY, ORIGINAL
from .server import Away, ServerError
from .source import Source

ARTIFACTS, MODELS = "artifacts", "models"  # folders of a run's output
KEY = re.compile(r"m-[0-9a-f]{32}")
OF_MODEL = re.compile(r"(?:models:/+|.*/models/)(m-[0-9a-f]{32})(?:/artifacts)?(?:/(.*))?", re.DOTALL)
EXTRA = ("dataset_name", "dataset_digest")  # of a metric
USES = (("inputs", "model_inputs", ModelUse.Kind.INPUT), ("outputs", "model_outputs", ModelUse.Kind.OUTPUT))


class Logged:
    """Takes the logged models of experiments. Without `files` their files are left out."""

    def __init__(self, source: Source, memory: Memory, report: Report, files: Files | None, options: Options):
        self.source, self.memory, self.report, self.files = source, memory, report, files
        self.dry, self.again, self.since = options.dry, options.again, options.since
        self.seen: list[str] = []
        self.runs: set[str] = set()  # that the server lists
        self.uses: list[tuple[str, str, str, int]] = []  # run, model, kind and step

    def note_uses(self, run: str, row: dict) -> None:
        """Remember which models a run has read and made: they come after it."""
        self.runs.add(run)
        for part, field, kind in USES:
            for entry in (row.get(part) or {}).get(field) or []:
                self.uses.append((run, str(entry.get("model_id", "")), kind, whole_of(entry.get("step")) or 0))

    def take(self, experiment: str, project: Project | None) -> None:
        """Take the logged models of an experiment; a server of MLflow 2 has none. Without a project they are only
        counted.
        """
        try:
            models = list(self.source.logged_models(experiment))
        except ServerError as problem:
            if problem.status not in (404, 405):
                self.report.problem(f"logged models of experiment {experiment}", problem)
            return
        for row in models:
            info = row.get("info") or {}
            try:
                self._take_model(row, info, project)
            except Away:
                raise
            except (ServerError, Refused, WrongField, OSError) as problem:
                self.report.problem(_name(info), getattr(problem, "msg", problem))

    def _take_model(self, row: dict, info: dict, project: Project | None) -> None:
        key, mark = str(info.get("model_id", "")), checksum(row)
        known = self.memory.find(Kind.LOGGED, key)
        if why := self._left(known, info):
            self.report.count("logged", LEFT)
            self.report.note(why)
            return
        self.seen.append(key)
        if known is not None and known.mark == mark and not self.again:
            self.report.count("logged", SAME)
            return
        self.report.count("logged", NEW if known is None else CHANGED)
        if self.dry or project is None:
            return
        self.memory.require_room()
        if known is None:
            known = self._created(key, info, project)
        if known is None:
            self.report.problem(_name(info), "its run could not be copied")
            return
        job = Job.objects.select_related("user").get(pk=known.object_id)
        clean = self._dress(known, row, info)
        counts = {}
        if self.files is not None:
            path = f"{MODELS}/{known.counts['model']}" if "model" in known.counts else (
                f"{ARTIFACTS}/{known.counts['path']}"
            )  # fmt: skip
            files = self.source.model_files(key, str(info.get("artifact_uri") or ""))
            number, size, complete = self.files.take(Folder(job, path, _name(info)), files)
            counts, clean = {"file": number, "byte": size}, clean and complete
        self.memory.complete(known, mark if clean else "", **counts)

    def _left(self, known: Imported | None, info: dict) -> str:
        """Return why a model is left out without being a loss; nothing for one that is to be taken."""
        run = str(info.get("source_run_id") or "")
        deleted = "logged models that were deleted here since an earlier import are left out"
        if known is not None:
            model = known.counts.get("model")
            here = Job.objects.filter(pk=known.object_id).exists()
            return "" if here and (not model or LoggedModel.objects.filter(key=model).exists()) else deleted
        row = self.memory.find(Kind.RUN, run) if run else None
        if row is not None:
            return "" if Job.objects.filter(pk=row.object_id).exists() else deleted
        created_ms = whole_of(info.get("creation_timestamp_ms") or info.get("creation_timestamp")) or 0
        early = self.since is not None and run not in self.runs and created_ms < self.since
        return "logged models from before --since are left out" if early else ""

    def _created(self, key: str, info: dict, project: Project) -> Imported | None:
        """Create the row of a model, in its run or in one of its own; None if its run is listed and was not taken."""
        run_id = str(info.get("source_run_id") or "")
        run = self.memory.find(Kind.RUN, run_id) if run_id else None
        job = Job.objects.select_related("user").filter(pk=run.object_id).first() if run else None
        if job is None and run_id in self.runs:
            return None
        with transaction.atomic():
            model = _model(job or self._own_run(run_id, info, project), key, info, job is not None)
            known = self.memory.remember(Kind.LOGGED, key, model.job_id)
            known.counts = {"model": model.key}
            known.save(update_fields=["counts"])
        return known

    def _own_run(self, run_id: str, info: dict, project: Project) -> Job:
        self.report.note("logged models whose run is not at the server have a run of their own")
        ms = whole_of(info.get("creation_timestamp_ms") or info.get("creation_timestamp"))
        created = moment(ms) if ms and 0 < ms <= metrics.MAX_MS else timezone.now()
        title = UNSTORABLE.sub("", str(info.get("name") or "model"))[: limits.MAX_NAME]
        tags = {ORIGINAL: run_id} if run_id else {}
        return client_runs.create(
            self.memory.user, project, title=title, started=created, ended=created, by=BY, system_tags=tags,
            state=client_runs.FINISHED,
        )  # fmt: skip

    def _dress(self, known: Imported, row: dict, info: dict) -> bool:
        """Give a model what the server says of it; return whether all of it is there."""
        model, clean = LoggedModel.objects.filter(key=known.counts.get("model", "")).first(), True
        if model is None:
            return True
        data = row.get("data") or {}
        for field, rows, check in (
            ("params", data.get("params"), limits.key),
            ("tags", info.get("tags"), limits.tag_key),
        ):
            most = limits.MAX_PARAM if field == "params" else limits.MAX_TAG
            for pair in rows or []:
                try:
                    name, value = check(str(pair.get("key"))), str(pair.get("value", ""))
                except WrongField as problem:
                    self.report.problem(f"{_name(info)}: {field} {str(pair.get('key'))[:200]}", problem)
                    clean = False
                    continue
                getattr(model, field)[name] = value[:most]
                if len(value) > most:
                    self.report.note(f"{field} of logged models are cut to {most} characters")
        for metric in data.get("metrics") or []:
            model.metrics[str(metric.get("key"))] = self._metric(metric)
        model.status = NUMBERED.get(info.get("status"), str(info.get("status") or model.status))
        if model.status not in LoggedModel.Status.values:
            model.status = LoggedModel.Status.READY
        model.save()
        return clean

    def _metric(self, row: dict) -> dict:
        run = self.memory.find(Kind.RUN, str(row.get("run_id") or ""))
        job = Job.objects.filter(pk=run.object_id).first() if run else None
        number = number_of(row.get("value"))
        fields = {
            "value": number_out(math.nan if number is None else number),
            "timestamp": whole_of(row.get("timestamp") or 0),
            "step": whole_of(row.get("step") or 0),
            "run_id": job.run_id.hex if job else str(row.get("run_id") or ""),
        }
        return fields | {name: str(row[name])[:500] for name in EXTRA if row.get(name)}

    def link(self) -> None:
        """Record which runs have read and made the models that were taken."""
        runs = self.memory.several(Kind.RUN, list({run for run, *_rest in self.uses}))
        models = self.memory.several(Kind.LOGGED, list({model for _run, model, *_rest in self.uses}))
        keys = LoggedModel.objects.in_bulk(_keys(models.values()), field_name="key")
        here = set(Job.objects.filter(pk__in=[row.object_id for row in runs.values()]).values_list("pk", flat=True))
        for run, key, kind, step in self.uses:
            model = keys.get(models[key].counts.get("model", "")) if key in models else None
            if model is not None and run in runs and runs[run].object_id in here:
                ModelUse.objects.get_or_create(
                    job_id=runs[run].object_id, model=model, kind=kind, defaults={"step": step}
                )

    def verify(self) -> None:
        """Compare the number of logged models with those of which all files have come."""
        here = sum(bool(row.mark) for row in self.memory.several(Kind.LOGGED, self.seen).values())
        if self.seen:
            self.report.verified.append(("logged", len(self.seen), here))


def _model(job: Job, key: str, info: dict, has_source: bool) -> LoggedModel:
    """Return the row of a model, under its own id where no model here has that."""
    own = {"key": key} if KEY.fullmatch(key) and not LoggedModel.objects.filter(key=key).exists() else {}
    return LoggedModel.objects.create(
        user=job.user, job=job, name=str(info.get("name") or "model")[: limits.MAX_NAME],
        model_type=str(info.get("model_type") or "")[:500], has_source=has_source, **own,
    )  # fmt: skip


def _keys(rows: Iterable[Imported]) -> list[str]:
    return [row.counts["model"] for row in rows if "model" in row.counts]


def of_version(memory: Memory, source: str, model: str = "") -> tuple[Job, str, str] | None:
    """Return the run, the source as it is here, and the id here of the logged model that a version's source names:
    `models:/m-…`, or its folder in whichever store. `model` is the id that the version says.
    """
    match = OF_MODEL.fullmatch(source)
    key, inner = (match[1], match[2] or "") if match else (model, "")
    known: Imported | None = memory.find(Kind.LOGGED, key) if key else None
    job = Job.objects.filter(pk=known.object_id).first() if known and match else None
    if job is None:
        return None
    if own := known.counts.get("model"):
        return job, f"models:/{own}/{inner}".rstrip("/"), own
    return job, f"runs:/{job.run_id.hex}/{known.counts['path']}/{inner}".rstrip("/"), ""


def _name(info: dict) -> str:
    return f"logged model {info.get('model_id')} ({str(info.get('name') or '')[:100]})"
