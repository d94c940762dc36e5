"""What a server has and the platform does not keep, or the other way round: the report names it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from urllib.parse import urlsplit

from jobs.models import Project
from kernel.units import count

from .evaluations_in import DISABLED
from .report import Report
from .server import Away, ServerError
from .source import UNKNOWN, GenAI, Source

NAMED = 5  # objects of a kind
KINDS = (
    GenAI("issues", "POST", "issues/search", "issues"),
    GenAI("review queues", "GET", "review-queues/list", "review_queues"),
    GenAI("prompt optimizations", "POST", "prompt-optimization/jobs/search", "jobs"),
)
NO_SECRET = "a server does not give out its secret; create it again"


class Losses:
    """Names traces and what else MLflow keeps for evaluations."""

    def __init__(self, source: Source, report: Report):
        self.source, self.report = source, report
        self.kinds = list(KINDS)  # that the server may have

    def of_experiment(self, key: str, name: str) -> None:
        """Name what an experiment has."""
        experiment = f"experiment {key} ({name[:100]})"
        self._traces(key, experiment)
        for kind in list(self.kinds):
            entries = self._found(kind, key, experiment)
            if entries:
                self.report.problem(f"{experiment}: {_counted(kind, entries)}", "the platform does not keep them")

    def _found(self, kind: GenAI, key: str, where: str) -> list[dict]:
        try:
            return self.source.of_genai(kind, key)
        except Away:
            raise
        except ServerError as problem:
            if problem.status in UNKNOWN or problem.code == DISABLED:
                self.kinds.remove(kind)
            else:
                self.report.problem(f"{where}: {kind.what}", problem)
            return []

    def _traces(self, key: str, experiment: str) -> None:
        try:
            number, more = self.source.traces(key)
        except ServerError as problem:
            if isinstance(problem, Away):
                raise
            if problem.status not in UNKNOWN:
                self.report.problem(f"{experiment}: traces", problem)
            return
        if number:
            traces = f"{number} or more traces" if more else count(number, "trace")
            self.report.problem(f"{experiment}: {traces}", "traces are not copied")


def name_evaluations(project: Project, report: Report) -> None:
    """Name what a project has that an export does not send: traces, evaluation datasets and scorers."""
    counts = {
        "trace": project.traces.count(),
        "evaluation dataset": project.evaluation_datasets.count(),
        "scorer": project.scorers.count(),
    }
    for noun, number in counts.items():
        if number:
            report.problem(f"project {project.name[:100]}: {count(number, noun)}", "is not exported")


def name_webhooks(webhooks: list[dict], addresses: Collection[str], report: Report) -> None:
    """Name the webhooks of a registry whose address none at the other side has. An address may hold a password, so only
    its host is shown.
    """
    for webhook in webhooks:
        url = str(webhook.get("url") or "")
        if url not in addresses:
            report.problem(f"webhook {str(webhook.get('name'))[:100]} to {_host(url)}", NO_SECRET)


def _host(url: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(url).hostname or "an unknown host"
    return "an unknown host"


def _counted(kind: GenAI, entries: list[dict]) -> str:
    names = [str(entry[kind.name])[:50] for entry in entries if entry.get(kind.name)]
    shown = ", ".join([*names[:NAMED], *(["…"] if len(names) > NAMED else [])])
    return f"{kind.what}: {len(entries)}" + (f" ({shown})" if shown else "")
