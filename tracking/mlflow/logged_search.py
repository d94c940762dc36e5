"""The search of logged models: filters as those of runs, an order, and pages."""

from __future__ import annotations

from django.db.models import F, FloatField, Func, JSONField, Q, TextField
from django.db.models import Value as Constant
from django.db.models.functions import Cast, Replace
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual

from jobs.models import Job, LoggedModel
from kernel.effects import READ
from mlflow_protocol import search
from mlflow_protocol.protocol import Call, Routes, effect, for_jobs
from mlflow_protocol.reading import WrongField
from mlflow_protocol.search import Term
from tracking.runs.filters.attributes import tag_value

from . import lookup, run_filter, shown
from .searching import project_keys

RESULTS, MAX_RESULTS = 100, 1000
TIMES = {
    "creation_timestamp": "created", "creation_time": "created", "creation_timestamp_ms": "created",
    "last_updated_timestamp": "updated", "last_updated_timestamp_ms": "updated", "last_updated_time": "updated",
}  # fmt: skip
TEXTS = {
    "name": F("name"),
    "model_id": F("key"),
    "model_type": F("model_type"),
    "status": F("status"),
    "source_run_id": Replace(Cast("job__run_id", TextField()), Constant("-"), Constant(""), output_field=TextField()),
    "experiment_id": Cast("job__project_id", TextField()),
}
SHORT = {"READY": "LOGGED_MODEL_READY", "PENDING": "LOGGED_MODEL_PENDING", "FAILED": "LOGGED_MODEL_UPLOAD_FAILED"}
LOOKUPS = {"=": Exact, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual}


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the logged models of some experiments; those that are not the caller's have none."""
    fields = call.fields
    limit, offset = search.page(fields, RESULTS, MAX_RESULTS)
    keys = project_keys(call, fields.texts("experiment_ids"))
    runs = lookup.runs(call).filter(project__in=keys, trashed=None)
    if shared := lookup.shared_projects(call, keys):
        runs = runs | Job.objects.filter(project__in=list(shared), trashed=None)
    rows = LoggedModel.objects.filter(job__in=runs.values("pk")).select_related("job")
    for term in search.terms(fields.text("filter")):
        rows = rows.filter(_condition(term))
    for dataset in fields.messages("datasets"):
        rows = rows.filter(_of_dataset(dataset.text("dataset_name", required=True)))
    rows = rows.order_by(*[_order(message) for message in fields.messages("order_by")], F("created").desc(), "key")
    rows_shown = list(rows[offset : offset + limit + 1])
    answer: dict = {"models": [shown.logged_model(row) for row in rows_shown[:limit]]} if rows_shown else {}
    if len(rows_shown) > limit > 0:
        answer["next_page_token"] = search.token(offset + limit)
    return answer


def _condition(term: Term) -> Q:
    """Return the condition of a comparison. Raises WrongField."""
    if term.kind == "metric":
        column, number = metric(term.name), Cast(Constant(term.number()), FloatField())
        if term.operator == "!=":
            return Q(metrics__has_key=term.name) & ~Q(Exact(column, number))
        return Q(LOOKUPS[term.operator](column, number))
    if term.kind in ("param", "tag"):
        field = f"{term.kind}s"
        present = Q(**{f"{field}__has_key": term.name})
        if term.operator == "null":
            return present if term.negative else ~present
        return present & run_filter.text(tag_value(term.name, field), term)
    if term.name in TIMES:
        return run_filter.time(F(TIMES[term.name]), term)
    if term.kind != "attribute" or term.name not in TEXTS:
        raise WrongField(f"Invalid attribute key '{term.name[:50]}' specified. Valid keys are {_known()}")
    if term.name == "status":
        term = term._replace(values=tuple(SHORT.get(value, value) for value in term.values))
    return run_filter.text(TEXTS[term.name], term)


def metric(name: str) -> Cast:
    """Return the last value of a metric as an expression."""
    kept = Func(F("metrics"), Constant(name), template="(%(expressions)s)", arg_joiner=" -> ", output_field=JSONField())
    value = Func(kept, Constant("value"), template="(%(expressions)s)", arg_joiner=" ->> ", output_field=TextField())
    return Cast(value, FloatField())


def _of_dataset(name: str) -> Q:
    """Return the condition that some metric was computed on a dataset."""
    path = Func(
        F("metrics"), Constant("$.*.dataset_name"), function="jsonb_path_query_array", output_field=JSONField(),
        template="%(function)s(%(expressions)s::jsonpath)",
    )  # fmt: skip
    return Q(pk__in=LoggedModel.objects.annotate(of=path).filter(of__contains=[name]).values("pk"))


def _order(given):
    name = given.text("field_name", required=True)
    orders = search.orders([name])
    kind, field = orders[0].kind, orders[0].name
    if kind == "metric":
        column = metric(field)
    elif kind == "attribute" and field in TIMES:
        column = F(TIMES[field])
    elif kind == "attribute" and field in TEXTS:
        column = TEXTS[field]
    elif kind in ("param", "tag"):
        column = tag_value(field, f"{kind}s")
    else:
        raise WrongField(f"Invalid order_by key '{name[:100]}'. Valid keys are {_known()}")
    return column.asc(nulls_last=True) if given.flag("ascending", True) else column.desc(nulls_last=True)


def _known() -> list[str]:
    return sorted({*TEXTS, *TIMES})


ROUTES: Routes = {"logged-models/search": {"POST": find}}
