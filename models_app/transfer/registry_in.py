"""Brings the registered models of a server here, with their versions, stages, tags and aliases.

Numbers of versions are kept. A version whose files came with its run gets a Model by the same way as any other: the
files are copied, and a run of its own checks that they load.
"""

from __future__ import annotations

import re

from django.db import transaction

from jobs.models import Job
from kernel.errors import Fault
from mlflow_protocol.reading import whole_of
from models_app.models import Imported, ModelVersion, RegisteredModel, Stage
from models_app.registry import registered, sources, versions
from models_app.registry.versions import Files
from tracking.mlflow.runs import moment

from . import logged_in
from .memory import Kind, Memory, checksum
from .report import CHANGED, LEFT, NEW, SAME, Report
from .runs_in import BY, WRONG
from .server import Away
from .source import PROMPT, Source, pairs

OF_RUN = re.compile(r"runs:/+([0-9a-f]{32})/(.+)", re.DOTALL)
IN_FOLDER = re.compile(r"/([0-9a-f]{32})/artifacts/(.+)$", re.DOTALL)  # of a run, in whichever store
THERE = re.compile(r"(?:jobs|home|models)/")  # a place of the platform that the server is, not of this one
PENDING = "PENDING_REGISTRATION"


class Registry:
    """Takes registered models. `dry` counts them only."""

    def __init__(self, source: Source, memory: Memory, report: Report, dry: bool = False):
        self.source, self.memory, self.report, self.dry = source, memory, report, dry
        self.user = memory.user
        self.names: list[str] = []  # that were seen
        self.seen: list[str] = []  # versions
        self.aliases: list[tuple[int, str, int]] = []
        self.clean = True

    def take(self) -> None:
        """Take all registered models."""
        for row in self.source.registered():
            name = str(row.get("name", ""))
            try:
                self._model(name, row, self.source.versions(name, pairs(row).get(PROMPT) == "true"))
            except Away:
                raise
            except (*WRONG, Fault) as problem:
                self.report.problem(f"registered model {name[:100]}", getattr(problem, "msg", problem))

    def _model(self, name: str, row: dict, versions: list[dict]) -> None:
        self.names.append(name)
        self.seen += [_key(name, version) for version in versions]
        row = {key: value for key, value in row.items() if key != "latest_versions"}
        known, mark, self.clean = self.memory.find(Kind.REGISTERED, name), checksum([row, versions]), True
        if known is not None and known.mark == mark:
            self.report.count("registered", SAME)
            self.report.count("version", SAME, len(versions))
            self.aliases += [(known.object_id, *alias) for alias in self._aliases_of(known.object_id, row, versions)]
            return
        self.report.count("registered", NEW if known is None else CHANGED)
        if self.dry:
            self.report.count("version", NEW, len(versions))
            return
        self.memory.require_room()
        model = self._registered(name, row, known)
        if model is None:
            return
        self._dress(model, row)
        for version in versions:
            try:
                self._version(model, version)
            except (*WRONG, Fault) as problem:
                if isinstance(problem, Away):
                    raise
                self._refused(f"version {version.get('version')} of {name[:100]}", getattr(problem, "msg", problem))
        self._set_aliases(model, row, versions)
        known = known or self.memory.find(Kind.REGISTERED, name)
        self.memory.complete(known, mark if self.clean else "")

    def _registered(self, name: str, row: dict, known: Imported | None) -> RegisteredModel | None:
        if known is not None:
            model = RegisteredModel.objects.filter(pk=known.object_id, user=self.user).first()
            if model is None:
                self.report.count("registered", LEFT)
                self.report.note(f"registered model {name[:100]} is left out: it was deleted here")
            return model
        with transaction.atomic():
            model = RegisteredModel.objects.filter(user=self.user, name=name).first()
            if model is None:
                model = registered.create(self.user, name=name, tags=pairs(row), by=BY)
            else:
                self.report.note(f"versions of {name[:100]} are added to the registered model of that name")
            self.memory.remember(Kind.REGISTERED, name, model.pk)
        return model

    def _dress(self, model: RegisteredModel, row: dict) -> None:
        tags, text = {**model.tags, **pairs(row)}, str(row.get("description") or "")
        if tags != model.tags:
            registered.set_tags(self.user, model.name, tags, BY)
        if text and text != model.description:
            registered.edit(self.user, model.name, description=text, by=BY)

    # --- versions ----------------------------------------------------------------------------------------------------
    def _version(self, model: RegisteredModel, row: dict) -> None:
        key = _key(str(row.get("name")), row)
        known = self.memory.find(Kind.VERSION, key)
        if row.get("status") == PENDING:
            self._refused(f"version {key}", "it is not ready at the server")
            return
        if known is None:
            version = self._create(model, row, key)
        else:
            version = ModelVersion.objects.select_related("model").filter(pk=known.object_id).first()
            if version is None:
                self.report.count("version", LEFT)
                self.report.note("versions that were deleted here since an earlier import are left out")
                return
            self.report.count("version", CHANGED)
            self._change(model, version, row)
        stage = row.get("current_stage") or Stage.NONE
        if stage != version.stage:
            versions.set_stage(self.user, model.name, version.number, stage, archive=False, by=BY)

    def _create(self, model: RegisteredModel, row: dict, key: str) -> ModelVersion:
        place, job, here, logged = self._place(row)
        files = self._files(place, job)
        number = int(row["version"])
        with transaction.atomic():
            version = versions.create(
                self.user, model.name, files=files, source=place, by=BY, number=number, tags=pairs(row),
                description=str(row.get("description") or ""), run_id=job.run_id.hex if job else row.get("run_id"),
                run_link=row.get("run_link"), logged_model=logged or row.get("model_id"),
            )  # fmt: skip
            self.memory.remember(Kind.VERSION, key, version.pk)
        self.report.count("version", NEW)
        if version.number != number:
            self.report.note(f"version {key} has the number {version.number} here, where {number} was used before")
        times = {field: moment(ms) for field, name in (("created", "creation_timestamp"),
                 ("updated", "last_updated_timestamp")) if (ms := whole_of(row.get(name)))}  # fmt: skip
        ModelVersion.objects.filter(pk=version.pk).update(**times)
        self._without_files(version, here, key)
        return version

    def _change(self, model: RegisteredModel, version: ModelVersion, row: dict) -> None:
        tags, text = {**version.tags, **pairs(row)}, str(row.get("description") or "")
        if tags != version.tags:
            versions.set_tags(self.user, model.name, version.number, tags, BY)
        if text and text != version.description:
            versions.edit(self.user, model.name, version.number, description=text, by=BY)
        if version.model is None:
            place, job, here, _logged = self._place(row)
            files = self._files(place, job)
            if files.origin is not None or files.model is not None:
                version = versions.attach(self.user, model.name, version.number, files=files, by=BY)
            self._without_files(version, here, _key(model.name, row))

    def _without_files(self, version: ModelVersion, here: bool, key: str) -> None:
        if version.model is not None or PROMPT in version.registered.tags:
            return
        if here:
            self._refused(f"version {key}", "its files have not been taken, so it cannot be deployed")
        else:
            self.report.note(f"version {key} cannot be deployed: its files are at {version.source[:200]}")

    def _files(self, place: str, job: Job | None) -> Files:
        """Return the files of a source. The server chooses none of the user's files here by naming one of its own."""
        if THERE.match(place):
            return Files(job=job)
        return sources.files_of(self.user, place, job.run_id.hex if job else "")

    def _place(self, row: dict) -> tuple[str, Job | None, bool, str]:
        """Return the source of a version as it is here, its run, whether its files belong to a run that is here, and
        the id of its logged model.
        """
        source = str(row.get("source") or "")
        match = OF_RUN.fullmatch(source) or IN_FOLDER.search(source)
        job = self._run(str(row.get("run_id") or "")) or (self._run(match[1]) if match else None)
        if match and (owner := self._run(match[1])):
            return f"runs:/{owner.run_id.hex}/{match[2]}", job, True, ""
        if logged := logged_in.of_version(self.memory, source):
            owner, place, key = logged
            return place, owner, True, key
        return source, job, False, ""

    def _run(self, run_id: str) -> Job | None:
        row = self.memory.find(Kind.RUN, run_id) if run_id else None
        return Job.objects.filter(pk=row.object_id).first() if row else None

    # --- aliases -----------------------------------------------------------------------------------------------------
    def _aliases_of(self, model: int, row: dict, versions: list[dict]) -> list[tuple[str, int]]:
        """Return the aliases of a registered model with the number that their version has here, or 0."""
        name, wanted = str(row.get("name")), {}
        for alias in row.get("aliases") or []:
            wanted[str(alias.get("alias"))] = str(alias.get("version"))
        for version in versions:
            wanted.update(dict.fromkeys(map(str, version.get("aliases") or []), str(version.get("version"))))
        taken = self.memory.several(Kind.VERSION, [f"{name}/{number}" for number in wanted.values()])
        keys = {row.object_id: row.key for row in taken.values()}
        numbers = dict(ModelVersion.objects.filter(pk__in=keys, registered=model).values_list("pk", "number"))
        here = {keys[pk]: number for pk, number in numbers.items()}
        return [(alias, here.get(f"{name}/{number}", 0)) for alias, number in sorted(wanted.items())]

    def _set_aliases(self, model: RegisteredModel, row: dict, versions: list[dict]) -> None:
        name = model.name
        for alias, number in self._aliases_of(model.pk, row, versions):
            self.aliases.append((model.pk, alias, number))
            if not number:
                self._refused(f"alias {alias} of {name[:100]}", "its version was not taken")
                continue
            try:
                registered.set_alias(self.user, model.name, alias, number, BY)
                self.report.count("alias", NEW)
            except WRONG as problem:
                self._refused(f"alias {alias} of {name[:100]}", problem)

    def _refused(self, what: str, why: object) -> None:
        self.clean = False
        self.report.problem(what, why)

    def verify(self) -> None:
        """Compare the numbers of the registry with what is here."""
        models = self.memory.several(Kind.REGISTERED, self.names).values()
        taken = self.memory.several(Kind.VERSION, self.seen).values()
        there = {"registered": len(self.names), "version": len(self.seen), "alias": len(self.aliases)}
        here = {
            "registered": RegisteredModel.objects.filter(pk__in=[row.object_id for row in models]).count(),
            "version": ModelVersion.objects.filter(pk__in=[row.object_id for row in taken]).count(),
            "alias": sum(
                ModelVersion.objects.filter(registered=pk, number=number, aliases__name=alias).exists()
                for pk, alias, number in self.aliases
            ),
        }
        self.report.verified += [(kind, there[kind], here[kind]) for kind in there if there[kind]]


def _key(name: str, row: dict) -> str:
    return f"{name}/{row.get('version')}"
