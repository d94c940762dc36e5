"""The search of traces by MLflow's filters, and the order of what is found."""

from __future__ import annotations

from django.db.models import Exists, ExpressionWrapper, F, FloatField, Func, OuterRef, Q, QuerySet, TextField
from django.db.models import Value as Constant
from django.db.models.functions import Cast, Concat

from accounts.sharing import access
from jobs.models import Assessment, Project, Span, Trace
from mlflow_protocol import search
from mlflow_protocol.protocol import Call
from mlflow_protocol.reading import WrongField
from mlflow_protocol.search import Order, Term
from tracking.mlflow import lookup as projects
from tracking.mlflow import run_filter
from tracking.mlflow.searching import project_keys
from tracking.runs.filters.attributes import tag_value

from . import assessments, lookup
from .mlflow_shown import NAME, STATES
from .recording import PREFIX
from .rows import SOURCE_RUN, of_run, require_small

KINDS = {
    "attribute": "attribute", "attributes": "attribute", "attr": "attribute", "trace": "attribute",
    "tag": "tag", "tags": "tag",
    "metadata": "metadata", "request_metadata": "metadata", "trace_metadata": "metadata",
    "span": "span", "feedback": "feedback", "expectation": "expectation",
}  # fmt: skip
MS = 1_000_000  # nanoseconds
STARTED = ExpressionWrapper(F("started_ns") / MS, output_field=FloatField())
LASTED = ExpressionWrapper((F("ended_ns") - F("started_ns")) / MS, output_field=FloatField())
NUMBERS = {
    "timestamp": STARTED, "timestamp_ms": STARTED, "request_time": STARTED,
    "execution_time": LASTED, "execution_time_ms": LASTED, "execution_duration": LASTED,
}  # fmt: skip
ID = Concat(Constant(PREFIX), F("key"), output_field=TextField())
TEXTS = {
    "name": F("name"), "trace_name": F("name"), "trace_id": ID, "request_id": ID,
    "experiment_id": Cast("project_id", TextField()),
    "run_id": tag_value("mlflow.sourceRun", "metadata"),
    "client_request_id": tag_value("client_request_id", "metadata"),
    "end_user_id": F("end_user"), "session_id": F("session"),
}  # fmt: skip
SPAN_TEXTS = {"name": F("name"), "type": F("type"), "status": F("status"), "content": Cast("attributes", TextField())}
# A value that is a number; one of hundreds of digits counts as the largest one.
AS_NUMBER = Func(
    F("value"), output_field=FloatField(),
    template="(CASE WHEN jsonb_typeof(%(expressions)s) = 'number' "
    "THEN greatest(least((%(expressions)s)::numeric, 1e308), -1e308)::float8 END)",
)  # fmt: skip
ATTRIBUTES = "span.attributes."
STATUSES = {said: own for own, said in STATES.items()}
COMPARED = {
    "=": "exact", "!=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte",
}  # fmt: skip


def find(call: Call, experiments: list[str], text: str) -> QuerySet:
    """Return the traces of some experiments that meet a filter; what it says of spans is true of one of them. Raises
    WrongField.
    """
    keys = project_keys(call, experiments)
    rows = lookup.own(call).filter(project__in=keys, project__trashed=None)
    if shared := projects.shared_projects(call, keys):
        rows = rows | Trace.objects.filter(project__in=list(shared))
    of_span = Q()
    for term in search.terms(_one_name(text), KINDS):
        if term.kind == "span" or (term.kind, term.name) == ("attribute", "text"):
            of_span &= _of_span(term)
        else:
            rows = rows.filter(_condition(term))
    if of_span:
        rows = rows.filter(Exists(Span.objects.filter(of_span, trace=OuterRef("pk"))))
    return rows


def _one_name(text: str) -> str:
    """Return a filter in which span.attributes.`a b`, as MLflow has it, is a name that the grammar knows."""
    parts: list[str] = []
    for token in search.TOKENS.finditer(text):
        part = token[0]
        if part.startswith("`") and parts and parts[-1].endswith(ATTRIBUTES):
            parts[-1] = parts[-1].removesuffix(ATTRIBUTES)
            part = f"span.`attributes.{part[1:]}"
        parts.append(part)
    return "".join(parts)


def readable(call: Call, keys: list[str]) -> list[Trace]:
    """Return the traces of these keys that the caller may read, in this order, as clients show them. Raises Refused."""
    place = {key: number for number, key in enumerate(keys)}
    return whole([row.pk for row in sorted(_readable(call, keys), key=lambda row: place[row.key])])


def whole(found: list[int]) -> list[Trace]:
    """Return the traces of these primary keys, in this order. Raises Refused for more than one answer may have."""
    rows = Trace.objects.filter(pk__in=found)
    require_small(rows)
    by_pk = rows.in_bulk()
    return [by_pk[pk] for pk in found if pk in by_pk]


