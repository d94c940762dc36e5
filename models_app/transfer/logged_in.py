"""Brings the models that runs of MLflow 3 have logged: their files become artifacts of the run, in a folder of the
model's name, where earlier releases of MLflow keep them. A version of the registry finds them there.
"""

from __future__ import annotations

from django.db import transaction

from jobs.models import Job
from kernel.errors import Refused
from models_app.models import Imported

from .files_in import Files, Folder
from .memory import Kind, Memory, checksum
from .report import CHANGED, NEW, SAME, Report
from .server import Away, ServerError
from .source import Source

FOLDER = "artifacts"
READY = ("LOGGED_MODEL_READY", "READY", 2)


class Logged:
    """Takes the logged models of experiments."""

    def __init__(self, source: Source, memory: Memory, report: Report, files: Files, dry: bool = False):
        self.source, self.memory, self.report, self.files, self.dry = source, memory, report, files, dry
        self.seen: list[str] = []

    def take(self, experiment: str) -> None:
        """Take the logged models of an experiment; a server of MLflow 2 has none."""
        try:
            found = list(self.source.logged_models(experiment))
        except ServerError as problem:
            if problem.status not in (404, 405):
                self.report.problem(f"logged models of experiment {experiment}", problem)
            return
        for row in found:
            info = row.get("info") or {}
            try:
                self._one(row, info)
            except Away:
                raise
            except (ServerError, Refused, OSError) as problem:
                self.report.problem(_name(info), getattr(problem, "msg", problem))

    def _one(self, row: dict, info: dict) -> None:
        key, mark = str(info.get("model_id", "")), checksum(row)
        self.seen.append(key)
        known = self.memory.find(Kind.LOGGED, key)
        if known is not None and known.mark == mark and not self.files.again:
            self.report.count("logged", SAME)
            return
        self.report.count("logged", NEW if known is None else CHANGED)
        if self.dry:
            return
        self.memory.require_room()
        run = self.memory.find(Kind.RUN, str(info.get("source_run_id") or ""))
        job = Job.objects.select_related("user").filter(pk=run.object_id).first() if run else None
        if job is None:
            self.report.problem(_name(info), "it belongs to no run that was taken")
            return
        if known is None:
            with transaction.atomic():
                known = self.memory.remember(Kind.LOGGED, key, job.pk)
                known.counts = {"path": self._free_folder(job, str(info.get("name") or "model"), key)}
                known.save(update_fields=["counts"])
        folder = Folder(job, f"{FOLDER}/{known.counts['path']}", _name(info))
        number, size, clean = self.files.take(folder, self.source.model_files(key, str(info.get("artifact_uri") or "")))
        self.memory.complete(known, mark if clean else "", file=number, byte=size)

    def verify(self) -> None:
        """Compare the number of logged models with those of which all files have come."""
        here = sum(bool(row.mark) for row in self.memory.several(Kind.LOGGED, self.seen).values())
        if self.seen:
            self.report.verified.append(("logged", len(self.seen), here))

    def _free_folder(self, job: Job, name: str, key: str) -> str:
        """Return the folder of a model: that of its name, unless another one of the run has it."""
        name = name.strip("/") or "model"
        taken = self.memory.rows(Kind.LOGGED).filter(object_id=job.pk).values_list("counts", flat=True)
        return f"models/{key}" if any(counts.get("path") == name for counts in taken) else name


def of_version(memory: Memory, source: str) -> tuple[Job, str] | None:
    """Return the run and the folder of the logged model that a version's source `models:/m-…` names."""
    key = source.removeprefix("models:/")
    known: Imported | None = memory.find(Kind.LOGGED, key) if source != key else None
    job = Job.objects.filter(pk=known.object_id).first() if known else None
    return (job, known.counts["path"]) if job else None


def _name(info: dict) -> str:
    return f"logged model {info.get('model_id')} ({str(info.get('name') or '')[:100]})"
