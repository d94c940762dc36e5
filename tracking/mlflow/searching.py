"""The calls that search runs and experiments."""

from __future__ import annotations

from django.db.models import F, Q, QuerySet, TextField
from django.db.models.functions import Cast

from jobs.models import Job, State
from jobs.summaries import metrics as summaries
from kernel.effects import READ
from mlflow_protocol import limits, search
from mlflow_protocol.protocol import Call, Routes, effect, for_jobs
from mlflow_protocol.reading import WrongField, whole_of, wrong
from mlflow_protocol.search import Term
from tracking.runs.filters.attributes import tag_value

from . import experiments, lookup, run_filter, run_page
from .writing import NOTE

RUNS, MAX_RUNS = 1000, 50_000
EXPERIMENTS, MAX_EXPERIMENTS = 1000, 50_000
TRASHED = {1: Q(trashed=None), 2: Q(trashed__isnull=False), 3: Q()}


@effect(READ)
@for_jobs
def search_runs(call: Call) -> dict:
    """Return runs of some experiments; those that are not the caller's have none."""
    fields = call.fields
    limit, offset = search.page(fields, RUNS, MAX_RUNS)
    runs, owners = _runs_in(call, project_keys(call, fields.texts("experiment_ids")))
    runs = runs.filter(TRASHED[search.view(fields, "run_view_type")])
    terms, orders = search.terms(fields.text("filter")), search.orders(fields.texts("order_by"))
    keys = run_filter.keys_of(runs, terms, orders, owners, offset, offset + limit + 1)
    size = summaries.fitting(keys[:limit], summaries.MAX_AT_ONCE)  # a page may end before its limit
    answer: dict = {"runs": run_page.runs(keys[:size])}
    if len(keys) > size > 0:
        answer["next_page_token"] = search.token(offset + size)
    return answer


def _runs_in(call: Call, keys: list[int]) -> tuple[QuerySet, list[int]]:
    """Return the runs of the projects that the caller may read, and whose they are."""
    own, shared = lookup.runs(call).filter(project__in=keys), lookup.shared_projects(call, keys)
    if not shared:
        return own, [call.caller.user_id]
    others = Q(project__in=list(shared), trashed=None)
    rows = Job.objects.exclude(state=State.DELETING).filter(Q(user=call.caller.user_id, project__in=keys) | others)
    return rows, sorted({call.caller.user_id, *shared.values()})


def project_keys(call: Call, texts: list[str]) -> list[int]:
    """Return the keys of projects by their ids; 0 is the default one. Raises WrongField."""
    keys = []
    for text in texts:
        number = whole_of(text)
        if number is None:
            raise WrongField(f"Invalid experiment ID '{text[:100]}'. Experiment ID must be a valid integer.")
        project = lookup.project_of(call, text) if number == 0 else None
        keys.append(project.pk if project else number)
    return [key for key in keys if 0 < key < 2**63]


@effect(READ)
@for_jobs
def search_experiments(call: Call) -> dict:
    fields = call.fields
    limit, offset = search.page(fields, EXPERIMENTS, MAX_EXPERIMENTS)
    if limit < 1:
        raise wrong("max_results", limit, "must be a positive whole number")
    if not call.caller.job_id:
        lookup.default(call)
    rows = lookup.projects(call).filter(TRASHED[search.view(fields, "view_type")])
    for term in search.terms(fields.text("filter")):
        rows = rows.filter(_of_experiment(term))
    keys = [_key(order) for order in search.orders(fields.texts("order_by"))] or [F("created").desc()]
    rows = list(rows.order_by(*keys, "-pk")[offset : offset + limit + 1])
    answer: dict = {"experiments": [experiments.shown(row) for row in rows[:limit]]}
    if len(rows) > limit:
        answer["next_page_token"] = search.token(offset + limit)
    return answer


ATTRIBUTES = {
    "name": experiments.NAME,
    "experiment_id": Cast("pk", TextField()),
    "creation_time": F("created"),
    "last_update_time": F("updated"),
}


def _of_experiment(term: Term) -> Q:
    """Return the condition of a comparison. Raises WrongField."""
    if term.kind == "tag":
        field = "system_tags" if term.name.startswith(limits.SYSTEM) else "tags"
        present, column = Q(**{f"{field}__has_key": term.name}), tag_value(term.name, field)
        if term.name == NOTE:
            present, column = ~Q(readme=""), F("readme")
        if term.operator == "null":
            return present if term.negative else ~present
        return present & run_filter.text(column, term)
    if term.kind != "attribute" or term.name not in ATTRIBUTES:
        raise WrongField(f"Invalid attribute key '{term.name[:50]}' specified. Valid keys are {sorted(ATTRIBUTES)}")
    if term.name in ("creation_time", "last_update_time"):
        return run_filter.time(ATTRIBUTES[term.name], term)
    return run_filter.text(ATTRIBUTES[term.name], term)


def _key(order: search.Order):
    if order.kind == "attribute" and order.name in ATTRIBUTES:
        column = F("pk") if order.name == "experiment_id" else ATTRIBUTES[order.name]
    else:
        raise WrongField(f"Invalid attribute key '{order.name[:50]}' specified. Valid keys are {sorted(ATTRIBUTES)}")
    return column.asc() if order.ascending else column.desc()


ROUTES: Routes = {
    "runs/search": {"POST": search_runs},
    "experiments/search": {"POST": search_experiments, "GET": search_experiments},
    "experiments/list": {"GET": search_experiments},
}
