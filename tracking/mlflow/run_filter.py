"""The comparisons and the order of a search of runs, as conditions and expressions of the ORM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import (
    Case,
    CharField,
    Exists,
    F,
    FilteredRelation,
    FloatField,
    Func,
    OuterRef,
    Q,
    TextField,
    When,
)
from django.db.models import Value as Constant
from django.db.models.functions import Cast, Coalesce, NullIf, Replace
from django.db.models.lookups import Exact, GreaterThanOrEqual, In, LessThan

from jobs.models import Origin, RunInput, RunMetric, RunParam, State
from kernel.models import STOPPED
from mlflow_protocol import limits
from mlflow_protocol.reading import MAX_MS, WrongField
from mlflow_protocol.search import Order, Term
from tracking import client_runs
from tracking.runs.filters.attributes import tag_value
from tracking.runs.filters.comparing import Like

from . import lookup
from .writing import NAME, NOTE

ALIASES = {"created": "start_time", "Created": "start_time", "run name": "run_name", "Run name": "run_name",
           "Run Name": "run_name"}  # fmt: skip
KILLED = Q(state=State.ERROR, outcome__in=STOPPED)
MARKED = Q(state=State.RUNNING, system_tags__has_key=client_runs.MARKED)
STATUS = {
    "RUNNING": Q(state=State.RUNNING) & ~Q(system_tags__has_key=client_runs.MARKED),
    "SCHEDULED": Q(state=State.CREATING) | MARKED,
    "FINISHED": Q(state=State.FINISHED),
    "FAILED": Q(state=State.ERROR) & ~KILLED,
    "KILLED": KILLED,
}
NAN = Cast(Constant("NaN"), FloatField())
SHOWN_NAME = Coalesce(NullIf("title", Constant("")), Cast("name", TextField()), output_field=TextField())
RUN_ID = Replace(Cast("run_id", TextField()), Constant("-"), Constant(""))
TIMES = {"start_time": Coalesce("started", "created"), "end_time": F("ended")}
TEXTS = {
    "run_id": RUN_ID,
    "run_name": SHOWN_NAME,
    "user_id": Coalesce(
        Func(F("system_tags"), Constant("mlflow.user"), template="(%(expressions)s)", arg_joiner=" ->> ",
             output_field=TextField()),
        Cast("user__username", TextField()),
    ),
    "status": Case(*[When(condition, then=Constant(name)) for name, condition in STATUS.items()],
                   default=Constant("KILLED"), output_field=CharField()),
    "artifact_uri": Func(
        Constant("mlflow-artifacts:/"), Cast("project_id", TextField()), Constant("/"), RUN_ID, Constant("/artifacts"),
        template="(%(expressions)s)", arg_joiner=" || ", output_field=TextField(),
    ),
    "experiment_id": Cast("project_id", TextField()),
}  # fmt: skip
# Tags that every job has, unless its script has set others (`shown.tags_of`).
OF_JOBS = {
    name: Coalesce(tag_value(name, "system_tags"), Case(When(origin=Origin.JOB, then=value), output_field=TextField()))
    for name, value in {"mlflow.source.name": Cast("entry", TextField()), "mlflow.source.type": Constant("JOB")}.items()
}
DATASET = ("name", "digest", "context")
LOOKUPS = {"=": "exact", "!=": "exact", "<": "lt", "<=": "lte", ">": "gt", ">=": "gte"}


def condition(term: Term, owners: list[int]) -> Q:
    """Return the condition of a comparison. Raises WrongField."""
    match term.kind:
        case "metric":
            return _metric(term, owners)
        case "param":
            return _of_rows(RunParam.objects.filter(_of(owners), job=OuterRef("pk"), name=term.name), F("text"), term)
        case "tag":
            return _tag(term)
        case "dataset":
            return _dataset(term)
    return _attribute(term)


def _of(owners: list[int], prefix: str = "") -> Q:
    """Return the condition that a row is of one of these users, by which indexes are chosen."""
    return Q(**{f"{prefix}user": owners[0]}) if len(owners) == 1 else Q(**{f"{prefix}user__in": owners})


def _metric(term: Term, owners: list[int]) -> Q:
    if term.negative or term.operator == "null":
        raise term.wrong("IS NULL and IS NOT NULL are for tags and params")
    rows = RunMetric.objects.filter(_of(owners), job=OuterRef("pk"), name=term.name)
    return Q(Exists(rows.filter(_compared(term, "last"))))


def _compared(term: Term, column: str) -> Q:
    """Return the comparison of a column with a number. Raises WrongField."""
    number = Cast(Constant(term.number()), FloatField())
    same = Q(**{f"{column}__{LOOKUPS[term.operator]}": number})
    if term.operator == "!=":
        return ~same
    # NaN is above all numbers for PostgreSQL.
    return same & Q(**{f"{column}__lt": NAN}) if term.operator in (">", ">=") else same


def _of_rows(rows, column, term: Term) -> Q:
    """Return the condition that one of the rows has a text, or that there is any."""
    if term.operator == "null":
        return Q(Exists(rows)) if term.negative else ~Q(Exists(rows))
    return Q(Exists(rows.filter(text(column, term))))


def text(column, term: Term) -> Q:
    """Return the comparison of an expression with texts."""
    texts = term.texts()
    if term.operator == "null":
        raise term.wrong("IS NULL and IS NOT NULL are for tags and params")
    if term.operator in ("like", "ilike"):
        condition = Q(Like(column, texts[0], term.operator == "ilike"))
    else:
        condition = Q(Exact(column, Constant(texts[0])) if len(texts) == 1 else In(column, list(texts)))
    return ~condition if term.negative or term.operator == "!=" else condition


def _tag(term: Term) -> Q:
    name = term.name
    if name == NAME:
        return _nullable(SHOWN_NAME, Q(), term)
    if name == NOTE:
        return _nullable(F("notes"), ~Q(notes=""), term)
    if name == "mlflow.user":
        return _nullable(TEXTS["user_id"], Q(), term)
    if name in OF_JOBS:
        return _nullable(OF_JOBS[name], Q(system_tags__has_key=name) | Q(origin=Origin.JOB), term)
    field = "system_tags" if name.startswith(limits.SYSTEM) else "tags"
    return _nullable(tag_value(name, field), Q(**{f"{field}__has_key": name}), term)


def _nullable(column, present: Q, term: Term) -> Q:
    if term.operator == "null":
        condition = present or Q(pk__isnull=False)
        return condition if term.negative else ~condition
    return present & text(column, term)


def _dataset(term: Term) -> Q:
    if term.name not in DATASET:
        raise WrongField(f"Invalid dataset key '{term.name[:50]}' specified. Valid keys are {list(DATASET)}")
    if term.operator == "null":
        raise term.wrong("IS NULL and IS NOT NULL are for tags and params")
    return _of_rows(RunInput.objects.filter(job=OuterRef("pk")), F(term.name), term)


def _attribute(term: Term) -> Q:
    name = ALIASES.get(term.name, term.name)
    if name in TIMES:
        return time(TIMES[name], term)
    if name not in TEXTS or name == "experiment_id":
        valid = sorted({*TEXTS, *TIMES} - {"experiment_id"})
        raise WrongField(f"Invalid attribute key '{term.name[:50]}' specified. Valid keys are {valid}")
    if name == "run_id" and term.operator in ("=", "in"):
        keys = [lookup.run_key(text) for text in term.texts()]
        condition = Q(run_id__in=[key for key in keys if key is not None])
        return ~condition if term.negative else condition
    if name == "status" and term.operator in ("=", "!="):
        condition = STATUS.get(term.texts()[0], Q(pk=None))
        return ~condition if term.operator == "!=" else condition
    return text(TEXTS[name], term)


def time(column, term: Term) -> Q:
    """Return the comparison of a time, which has microseconds, with milliseconds, to which `shown` rounds it."""
    number = term.number()
    if number != number or abs(number) > MAX_MS:
        number = MAX_MS if number > 0 else 0
    begin = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(number // 1), microseconds=-500)
    end = begin + timedelta(milliseconds=1)
    at_or_after, before = Q(GreaterThanOrEqual(column, Constant(begin))), Q(LessThan(column, Constant(begin)))
    later, not_later = Q(GreaterThanOrEqual(column, Constant(end))), Q(LessThan(column, Constant(end)))
    return {
        "=": at_or_after & not_later,
        "!=": before | later,
        ">": later,
        ">=": at_or_after,
        "<": before,
        "<=": not_later,
    }[term.operator]


# --- order ------------------------------------------------------------------------------------------------------------
def keys_of(runs, terms: list[Term], orders: list[Order], owners: list[int], begin: int, end: int) -> list[int]:
    """Return the keys of the runs that meet the terms, from the place `begin` to `end` in an order.

    Raises WrongField.
    """
    bounds = [term for term in terms if _bounds(term, orders)]
    for term in terms:
        if term not in bounds:
            runs = runs.filter(condition(term, owners))
    if orders and orders[0].kind == "metric":
        # As long as there are numbers, by their index: the others, which come last, are not even read.
        keys = list(ordered(runs, orders, owners, bounds).values_list("pk", flat=True)[begin:end])
        if len(keys) == end - begin or bounds:
            return keys
    return list(ordered(runs, orders, owners).values_list("pk", flat=True)[begin:end])


def _bounds(term: Term, orders: list[Order]) -> bool:
    """Return whether a term says which part of the first key's index has all the runs."""
    first = orders[0] if orders else None
    same = first is not None and first.kind == term.kind == "metric" and first.name == term.name
    return same and term.operator in ("=", "<", "<=", ">", ">=") and term.number() == term.number()