def _readable(call: Call, keys: list[str]) -> list[Trace]:
    """Return the traces without what may be large."""
    rows = list(lookup.own(call).filter(key__in=keys).only("pk", "key"))
    left = set(keys) - {row.key for row in rows}
    if not left or call.caller.job_id:
        return rows
    others = Trace.objects.filter(key__in=left, project__trashed=None).exclude(user=call.caller.user_id)
    candidates = list(others.select_related("project__user").defer("tags", "metadata")[:1000])
    owners: list[Project] = list({row.project_id: row.project for row in candidates}.values())
    granted = access.readings(access.Visitor(call.user), owners) if owners else {}
    return rows + [row for row in candidates if row.project_id in granted]


def _condition(term: Term) -> Q:
    """Return the condition of a comparison. Raises WrongField."""
    if term.kind in ("feedback", "expectation"):
        return _of_assessment(term)
    if term.kind in ("tag", "metadata"):
        return _of_pair(term)
    if term.name in NUMBERS:
        number = term.number()
        found = Q(**{f"compared__{COMPARED[term.operator]}": number})
        found = ~found if term.operator == "!=" else found
        return Q(pk__in=Trace.objects.annotate(compared=NUMBERS[term.name]).filter(found).values("pk"))
    if term.name in ("status", "state"):
        return run_filter.text(F("status"), term._replace(values=tuple(_status(text) for text in term.values)))
    if term.name == "run_id" and term.operator in ("=", "!=", "in"):
        return of_runs(term)
    if term.name not in TEXTS:
        raise WrongField(f"Invalid attribute key '{term.name[:50]}' specified. Valid keys are {_known()}")
    return run_filter.text(TEXTS[term.name], term)


def _of_assessment(term: Term) -> Q:
    """Return the condition that a trace has such feedback, or such an expectation. One that has none is not unequal."""
    rows = Assessment.objects.filter(trace=OuterRef("pk"), kind=term.kind, name=term.name, valid=True)
    if term.operator == "null":
        return Q(Exists(rows)) if term.negative else ~Q(Exists(rows))
    if term.operator in ("<", "<=", ">", ">="):
        number = {f"number__{COMPARED[term.operator]}": term.number()}
        return Q(Exists(rows.annotate(number=AS_NUMBER).filter(**number)))
    same = run_filter.text(assessments.TEXT, term._replace(quoted=(True,) * len(term.values)))
    if term.operator in ("=", "!=") and not term.quoted[0]:
        equal = Q(number=term.number())
        same = same & (Q(number=None) | ~equal) if term.operator == "!=" else same | equal
    return Q(Exists(rows.annotate(number=AS_NUMBER).filter(same)))


def _status(text: str) -> str:
    return STATUSES.get(text.upper().removeprefix("TRACESTATUS."), text)


def _of_pair(term: Term) -> Q:
    """Return the condition of a tag or of metadata."""
    field = "tags" if term.kind == "tag" else "metadata"
    if term.kind == "tag" and term.name == NAME and term.operator != "null":
        return run_filter.text(F("name"), term)
    if (field, term.name) == ("metadata", SOURCE_RUN) and term.operator in ("=", "in"):
        return of_runs(term)
    present = Q(**{f"{field}__has_key": term.name})
    if term.operator == "null":
        return present if term.negative else ~present
    return present & run_filter.text(tag_value(term.name, field), term)


def of_runs(term: Term) -> Q:
    """Return the condition that a trace belongs to a run, or to one of several, or to none of them."""
    found = of_run(*term.texts())
    return ~found if term.negative or term.operator == "!=" else found


def _of_span(term: Term) -> Q:
    """Return the condition that a span has this name, type, status, text or attribute. Raises WrongField."""
    term = term._replace(name="content") if term.kind == "attribute" else term
    first, _dot, rest = term.name.partition(".")
    if first in ("attributes", "attribute") and rest:
        column = tag_value(rest, "attributes")
    elif first in SPAN_TEXTS:
        column = SPAN_TEXTS[first]
    else:
        raise WrongField(f"Invalid span key '{term.name[:50]}'. Valid keys are {[*sorted(SPAN_TEXTS), 'attributes.…']}")
    return run_filter.text(column, term)


def ordered(rows: QuerySet, orders: list[Order]) -> QuerySet:
    """Return the traces in an order, the newest first among equals. Raises WrongField."""
    keys: list = []
    for order in orders:
        column = {**NUMBERS, **TEXTS, "status": F("status")}.get(order.name) if order.kind == "attribute" else None
        if order.kind in ("tag", "metadata"):
            column = tag_value(order.name, "tags" if order.kind == "tag" else "metadata")
        if column is None:
            raise WrongField(f"Invalid order_by key '{order.name[:50]}' specified. Valid keys are {_known()}")
        keys.append(column.asc(nulls_last=True) if order.ascending else column.desc(nulls_last=True))
    return rows.order_by(*keys, "-started_ns", "-pk")


def _known() -> list[str]:
    return sorted({*NUMBERS, *TEXTS, "status", "text"})
