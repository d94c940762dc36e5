"""Brings the models that runs have logged to an MLflow server, with their parameters, tags, metrics and files. Each has
a tag there with its id here, by which it is found again.
"""

from __future__ import annotations

from jobs.models import LoggedModel, ModelUse, Project
from kernel import storage
from tracking.mlflow import artifact_paths

from .memory import checksum
from .report import CHANGED, NEW, SAME
from .runs_out import MARK, RunsOut
from .server import Away, ServerError
from .source import pairs

OURS = "platform.model_id"  # a tag of a model there
UNKNOWN = "the server keeps no logged models, which MLflow 3 does"
PART = 100  # parameters of one call


class LoggedOut:
    """Sends the logged models of projects, after their runs. `there` has each at the server by its id here."""

    def __init__(self, runs: RunsOut, dry: bool = False):
        self.runs, self.server, self.report, self.dry = runs, runs.server, runs.report, dry
        self.there: dict[str, dict] = {}
        self.verified = [0, 0]

    def send(self, project: Project, experiment: str, since=None) -> None:
        """Send the models of a project to an experiment."""
        models = LoggedModel.objects.filter(job__project=project, job__trashed=None).select_related("job__user")
        rows = list((models.filter(job__started__gte=since) if since else models).order_by("created", "pk"))
        if not rows:
            return
        known, reason = ({}, "") if self.dry else self._known(experiment)
        for model in rows:
            self.verified[0] += 1
            name = f"logged model {model.key} ({model.name[:100]})"
            try:
                if reason:
                    raise ServerError(reason)
                self._send_model(model, known.get(model.key), experiment, name)
            except Away:
                raise
            except ServerError as problem:
                self.report.problem(name, problem)

    def _known(self, experiment: str) -> tuple[dict[str, dict], str]:
        """Return what the server has of them by their id here, or why it has none."""
        try:
            infos = [row.get("info") or {} for row in self.runs.target.logged_models(experiment)]
        except ServerError as problem:
            return {}, UNKNOWN if problem.status in (404, 405) else str(problem)
        return {pairs(info)[OURS]: info for info in infos if OURS in pairs(info)}, ""

    def _send_model(self, model: LoggedModel, there: dict | None, experiment: str, name: str) -> None:
        mark = checksum([model.params, model.tags, model.metrics, model.status, model.updated.isoformat()])
        if there is not None and pairs(there).get(MARK) == mark and not self.runs.again:
            self._done(model, there, SAME)
            return
        if self.dry:
            self.report.count("logged", NEW)
            return
        self.runs.clean, kept = True, there
        run = self.runs.there.get(model.job.run_id.hex, "")
        if there is None:
            there = self._created(model, run, experiment)
        uri = str(there.get("artifact_uri") or "")
        top = storage.job_dir(model.job.user.username, model.job.name) / artifact_paths.MODELS / model.key
        if self.runs.artifacts:
            self.runs.upload(top, there["model_id"], "", name, uri=uri)
        self._metrics(model, there["model_id"], run, name)
        key, status = there["model_id"], model.status
        if status != LoggedModel.Status.PENDING:
            self.runs.try_to(name, lambda: self.server.send(
                "PATCH", f"logged-models/{key}", {"model_id": key, "status": status}))  # fmt: skip
        self._uses(model, key, name)
        if self.runs.clean:
            tags = [{"key": tag, "value": value} for tag, value in {**model.tags, MARK: mark}.items()]
            self.server.send("PATCH", f"logged-models/{key}/tags", {"model_id": key, "tags": tags})
            self._done(model, there, NEW if kept is None else CHANGED)
        else:
            self.there[model.key] = there

    def _done(self, model: LoggedModel, there: dict, what: str) -> None:
        self.there[model.key] = there
        self.verified[1] += 1
        self.report.count("logged", what)

    def _created(self, model: LoggedModel, run: str, experiment: str) -> dict:
        params = [{"key": key, "value": value} for key, value in model.params.items()]
        tags = [{"key": key, "value": value} for key, value in {**model.tags, OURS: model.key}.items()]
        source = {"source_run_id": run} if run and model.has_source else {}
        answer = self.server.post(
            "logged-models", experiment_id=experiment, name=model.name, model_type=model.model_type,
            params=params[:PART], tags=tags, **source,
        )["model"]["info"]  # fmt: skip
        for at in range(PART, len(params), PART):
            key = answer["model_id"]
            self.server.post(f"logged-models/{key}/params", model_id=key, params=params[at : at + PART])
        return answer

    def _metrics(self, model: LoggedModel, key: str, run: str, name: str) -> None:
        for metric, point in model.metrics.items():
            of_run = self.runs.there.get(str(point.get("run_id", "")), run)
            if not of_run:
                self.runs.give_up(f"{name}: metric {metric[:200]}", "its run is not among those exported")
                continue
            fields = {name: point[name] for name in ("value", "timestamp", "step") if name in point}
            extra = {name: point[name] for name in ("dataset_name", "dataset_digest") if point.get(name)}
            self.runs.try_to(
                f"{name}: metric {metric[:200]}",
                lambda metric=metric, of_run=of_run, fields=fields, extra=extra: self.server.post(
                    "runs/log-metric", run_id=of_run, key=metric, model_id=key, **fields, **extra
                ),
            )

    def _uses(self, model: LoggedModel, key: str, name: str) -> None:
        """Tell the server which runs have read and made a model."""
        for use in ModelUse.objects.filter(model=model).select_related("job"):
            if run := self.runs.there.get(use.job.run_id.hex):
                is_output = use.kind == ModelUse.Kind.OUTPUT
                body = {"model_id": key, "step": use.step} if is_output else {"model_id": key}
                self.runs.try_to(name, lambda is_output=is_output, run=run, body=body: self.server.post(
                    "runs/outputs" if is_output else "runs/log-inputs", run_id=run, models=[body]))  # fmt: skip

    def finish(self) -> None:
        """Give the report the comparison."""
        if self.verified[0] and not self.dry:
            self.report.verified.append(("logged", *self.verified))