def ordered(runs, orders: list[Order], owners: list[int], bounds: list[Term] | None = None):
    """Return the runs in an order: where they have no value, or NaN, they come last; the newest first among equals.

    `bounds`: only those that have a number of the first key, a metric, within these bounds.
    """
    keys: list = []
    for place, order in enumerate(orders):
        runs, value, group = _key(runs, order, owners, f"by{place}")
        if bounds is not None and not place:
            runs = runs.filter(*[_compared(term, "by0__last") for term in bounds], by0__last__lt=NAN)
            keys.append(value.asc() if order.ascending else value.desc())
            continue
        if group is not None:
            keys.append(group)
        keys.append(value.asc(nulls_last=True) if order.ascending else value.desc(nulls_last=True))
    if not any(ALIASES.get(order.name, order.name) == "start_time" for order in orders if order.kind == "attribute"):
        keys.append(TIMES["start_time"].desc())
    return runs.order_by(*keys, "run_id")


def _key(runs, order: Order, owners: list[int], alias: str):
    """Return the runs with what they are sorted by, that expression, and one that comes before it."""
    name = order.name
    if order.kind == "metric":
        join = FilteredRelation("summaries", condition=_of(owners, "summaries__") & Q(summaries__name=name))
        last = F(f"{alias}__last")
        odd = Case(When(Q(**{f"{alias}__last": NAN}), then=1), When(Q(**{f"{alias}__last": None}), then=2), default=0)
        return runs.annotate(**{alias: join}), last, odd
    if order.kind == "param":
        join = FilteredRelation("params", condition=_of(owners, "params__") & Q(params__name=name))
        return runs.annotate(**{alias: join}), F(f"{alias}__text"), None
    if order.kind == "tag":
        if name == NAME:
            return runs, SHOWN_NAME, None
        if name == NOTE:
            return runs, NullIf("notes", Constant("")), None
        if name == "mlflow.user":
            return runs, TEXTS["user_id"], None
        if name in OF_JOBS:
            return runs, OF_JOBS[name], None
        return runs, tag_value(name, "system_tags" if name.startswith(limits.SYSTEM) else "tags"), None
    name = ALIASES.get(name, name)
    expression = TIMES.get(name) or TEXTS.get(name)
    if order.kind != "attribute" or expression is None:
        raise WrongField(f"Invalid order_by key '{order.name[:100]}'")
    return runs, expression, None
