"""Brings registered models from here to an MLflow server, with their versions, stages, tags and aliases.

The server numbers versions itself. So that they keep theirs, a version that is deleted at once takes the place of each
number that is not used here.
"""

from __future__ import annotations

from django.db.models import Prefetch

from accounts.models import User
from kernel import storage
from models_app.models import Alias, ModelVersion, RegisteredModel, Stage
from models_app.registry import sources

from .report import CHANGED, NEW, SAME, Report
from .runs_out import RunsOut
from .server import Away, Server, ServerError
from .source import PROMPT, pairs

OURS, GAP = "platform.version", "platform.unused_number"  # tags of a version there
MAX_GAP = 1000
UNUSED = "s3://unused/number"  # a source that servers accept, since they do not look there


class RegistryOut:
    """Sends the registered models of a user. `runs` has sent the runs; `logged` are the logged models there, by their
    id here.
    """

    def __init__(
        self, runs: RunsOut, user: User, report: Report, dry: bool = False, logged: dict[str, dict] | None = None
    ):
        self.logged = logged or {}
        self.runs, self.server, self.user, self.report, self.dry = runs, runs.server, user, report, dry
        self.verified = {"registered": [0, 0], "version": [0, 0], "alias": [0, 0]}

    def send(self) -> None:
        """Send all registered models, and give the report the comparison."""
        newest = ModelVersion.objects.select_related("job", "model", "registered__user").order_by("number")
        aliases = Prefetch("aliases", Alias.objects.select_related("version"))
        rows = RegisteredModel.objects.filter(user=self.user).prefetch_related(Prefetch("versions", newest), aliases)
        for row in rows.order_by("pk"):
            self.verified["registered"][0] += 1
            try:
                self._model(row)
            except Away:
                raise
            except ServerError as problem:
                self.report.problem(f"registered model {row.name[:100]}", problem)
        if not self.dry:
            self.report.verified += [(kind, *numbers) for kind, numbers in self.verified.items() if numbers[0]]

    def _model(self, row: RegisteredModel) -> None:
        there = _found(self.server, row.name)
        self.report.count("registered", SAME if there else NEW)
        existing = {}
        if there is not None:
            for remote in self._versions(row):
                existing[pairs(remote).get(OURS, "")] = remote
        if self.dry:
            wanted = [f"{row.name}/{version.number}" for version in row.versions.all()]
            self.report.count("version", NEW, len([key for key in wanted if key not in existing]))
            return
        if there is None:
            there = self.server.post("registered-models/create", name=row.name, tags=_pairs(row.tags),
                                     description=row.description)["registered_model"]  # fmt: skip
        self.verified["registered"][1] += 1
        for key, value in row.tags.items():
            if pairs(there).get(key) != value:
                self.server.post("registered-models/set-tag", name=row.name, key=key, value=value)
        numbers = {}
        for version in row.versions.all():
            self.verified["version"][0] += 1
            numbers[version.number] = self._version(row, version, existing)
        for alias in row.aliases.all():
            self.verified["alias"][0] += 1
            if number := numbers.get(alias.version.number):
                self.server.post("registered-models/alias", name=row.name, alias=alias.name, version=number)
                self.verified["alias"][1] += 1
                self.report.count("alias", NEW)

    def _version(self, row: RegisteredModel, version: ModelVersion, existing: dict[str, dict]) -> str:
        """Send a version; return its number there, or nothing where it was refused."""
        key = f"{row.name}/{version.number}"
        there = existing.get(key)
        try:
            if there is None:
                there = self._created(row, version, key)
                self.report.count("version", NEW)
            else:
                self._change(row, version, there)
            number = str(there["version"])
            if version.stage != (there.get("current_stage") or Stage.NONE):
                self.server.post("model-versions/transition-stage", name=row.name, version=number,
                                 stage=version.stage, archive_existing_versions=False)  # fmt: skip
        except Away:
            raise
        except ServerError as problem:
            self.report.problem(f"version {key}", problem)
            return ""
        self.verified["version"][1] += 1
        if number != str(version.number):
            self.report.note(f"version {key} has the number {number} there")
        return number

    def _created(self, row: RegisteredModel, version: ModelVersion, key: str) -> dict:
        self._fill_gap(row, version.number)
        source, run = self._place(version, key)
        model = self._logged(version)
        own = {"model_id": model[0]["model_id"]} if model else {}
        return self.server.post(
            "model-versions/create", name=row.name, source=source, run_id=run or None, run_link=version.run_link,
            description=version.description, tags=_pairs({**version.tags, OURS: key}), **own,
        )["model_version"]  # fmt: skip

    def _change(self, row: RegisteredModel, version: ModelVersion, there: dict) -> None:
        known, changed = pairs(there), False
        for key, value in version.tags.items():
            if known.get(key) != value:
                changed = True
                self.server.post("model-versions/set-tag", name=row.name, version=there["version"], key=key,
                                 value=value)  # fmt: skip
        if version.description and version.description != there.get("description"):
            changed = True
            self.server.send("PATCH", "model-versions/update", {
                "name": row.name, "version": there["version"], "description": version.description})  # fmt: skip
        self.report.count("version", CHANGED if changed else SAME)

    def _versions(self, row: RegisteredModel) -> list[dict]:
        return self.runs.target.versions(row.name, row.tags.get(PROMPT) == "true")

    def _fill_gap(self, row: RegisteredModel, number: int) -> None:
        """Use up the numbers before this one at the server."""
        name = row.name
        last = max((int(version["version"]) for version in self._versions(row)), default=0)
        for _gap in range(min(number - last - 1, MAX_GAP)):
            answer = self.server.post("model-versions/create", name=name, source=UNUSED,
                                    tags=_pairs({GAP: "yes"}))["model_version"]  # fmt: skip
            self.server.send("DELETE", "model-versions/delete", {"name": name, "version": answer["version"]})
            if int(answer["version"]) >= number - 1:
                return

    def _place(self, version: ModelVersion, key: str) -> tuple[str, str]:
        """Return the source of a version as it is there, and its run there."""
        if logged := self._logged(version):
            info, inner = logged
            run = self.runs.there.get(version.job.run_id.hex, "") if version.job else ""
            return "/".join(filter(None, (str(info.get("artifact_uri") or ""), inner))), run
        match = sources.RUN.fullmatch(version.source) or sources.PROXIED.fullmatch(version.source)
        if match is not None:
            run = self.runs.there.get(match[1 if version.source.startswith("runs:") else 2].lower(), "")
            path = match[2 if version.source.startswith("runs:") else 3] or ""
            if run:
                return f"{self._uri(run)}/{path}".rstrip("/"), run
        run = self.runs.there.get(version.job.run_id.hex, "") if version.job else ""
        if version.model is not None and version.model.external:
            self.report.problem(f"version {key}", "its files cannot be sent: they are in a bucket")
        elif version.model is not None and run:
            folder = f"registered/{version.registered.pk}/{version.number}"
            top = storage.model_dir(self.user.username, version.model.name)
            self._uri(run)
            if self.runs.upload(top, run, folder, f"version {key}"):
                return f"{self._uri(run)}/{folder}", run
        elif version.model is not None:
            self.report.problem(f"version {key}", "its files cannot be sent: its run is not among those exported")
        return version.source or "unknown", run

    def _logged(self, version: ModelVersion) -> tuple[dict, str] | None:
        """Return the logged model there that a version is of, and the path in it."""
        match = sources.LOGGED.fullmatch(version.source)
        info = self.logged.get(match[1]) if match else None
        return (info, match[2] or "") if info else None

    def _uri(self, run: str) -> str:
        if run not in self.runs.uris:
            info = self.server.get("runs/get", run_id=run, run_uuid=run)["run"]["info"]
            self.runs.uris[run] = info.get("artifact_uri") or ""
        return self.runs.uris[run]


def _found(server: Server, name: str) -> dict | None:
    try:
        return server.get("registered-models/get", name=name)["registered_model"]
    except ServerError as problem:
        if problem.code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def _pairs(tags: dict[str, str]) -> list[dict]:
    return [{"key": key, "value": value} for key, value in tags.items()]
