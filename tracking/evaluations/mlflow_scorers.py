"""The calls of MLflow 3's clients about scorers: what judges the answers of a program.

A scorer is a text that its client has serialized, code or the instructions of a judge, and is stored as that: the
platform never loads or runs one. So there is no automatic evaluation either, which MLflow's server does by itself.
"""

from __future__ import annotations

import json

from django.db import transaction
from django.db.models import Max, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Length

from jobs.models import Project, Scorer, ScorerVersion
from kernel import sanitize
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import lock_row
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import WrongField
from tracking.mlflow import lookup as projects
from tracking.mlflow.searching import project_keys

from .records import milliseconds

MAX_NAME = 255
MAX_SERIALIZED = 1 << 20  # characters of a version
MAX_ANSWER = 32 << 20  # characters of all scorers of an answer
MAX_SCORERS, MAX_VERSIONS = 1000, 1000  # of a project; of a scorer


def shown(row: ScorerVersion) -> dict:
    return {
        "experiment_id": row.scorer.project_id, "scorer_name": row.scorer.name, "scorer_version": row.number,
        "serialized_scorer": row.serialized, "creation_time": milliseconds(row.created), "scorer_id": row.scorer.key,
    }  # fmt: skip


@effect(SUBMIT)
@for_jobs
def register(call: Call) -> dict:
    """Store a new version of a scorer, the first one with the scorer."""
    project = _project(call, write=True)
    name = call.fields.text("name", required=True, most=MAX_NAME)
    if not name.strip():
        raise WrongField("Scorer name cannot be empty or contain only whitespace.")
    text = call.fields.text("serialized_scorer", required=True, most=MAX_SERIALIZED)
    row = store(project, name, text)
    return {
        "version": row.number, "scorer_id": row.scorer.key, "experiment_id": str(project.pk), "name": name,
        "serialized_scorer": text, "creation_time": milliseconds(row.created),
    }  # fmt: skip


def store(project: Project, name: str, text: str, number: int | None = None) -> ScorerVersion:
    """Store a version of a scorer, the next one unless its number is given; one of this number that is there already
    is not changed. Raises WrongField.
    """
    try:
        sanitize.check_count(text)
        valid = isinstance(json.loads(text), dict) and not sanitize.UNSTORABLE.search(text)
    except (ValueError, RecursionError):
        valid = False
    if not valid or len(text) > MAX_SERIALIZED:
        raise WrongField(f"serialized_scorer must be valid JSON, an object of at most {MAX_SERIALIZED} characters")
    with transaction.atomic():
        if Scorer.objects.filter(project=project).exclude(name=name).count() >= MAX_SCORERS:
            raise WrongField(f"a project has at most {MAX_SCORERS} scorers")
        Scorer.objects.bulk_create([Scorer(user_id=project.user_id, project=project, name=name)], ignore_conflicts=True)
        scorer = lock_row(Scorer, project_id=project.pk, name=name)
        if scorer is None:
            raise WrongField(f"the scorer '{name}' is being deleted; try again")
        versions = ScorerVersion.objects.filter(scorer=scorer)
        there = None if number is None else versions.filter(number=number).select_related("scorer").first()
        if there is not None:
            return there
        if versions.count() >= MAX_VERSIONS:
            raise WrongField(f"a scorer has at most {MAX_VERSIONS} versions")
        number = number or (versions.aggregate(last=Max("number"))["last"] or 0) + 1
        return ScorerVersion.objects.create(user_id=project.user_id, scorer=scorer, number=number, serialized=text)


def _project(call: Call, *, write: bool = False) -> Project:
    """Return the project of a call, which must not be in the trash. Raises MlflowError."""
    row = projects.project(call, write=write)
    if row.trashed is not None:
        raise WrongField(f"The experiment {row.pk} must be in the 'active' state. Current state is deleted.")
    return row


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the last version of each scorer: of one experiment, of some, or of all of the caller's."""
    if "experiment_id" in call.fields:
        if "experiment_ids" in call.fields:
            raise WrongField("Cannot specify both 'experiment_id' and 'experiment_ids'.")
        keys = [_project(call).pk]
    else:
        keys = list(projects.projects(call).filter(trashed=None).values_list("pk", flat=True))
        if "experiment_ids" in call.fields:
            wanted = project_keys(call, call.fields.texts("experiment_ids"))
            keys = [key for key in wanted if key in keys] + list(projects.shared_projects(call, wanted))
    rows = ScorerVersion.objects.filter(scorer__project__in=keys)
    last = ScorerVersion.objects.filter(scorer=OuterRef("scorer")).order_by("-number").values("number")[:1]
    return _answer(rows.filter(number=Subquery(last)))


