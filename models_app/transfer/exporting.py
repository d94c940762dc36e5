"""The export to an MLflow server: projects with their runs, then the registry, then a comparison of the counts."""

from __future__ import annotations

import contextlib

from accounts.models import User
from jobs.models import Project
from models_app.models import RegistryWebhook
from tracking.mlflow import experiments, lookup
from tracking.mlflow.runs import moment

from . import losses
from .logged_out import LoggedOut
from .options import Options
from .registry_out import RegistryOut
from .report import NEW, SAME, Report
from .runs_out import RunsOut
from .server import Away, Server, ServerError
from .source import Source


def run(user: User, server: Server, options: Options, report: Report) -> None:
    """Export what the options say of a user. Raises Away, with what was sent until then kept."""
    target = Source(server)
    there = {str(experiment.get("name")): experiment for experiment in target.experiments(deleted=True)}
    runs = RunsOut(target, user, report, options.again, options.artifacts)
    logged = LoggedOut(runs, options.dry)
    for project in Project.objects.filter(user=user, trashed=None).order_by("pk"):
        name = lookup.DEFAULT_NAME if project.default else project.name
        if not options.wants(project.name):
            continue
        try:
            key = _experiment(server, project, name, there, report, options.dry)
            report.say(f"project {project.name[:100]}")
            runs.send(project, "" if options.dry else key, moment(options.since))
            logged.send(project, key, moment(options.since))
            losses.name_evaluations(project, report)
        except Away:
            raise
        except ServerError as problem:
            report.problem(f"project {project.name[:100]}", problem)
    if options.registry:
        report.say("registered models")
        registry = RegistryOut(runs, user, report, options.dry, logged.there)
        registry.send()
        there = {str(webhook.get("url")) for webhook in target.webhooks()}
        losses.name_webhooks(list(RegistryWebhook.objects.filter(user=user).values("name", "url")), there, report)
    if not options.dry:
        runs.finish()
        logged.finish()


def _experiment(server: Server, project: Project, name: str, there: dict[str, dict], report: Report, dry: bool) -> str:
    """Return the id of a project's experiment, which is made where there is none."""
    experiment = there.get(name) or (_default(server) if project.default else None)
    report.count("experiment", NEW if experiment is None else SAME)
    if experiment is not None and experiment.get("lifecycle_stage") == experiments.DELETED:
        raise ServerError("the experiment of that name is deleted there; restore it, or delete it for good")
    if dry:
        return ""
    tags = experiments.tags_of(project)
    if experiment is None:
        return str(server.post("experiments/create", name=name, tags=tags)["experiment_id"])
    known, key = {tag["key"]: tag["value"] for tag in experiment.get("tags") or []}, str(experiment["experiment_id"])
    for tag in tags:
        if known.get(tag["key"]) != tag["value"]:
            server.post("experiments/set-experiment-tag", experiment_id=key, **tag)
    return key


def _default(server: Server) -> dict | None:
    """Return the experiment that the server calls Default, under whichever name it lists it."""
    with contextlib.suppress(ServerError):
        return server.get("experiments/get-by-name", experiment_name=lookup.DEFAULT_NAME).get("experiment")
    return None
