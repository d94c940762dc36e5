"""What a server has and the platform does not keep, or the other way round: the report names it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from urllib.parse import urlsplit

from kernel.units import count

from .report import Report
from .server import Away, ServerError
from .source import UNKNOWN, GenAI, Source

DISABLED = "FEATURE_DISABLED"  # the code of a server that keeps its objects in files
NAMED = 5  # objects of a kind
DATASETS = GenAI("evaluation datasets", "POST", "datasets/search", "datasets", several=True)
KINDS = (
    DATASETS,
    GenAI("scorers", "GET", "scorers/list", "scorers", "scorer_name"),
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
        self.datasets: set[str] = set()

    def of_experiment(self, key: str, name: str) -> None:
        """Name what an experiment has."""
        experiment = f"experiment {key} ({name[:100]})"
        self._traces(key, experiment)
        for kind in list(self.kinds):
            entries = self._found(kind, key, experiment)
            if kind is DATASETS:
                self.datasets.update(str(entry.get("dataset_id")) for entry in entries)
            if entries:
                self.report.problem(f"{experiment}: {_counted(kind, entries)}", "the platform does not keep them")

    def of_no_experiment(self) -> None:
        """Name the evaluation datasets of no experiment that was named before."""
        entries = self._found(DATASETS, "", "the server") if DATASETS in self.kinds else []
        rest = [entry for entry in entries if str(entry.get("dataset_id")) not in self.datasets]
        if rest:
            what = f"experiments that are not copied: {_counted(DATASETS, rest)}"
            self.report.problem(what, "the platform does not keep them")

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
            self.report.problem(f"{experiment}: {traces}", "the platform does not keep traces")


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
