"""Brings the evaluation datasets and scorers of a server here: records with all that they have, versions with their
numbers. Records and versions that were deleted there stay here.
"""

from __future__ import annotations

import json

from django.db import transaction

from jobs.models import EvaluationDataset, Project, ScorerVersion
from kernel.errors import Refused
from mlflow_protocol.reading import WrongField, whole_of
from tracking.evaluations import datasets, mlflow_scorers, records
from tracking.mlflow.runs import moment

from .memory import Kind, Memory, checksum
from .report import CHANGED, LEFT, NEW, SAME, Report
from .runs_in import WRONG
from .server import Away, ServerError
from .source import UNKNOWN, GenAI, Source

DISABLED = "FEATURE_DISABLED"  # the code of a server that keeps its objects in files
DATASETS = GenAI("evaluation datasets", "POST", "datasets/search", "datasets", several=True)
SCORERS = GenAI("scorers", "GET", "scorers/list", "scorers", "scorer_name")
PARTS = ("inputs", "outputs", "expectations", "tags", "source")
PAGE = 500  # records


class Evaluations:
    """Takes what is evaluated with. `dry` counts it only."""

    def __init__(self, source: Source, memory: Memory, report: Report, dry: bool = False):
        self.source, self.memory, self.report, self.dry = source, memory, report, dry
        self.kinds = [DATASETS, SCORERS]  # that the server may have
        self.taken: dict[str, int] = {}  # ids of datasets there -> those of here, 0 for those that are left out

    def of_experiment(self, key: str, name: str, project: Project | None) -> None:
        """Take what an experiment has."""
        where = f"experiment {key} ({name[:100]})"
        for row in self._found(DATASETS, key, where):
            self._take(f"{where}: evaluation dataset {str(row.get('name'))[:100]}", self._dataset, row, project)
        for row in self._found(SCORERS, key, where):
            title = f"{where}: scorer {str(row.get('scorer_name'))[:100]}"
            self._take(title, self._scorer, key, str(row.get("scorer_name", "")), project)

    def of_no_experiment(self) -> None:
        """Take the datasets that no experiment has which was taken before."""
        for row in self._found(DATASETS, "", "the server"):
            if str(row.get("dataset_id")) not in self.taken:
                self._take(f"evaluation dataset {str(row.get('name'))[:100]}", self._dataset, row, None)

    def _take(self, title: str, take, *given) -> None:
        try:
            take(*given)
        except Away:
            raise
        except (*WRONG, WrongField, Refused) as problem:
            self.report.problem(title, getattr(problem, "msg", problem))

    def _found(self, kind: GenAI, key: str, where: str) -> list[dict]:
        if kind not in self.kinds:
            return []
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

    # --- datasets ----------------------------------------------------------------------------------------------------
    def _dataset(self, row: dict, project: Project | None) -> None:
        key = str(row.get("dataset_id", ""))
        if key in self.taken:
            self._associate(self.taken[key], project)
            return
        known, mark = self.memory.find(Kind.EVALUATION, key), checksum(row)
        mine = known and EvaluationDataset.objects.filter(pk=known.object_id, user=self.memory.user).first()
        self.taken[key] = mine.pk if mine else 0
        if known is not None and mine is None:
            self.report.count("evaluation", LEFT)
            return
        same = known is not None and known.mark == mark
        self.report.count("evaluation", SAME if same else NEW if known is None else CHANGED)
        if self.dry:
            return
        self.memory.require_room()
        tags = _tags(row)
        if known is None:
            with transaction.atomic():
                mine = datasets.create(self.memory.user, str(row.get("name", "")), [], tags)
                known = self.memory.remember(Kind.EVALUATION, key, mine.pk)
            self.taken[key] = mine.pk
        self._associate(mine.pk, project)
        if same:
            return
        datasets.set_tags(mine, tags)
        number = self._records(key, mine)
        mine.refresh_from_db()
        self.report.verified.append(("record", number, mine.records_kept))
        self.memory.complete(known, mark)

    def _associate(self, pk: int, project: Project | None) -> None:
        row = EvaluationDataset.objects.filter(pk=pk).first()
        if row is not None and project is not None and not row.projects.filter(pk=project.pk).exists():
            datasets.associate(row, [project])

    def _records(self, key: str, mine: EvaluationDataset) -> int:
        """Take the records of a dataset; return how many the server has."""
        number, token = 0, ""
        while True:
            query = {"max_results": PAGE, **({"page_token": token} if token else {})}
            answer = self.source.server.ask_3("GET", f"datasets/{key}/records", **query)
            page = json.loads(answer.get("records") or "[]")
            given = [{part: one[part] for part in PARTS if one.get(part) is not None} for one in page]
            for one, there in zip(given, page, strict=True):
                one.setdefault("outputs", there.get("outputs"))
            self.memory.require_room()
            datasets.merge(mine, records.given(json.dumps(given)))
            number, before, token = number + len(page), token, answer.get("next_page_token") or ""
            if not token or token == before:
                return number

    # --- scorers -----------------------------------------------------------------------------------------------------
    def _scorer(self, experiment: str, name: str, project: Project | None) -> None:
        found = self.source.server.ask_3("GET", "scorers/versions", experiment_id=experiment, name=name)
        for row in found.get("scorers") or []:
            number = whole_of(row.get("scorer_version")) or 0
            key = f"{experiment}/{name[:250]}/{number}"
            known = self.memory.find(Kind.SCORER, key)
            if known is not None:
                there = ScorerVersion.objects.filter(pk=known.object_id, user=self.memory.user).exists()
                self.report.count("scorer", SAME if there else LEFT)
                continue
            self.report.count("scorer", NEW)
            if self.dry or project is None:
                continue
            self.memory.require_room()
            with transaction.atomic():
                version = mlflow_scorers.store(project, name, str(row.get("serialized_scorer", "")), number or None)
                self.memory.remember(Kind.SCORER, key, version.pk)
            if (ms := whole_of(row.get("creation_time"))) is not None:
                ScorerVersion.objects.filter(pk=version.pk).update(created=moment(ms) or version.created)


def _tags(row: dict) -> dict:
    """Return the tags of a dataset, which are a JSON text."""
    try:
        tags = json.loads(row.get("tags") or "{}")
    except ValueError:
        tags = {}
    return tags if isinstance(tags, dict) else {}
