"""The calls of MLflow 3's clients about evaluation datasets: mlflow.genai.datasets."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

from django.db.models import F, Q, QuerySet

from accounts.sharing import access
from jobs.models import EvaluationDataset, EvaluationRecord, Project
from kernel.effects import DESTROY, READ, SUBMIT
from mlflow_protocol import search
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField
from mlflow_protocol.search import Order, Term
from tracking.mlflow import lookup as projects
from tracking.mlflow import run_filter
from tracking.mlflow.searching import project_keys
from tracking.runs.filters.attributes import tag_value

from . import datasets, lookup, records

RESULTS, MAX_RESULTS = 1000, 1000
MAX_PAGE = 32 << 20  # characters of the records of one answer
KINDS = {
    "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "dataset": "attribute",
    "tag": "tag", "tags": "tag",
}  # fmt: skip
TEXTS = {"name": F("name"), "created_by": F("created_by"), "last_updated_by": F("changed_by")}
TIMES = {"created_time": "created", "last_update_time": "changed"}
COMPARED = {"=": "", "!=": "", "<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte"}
MAX_MS = 253_402_300_799_999  # the last millisecond of the year 9999


def shown(row: EvaluationDataset, experiments: list[int] | None = None) -> dict:
    """Return a dataset as protocol buffers' JSON has it; its tags, schema and profile are JSON texts."""
    made: dict = {
        "dataset_id": row.key, "name": row.name, "digest": row.digest, "tags": json.dumps(row.tags),
        "created_time": records.milliseconds(row.created), "last_update_time": records.milliseconds(row.changed),
        "created_by": row.created_by, "last_updated_by": row.changed_by,
    }  # fmt: skip
    if row.schema is not None:
        made["schema"] = json.dumps(row.schema)
    if row.records_kept:
        made["profile"] = json.dumps({"num_records": row.records_kept})
    if experiments:
        made["experiment_ids"] = [str(key) for key in experiments]
    return made


# --- datasets ---------------------------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def create(call: Call) -> dict:
    name = call.fields.text("name", required=True)
    found = _projects(call, call.fields.texts("experiment_ids"))
    if call.caller.job_id and not found:  # which sees the datasets of its own project only
        found = _projects(call, [projects.DEFAULT_ID])
    row = datasets.create(call.user, name, found, _tags(call.fields, required=False))
    return {"dataset": shown(row, [project.pk for project in found])}


def _projects(call: Call, texts: list[str]) -> list[Project]:
    """Return the caller's projects with these ids, each once. Raises MlflowError."""
    if len(texts) > datasets.MAX_PROJECTS:
        most = datasets.MAX_PROJECTS
        raise WrongField(f"Invalid value for parameter 'experiment_ids': at most {most} experiments")
    found = {row.pk: row for row in (projects.project(call, text, write=True) for text in texts)}
    for row in found.values():
        if row.trashed is not None:
            raise WrongField(f"The experiment {row.pk} must be in the 'active' state. Current state is deleted.")
    return list(found.values())


def _tags(fields: Fields, required: bool = True) -> dict:
    """Return the tags of a request, which are a JSON text. Raises WrongField."""
    text = fields.text("tags", required=required)
    try:
        tags = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, dict):
        raise WrongField("Invalid value for parameter 'tags': must be a JSON object")
    return tags


@effect(READ)
@for_jobs
def get(call: Call, dataset: str) -> dict:
    return {"dataset": shown(lookup.find(call, dataset))}


@effect(DESTROY)
def delete(call: Call, dataset: str) -> dict:
    """Delete a dataset with its records; as on MLflow's servers, one that does not exist is no error."""
    try:
        row = lookup.find(call, dataset, write=True)
    except MlflowError as problem:
        if problem.code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return {}
    datasets.delete(row)
    return {}


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the datasets that match: the caller's own, and those of shared projects that are named."""
    fields = call.fields
    limit, offset = search.page(fields, RESULTS, MAX_RESULTS)
    rows = _of(call, fields.texts("experiment_ids"))
    for term in search.terms(fields.text("filter_string"), KINDS):
        rows = rows.filter(_condition(term))
    ordered = _ordered(rows, search.orders(fields.texts("order_by"), KINDS))
    found = list(ordered[offset : offset + limit + 1])
    answer: dict = {"datasets": [shown(row) for row in found[:limit]]}
    if len(found) > limit > 0:
        answer["next_page_token"] = search.token(offset + limit)
    return answer


def _of(call: Call, texts: list[str]) -> QuerySet[EvaluationDataset]:
    rows = lookup.own(call)
    if not texts:
        return rows
    keys = project_keys(call, texts)
    there = EvaluationDataset.projects.through.objects.filter(project__in=keys).values("evaluationdataset")
    rows = rows.filter(pk__in=there)
    if shared := projects.shared_projects(call, keys):
        of_shared = EvaluationDataset.projects.through.objects.filter(project__in=list(shared))
        rows = rows | EvaluationDataset.objects.filter(pk__in=of_shared.values("evaluationdataset"))
    return rows