def _answer(rows: QuerySet[ScorerVersion]) -> dict:
    """Return versions of scorers. MLflow's clients read no pages of them, so more than an answer has room for is
    refused before it is read. Raises WrongField.
    """
    size = rows.aggregate(size=Sum(Length("serialized")))["size"] or 0
    if size > MAX_ANSWER:
        raise WrongField(
            f"These scorers have {size} characters, and an answer has at most {MAX_ANSWER}. Ask for one experiment or "
            "one version, or delete versions"
        )
    rows = rows.select_related("scorer").order_by("scorer__project", "scorer__name", "number")
    return {"scorers": [shown(row) for row in rows]}


@effect(READ)
@for_jobs
def versions(call: Call) -> dict:
    scorer = _scorer(call, _project(call))
    return _answer(ScorerVersion.objects.filter(scorer=scorer))


def _scorer(call: Call, project: Project) -> Scorer:
    """Return the scorer of a call, which has a version. Raises MlflowError."""
    name = call.fields.text("name", required=True)
    row = Scorer.objects.filter(project=project, name=name, versions__isnull=False).first()
    if row is None:
        raise _missing(name, project)
    return row


def _missing(name: str, project: Project, number: int | None = None) -> MlflowError:
    which = "" if number is None else f" and version {number}"
    text = f"Scorer with name '{name[:MAX_NAME]}'{which} not found for experiment {project.pk}."
    return MlflowError("RESOURCE_DOES_NOT_EXIST", text)


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    """Return one version of a scorer, the last one unless it is named."""
    project = _project(call)
    scorer = _scorer(call, project)
    number = call.fields.whole("version")
    rows = ScorerVersion.objects.filter(scorer=scorer).select_related("scorer").order_by("-number")
    row = (rows if number is None else rows.filter(number=_bounded(number))).first()
    if row is None:
        raise _missing(scorer.name, project, number)
    return {"scorer": shown(row)}


def _bounded(number: int) -> int:
    """Return a number that the database can compare; 0 for others, which is no version."""
    return number if 0 < number < 2**31 else 0


@effect(DESTROY)
def delete(call: Call) -> dict:
    """Delete one version of a scorer, or the scorer with all of them."""
    project = _project(call, write=True)
    scorer, number = _scorer(call, project), call.fields.whole("version")
    with transaction.atomic():
        if lock_row(Scorer, pk=scorer.pk) is None:
            raise _missing(scorer.name, project)
        if number is None:
            Scorer.objects.filter(pk=scorer.pk).delete()
        elif not ScorerVersion.objects.filter(scorer=scorer, number=_bounded(number)).delete()[0]:
            raise _missing(scorer.name, project, number)
        elif not ScorerVersion.objects.filter(scorer=scorer).exists():
            Scorer.objects.filter(pk=scorer.pk).delete()
    return {}


@effect(READ)
@for_jobs
def online_configs(_call: Call) -> dict:
    """Return no configuration of automatic evaluation, which clients ask for with each scorer."""
    return {"configs": []}


@effect(SUBMIT)
def set_online_config(call: Call) -> dict:
    """Refuse automatic evaluation; a rate of 0, which ends it, is what there is."""
    project = _project(call, write=True)
    scorer = _scorer(call, project)
    rate = call.fields.number("sample_rate")
    if rate != 0:
        raise WrongField(
            f"Automatic evaluation is not supported: the platform does not run scorers. Run '{scorer.name}' with "
            "mlflow.genai.evaluate"
        )
    config = {
        "online_scoring_config_id": scorer.key, "scorer_id": scorer.key, "sample_rate": 0.0, "filter_string": None,
        "experiment_id": str(project.pk),
    }  # fmt: skip
    return {"config": config}


ROUTES_3: Routes = {
    "scorers/register": {"POST": register},
    "scorers/list": {"GET": find},
    "scorers/versions": {"GET": versions},
    "scorers/get": {"GET": get},
    "scorers/delete": {"DELETE": delete},
    "scorers/online-configs": {"GET": online_configs},
    "scorers/online-config": {"PUT": set_online_config},
}
