"""The import from an MLflow server: experiments with their runs, then the registry, then a comparison of the counts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from django.db import transaction
from django.db.models import Sum

from accounts.models import User
from jobs.models import Project, RunInput, RunMetric, RunParam
from jobs.models.project import DEFAULT_NAME
from jobs.summaries import labels
from kernel.errors import Refused
from kernel.singleton import Holder
from mlflow_protocol import limits
from mlflow_protocol.reading import WrongField
from models_app.models import Imported, RegistryWebhook
from tracking.mlflow import experiments, lookup
from tracking.mlflow.runs import moment
from tracking.runs import projects

from . import losses
from .evaluations_in import Evaluations
from .files_in import Files, count
from .logged_in import Logged
from .memory import Kind, Memory, checksum
from .options import Options
from .registry_in import Registry
from .report import CHANGED, LEFT, NEW, SAME, Report
from .runs_in import BY, WRONG, Runs, link_parents
from .server import Away, Server
from .source import Source

TOGETHER = 1000
COMPARED = ("point", "param", "input", "file", "byte")  # of runs
DEFAULTS = (lookup.DEFAULT_NAME, DEFAULT_NAME)  # of MLflow's servers and of this platform


class Busy(Exception):
    """The same import is running already."""


def run(user: User, server: Server, options: Options, report: Report, source_name: str = "") -> None:
    """Import what the options say for a user. Raises Away, with what was taken until then kept; Busy."""
    name = (source_name or server.url)[:500]
    holder = Holder(f"mlflow.import.{user.pk}.{name}")
    if not holder.hold():
        raise Busy(f"another import from {name} is running for {user.username}")
    try:
        Import(user, Source(server), options, report, name).run()
    finally:
        holder.release()


class Import:
    """One call of the command."""

    def __init__(self, user: User, source: Source, options: Options, report: Report, name: str):
        self.user, self.source, self.options, self.report = user, source, options, report
        self.memory = Memory(user, name)
        files = Files(source, report, self.memory, options.again) if options.artifacts else None
        self.runs = Runs(source, self.memory, report, files and files.of_run, options.again)
        self.logged = Logged(source, self.memory, report, files, options)
        self.evaluations = Evaluations(source, self.memory, report, options.dry)
        self.losses = losses.Losses(source, report)
        self.seen: list[str] = []

    def run(self) -> None:
        """Take everything, and compare."""
        for row in list(self.source.experiments(self.options.deleted)):
            if self.options.wants(str(row.get("name", ""))):
                self._experiment(row)
        registry = Registry(self.source, self.memory, self.report, self.options.dry)
        if self.options.registry:
            self.report.say("registered models")
            registry.take()
            losses.name_webhooks(self.source.webhooks(), set(_webhooks(self.user)), self.report)
        if not self.options.experiments:
            self.evaluations.of_no_experiment()
        if self.options.dry:
            return
        link_parents(self.memory)
        self.logged.link()
        self._verify()
        self.logged.verify()
        registry.verify()

    # --- experiments -------------------------------------------------------------------------------------------------
    def _experiment(self, row: dict) -> None:
        key, name = str(row.get("experiment_id", "")), str(row.get("name", ""))
        try:
            project, created = self._project(key, name, row)
        except Away:
            raise
        except WRONG as problem:
            self.report.problem(f"experiment {key} ({name[:100]})", problem)
            return
        if project is None and not self.options.dry:
            return
        self.report.say(f"experiment {name[:100]}")
        project = None if self.options.dry else project
        try:
            self.runs.take(self._noted(self.source.runs(key, self.options.since, self.options.deleted)), project)
        except Away:
            raise
        except WRONG as problem:
            self.report.problem(f"runs of experiment {key} ({name[:100]})", problem)
        self.logged.take(key, project)
        self.evaluations.of_experiment(key, name, project)
        self.losses.of_experiment(key, name)
        if created and row.get("lifecycle_stage") == experiments.DELETED:
            projects.delete(self.user, project.pk, BY)

    def _noted(self, runs: Iterator[dict]) -> Iterator[dict]:
        for number, row in enumerate(runs, 1):
            info = row.get("info") or {}
            self.seen.append(str(info.get("run_id") or info.get("run_uuid") or ""))
            self.logged.note_uses(self.seen[-1], row)
            yield row
            if number % TOGETHER == 0:
                self.report.say(f"  {number} runs")

    def _project(self, key: str, name: str, row: dict) -> tuple[Project | None, bool]:
        """Return the project of an experiment, and whether it was made for it; None where it is not to be filled."""
        known, mark = self.memory.find(Kind.EXPERIMENT, key), checksum(row)
        if known is not None:
            project = Project.objects.filter(pk=known.object_id, user=self.user).first()
            if project is None or project.trashed is not None:
                self.report.count("experiment", LEFT)
                self.report.note(f"experiment {name[:100]} is left out: its project was deleted here")
                return None, False
            self.report.count("experiment", SAME if known.mark == mark else CHANGED)
            if known.mark != mark and not self.options.dry:
                self.memory.require_room()
                self._dress(project, known, row, mark)
            return project, False
        self.report.count("experiment", NEW)
        if self.options.dry:
            return None, False
        self.memory.require_room()
        with transaction.atomic():
            project, created = self._find_or_create(key, name, row)
            known = self.memory.remember(Kind.EXPERIMENT, key, project.pk)
        self._dress(project, known, row, mark, created)
        return project, created

    def _find_or_create(self, key: str, name: str, row: dict) -> tuple[Project, bool]:
        if key == lookup.DEFAULT_ID or name in DEFAULTS:
            return Project.objects.default_of(self.user), False
        good, deleted = _project_name(name), row.get("lifecycle_stage") == experiments.DELETED
        if good != name:
            self.report.note(f"experiment {name[:100]!r} is the project {good[:100]!r}: names here are lines")
        same = Project.objects.filter(user=self.user, name=good, trashed=None).first()
        if same is not None and not deleted:
            self.report.note(f"experiment {name[:100]} is added to the project of that name, which was here before")
            return same, False
        return projects.create(self.user, name=f"{good[:450]} ({key})" if same else good), True

    def _dress(self, project: Project, known: Imported, row: dict, mark: str, created: bool = False) -> None:
        """Give a project the tags, the note and, where it was made for it, the time of an experiment."""
        fresh, clean = Project.objects.get(pk=project.pk), True
        for tag in row.get("tags") or []:
            key, value = str(tag.get("key")), str(tag.get("value", ""))[: limits.MAX_EXPERIMENT_TAG]
            try:
                for field, changed in experiments.with_tags(fresh, [(key, value)]).items():
                    setattr(fresh, field, changed)
            except (WrongField, Refused) as problem:
                clean = False
                self.report.problem(f"experiment {fresh.name[:100]}: tag {key[:100]}", problem)
        projects.edit(self.user, fresh.pk, tags=fresh.tags, system_tags=fresh.system_tags, readme=fresh.readme)
        if created and (ms := row.get("creation_time")) and str(ms).isdigit():
            Project.objects.filter(pk=fresh.pk).update(created=moment(int(ms)))
        self.memory.complete(known, mark if clean else "")

    # --- the comparison ----------------------------------------------------------------------------------------------
    def _verify(self) -> None:
        """Compare what the server has with what is here, run by run, as the database counts it."""
        there: dict[str, int] = dict.fromkeys(("run", *COMPARED), 0)
        here = dict(there)
        keys = iter(self.seen)
        while some := list(islice(keys, TOGETHER)):
            rows = self.memory.several(Kind.RUN, some)
            counts = _counts([row.object_id for row in rows.values()])
            there["run"] += len(set(some))
            here["run"] += len(rows)
            for row in rows.values():
                for kind in COMPARED:
                    number = row.counts.get(kind, 0)
                    there[kind] += number
                    here[kind] += min(number, counts[kind].get(row.object_id, 0))
        self.report.verified += [(kind, there[kind], here[kind]) for kind in there if there[kind]]


def _webhooks(user: User) -> Iterator[str]:
    return RegistryWebhook.objects.filter(user=user).values_list("url", flat=True).iterator()


def _counts(jobs: list[int]) -> dict[str, dict[int, int]]:
    """Return how many points, parameters, datasets and artifacts runs have."""
    points = RunMetric.objects.filter(job__in=jobs).values_list("job").annotate(number=Sum("count")).order_by()
    counts = {"point": dict(points)}
    for kind, model in (("param", RunParam), ("input", RunInput)):
        rows = model.objects.filter(job__in=jobs).order_by().values_list("job", flat=True)
        numbers: dict[int, int] = {}
        for job in rows.iterator():
            numbers[job] = numbers.get(job, 0) + 1
        counts[kind] = numbers
    return {**counts, **count(jobs)}


def _project_name(name: str) -> str:
    """Return a name that a project may have, near to that of an experiment."""
    try:
        return labels.project_name(name)
    except Refused:
        line = " ".join("".join(char if char.isprintable() else " " for char in name).split())
        parts = [part.strip() for part in line.split("/") if part.strip() not in ("", ".", "..")]
        return "/".join(parts)[: labels.MAX_NAME - 1].strip("/ ") or "experiment"


def since_of(text: str) -> int:
    """Return the milliseconds of a date or time in ISO's form. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)