def _condition(term: Term) -> Q:
    """Return the condition of a comparison. Raises WrongField."""
    if term.kind == "tag":
        present = Q(tags__has_key=term.name)
        if term.operator == "null":
            return present if term.negative else ~present
        return present & run_filter.text(tag_value(term.name), term)
    if term.name in TIMES:
        at = records.EPOCH + timedelta(milliseconds=min(max(term.number(), 0), MAX_MS))
        found = Q(**{f"{TIMES[term.name]}{COMPARED[term.operator]}": at})
        return ~found if term.operator == "!=" else found
    if term.name not in TEXTS:
        raise WrongField(f"Invalid attribute key '{term.name[:50]}' specified. Valid keys are {[*TEXTS, *TIMES]}")
    return run_filter.text(TEXTS[term.name], term)


def _ordered(rows: QuerySet, orders: list[Order]) -> QuerySet:
    """Return the datasets in an order, the newest first among equals. Raises WrongField."""
    known = {"name": "name", **TIMES}
    keys = []
    for order in orders:
        if order.kind != "attribute" or order.name not in known:
            raise WrongField(f"Invalid order_by key '{order.name[:50]}' specified. Valid keys are {list(known)}")
        keys.append(known[order.name] if order.ascending else f"-{known[order.name]}")
    return rows.order_by(*(keys or ["-created"]), "-pk")


@effect(SUBMIT)
@for_jobs
def set_tags(call: Call, dataset: str) -> dict:
    datasets.set_tags(lookup.find(call, dataset, write=True), _tags(call.fields))
    return {}


@effect(DESTROY)
@for_jobs
def delete_tag(call: Call, dataset: str, tag: str) -> dict:
    datasets.set_tags(lookup.find(call, dataset, write=True), {tag: None})
    return {}


@effect(READ)
@for_jobs
def experiments(call: Call, dataset: str) -> dict:
    """Return the ids of a dataset's projects, of another user's dataset those that are shared with the caller."""
    row = lookup.find(call, dataset)
    if row.user_id == call.caller.user_id:
        keys = list(row.projects.order_by("pk").values_list("pk", flat=True))
    else:
        keys = [project.pk for project in lookup.granted(access.Visitor(call.user), row)]
    return {"experiment_ids": [str(key) for key in keys]}


@effect(SUBMIT)
@for_jobs
def add_experiments(call: Call, dataset: str) -> dict:
    row = lookup.find(call, dataset, write=True)
    datasets.associate(row, _projects(call, call.fields.texts("experiment_ids")))
    return {"dataset": shown(lookup.find(call, dataset))}


@effect(SUBMIT)
def remove_experiments(call: Call, dataset: str) -> dict:
    row = lookup.find(call, dataset, write=True)
    datasets.dissociate(row, project_keys(call, call.fields.texts("experiment_ids")))
    return {"dataset": shown(lookup.find(call, dataset))}


# --- records ----------------------------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def merge(call: Call, dataset: str) -> dict:
    row = lookup.find(call, dataset, write=True)
    text = call.fields.given.get("records")
    if not isinstance(text, str) or not text:
        raise WrongField("Missing value for required parameter 'records'.")
    inserted, updated = datasets.merge(row, records.given(text))
    return {"inserted_count": inserted, "updated_count": updated}


@effect(READ)
@for_jobs
def get_records(call: Call, dataset: str) -> dict:
    """Return a page of records, as a JSON text; one that is large ends earlier, with a token for the next."""
    row = lookup.find(call, dataset)
    limit = call.fields.whole("max_results", RESULTS, low=0, high=MAX_RESULTS) or RESULTS
    rows = EvaluationRecord.objects.filter(dataset=row, pk__gt=_after(call.fields.text("page_token"))).order_by("pk")
    sizes = list(rows.values_list("pk", "size")[: limit + 1])
    page = next(iter(records.groups([(key, size + 500) for key, size in sizes], MAX_PAGE, limit)), [])
    found = EvaluationRecord.objects.filter(pk__in=page).order_by("pk")
    answer = {"records": f"[{', '.join(records.written(each, row.key) for each in found)}]"}
    if len(page) < len(sizes):
        answer["next_page_token"] = base64.b64encode(str(page[-1]).encode()).decode()
    return answer


def _after(token: str) -> int:
    """Return the key of the last record of the page before. Raises WrongField."""
    try:
        key = int(base64.b64decode(token, validate=True)) if token else 0
    except ValueError:
        key = -1
    if not 0 <= key < 2**63:
        raise WrongField("Invalid page token, could not be decoded")
    return key


@effect(DESTROY)
def delete_records(call: Call, dataset: str) -> dict:
    row = lookup.find(call, dataset, write=True)
    keys = call.fields.texts("dataset_record_ids")
    return {"deleted_count": datasets.delete_records(row, list(dict.fromkeys(keys)))}


ROUTES_3: Routes = {
    "datasets/create": {"POST": create},
    "datasets/search": {"POST": find, "GET": find},
    "datasets/<str:dataset>": {"GET": get, "DELETE": delete},
    "datasets/<str:dataset>/tags": {"PATCH": set_tags},
    "datasets/<str:dataset>/tags/<path:tag>": {"DELETE": delete_tag},
    "datasets/<str:dataset>/experiment-ids": {"GET": experiments},
    "datasets/<str:dataset>/add-experiments": {"POST": add_experiments},
    "datasets/<str:dataset>/remove-experiments": {"POST": remove_experiments},
    "datasets/<str:dataset>/records": {"GET": get_records, "POST": merge, "DELETE": delete_records},
}
