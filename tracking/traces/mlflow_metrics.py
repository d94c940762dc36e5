"""The metrics of traces that MLflow's clients ask for: counts, latencies, tokens, cost and grades, by name or by time.

PostgreSQL computes them: percentiles are interpolated between two values, as on MLflow's servers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import (
    Aggregate,
    Avg,
    BigIntegerField,
    Case,
    Count,
    Exists,
    Expression,
    F,
    FloatField,
    Func,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    TextField,
    Value,
    When,
)  # fmt: skip
from django.db.models.functions import Cast, Coalesce, Floor, Upper

from jobs.models import Assessment, Span, Trace
from kernel.effects import READ
from mlflow_protocol import search
from mlflow_protocol.protocol import Call, Routes, effect, for_jobs
from mlflow_protocol.reading import Fields, WrongField
from mlflow_protocol.search import Term
from tracking.mlflow import lookup as projects
from tracking.mlflow import run_filter
from tracking.mlflow.searching import project_keys
from tracking.runs.filters.attributes import tag_value

from . import lookup
from .mlflow_search import AS_NUMBER, STATUSES, of_runs
from .mlflow_shown import EPOCH, STATES
from .rows import SOURCE_RUN, in_time

RESULTS, MAX_RESULTS = 1000, 1000
MAX_DIMENSIONS, MAX_AGGREGATIONS, MAX_FILTERS = 5, 10, 20
MAX_INTERVAL_S = 10 * 366 * 86_400
NS = 1_000_000_000
KINDS = {"trace": "trace", "span": "span", "assessment": "assessment"}
QUOTED = re.compile(r"\btrace\.(tag|metadata)\.`([^`]*)`")  # as MLflow has it; the grammar quotes all of a name
BUCKET = "time_bucket"
NUMBERS = ("SUM", "AVG", "MIN", "MAX", "PERCENTILE")
TIMES = ("AVG", "MIN", "MAX", "PERCENTILE")
SIMPLE = {"SUM": Sum, "AVG": Avg, "MIN": Min, "MAX": Max}
LASTED_MS = Cast(F("ended_ns") - F("started_ns"), FloatField()) / 1e6
TOKENS = Case(
    When(input_tokens=None, output_tokens=None, then=None),
    default=Coalesce("input_tokens", 0) + Coalesce("output_tokens", 0), output_field=BigIntegerField(),
)  # fmt: skip
TEXT = Func(F("value"), template="(%(expressions)s #>> '{}')", output_field=TextField())
GRADE = Case(
    When(Q(word__in=["TRUE", "YES"]), then=Value(1.0)), When(Q(word__in=["FALSE", "NO"]), then=Value(0.0)),
    default=AS_NUMBER, output_field=FloatField(),
)  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """What is aggregated, how, and by which dimensions."""

    value: Expression | F
    how: tuple[str, ...]
    by: tuple[str, ...] = ()
    distinct: bool = False


TRACE_STATUS = Case(*(When(status=own, then=Value(said)) for own, said in STATES.items()), output_field=TextField())
BY_NAME, BY_MODEL = ("trace_name",), ("span_model_name",)
OF_SPANS = ("span_name", "span_type", "span_status", "span_model_name")
METRICS: dict[str, dict[str, Metric]] = {
    "TRACES": {
        "trace_count": Metric(F("pk"), ("COUNT",), ("trace_name", "trace_status")),
        "session_count": Metric(F("session"), ("COUNT",), distinct=True),
        "latency": Metric(LASTED_MS, TIMES, BY_NAME),
        "input_tokens": Metric(F("input_tokens"), NUMBERS, BY_NAME),
        "output_tokens": Metric(F("output_tokens"), NUMBERS, BY_NAME),
        "total_tokens": Metric(TOKENS, NUMBERS, BY_NAME),
    },
    "SPANS": {
        "span_count": Metric(F("pk"), ("COUNT",), OF_SPANS),
        "latency": Metric(LASTED_MS, TIMES, ("span_name", "span_status")),
        "total_cost": Metric(F("cost"), NUMBERS, BY_MODEL),
    },
    "ASSESSMENTS": {
        "assessment_count": Metric(F("pk"), ("COUNT",), ("assessment_name", "assessment_value")),
        "assessment_value": Metric(GRADE, TIMES, ("assessment_name",)),
    },
}
DIMENSIONS: Mapping[str, Expression | F] = {
    "trace_name": F("name"), "trace_status": TRACE_STATUS,
    "span_name": F("name"), "span_type": F("type"), "span_status": Upper("status"), "span_model_name": F("model"),
    "assessment_name": F("name"), "assessment_value": Cast("value", TextField()),
}  # fmt: skip


class Percentile(Aggregate):
    function = "percentile_cont"
    template = "%(function)s(%(fraction)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()


@effect(READ)
@for_jobs
def query(call: Call) -> dict:
    """Return the values of one metric of the traces of some experiments, by dimensions and intervals of time."""
    fields = call.fields
    view = fields.text("view_type", required=True)
    if view not in METRICS:
        raise WrongField(f"view_type must be one of {list(METRICS)}, got '{view[:50]}'")
    name = fields.text("metric_name", required=True)
    if name not in METRICS[view]:
        raise WrongField(f"metric_name must be one of {list(METRICS[view])}, got '{name[:50]}'")
    metric = METRICS[view][name]
    limit, offset = search.page(fields, RESULTS, MAX_RESULTS)
    rows = _filtered(_rows(call, view), view, fields.texts("filters"))
    rows, size = _within(rows, view, fields)
    by = _dimensions(metric, fields.texts("dimensions"))
    columns = {f"by_{number}": DIMENSIONS[dimension] for number, dimension in enumerate(by)}
    if size is not None:
        columns["bucket"] = Floor(_at_ns(view) / Value(size * NS), output_field=BigIntegerField())
    values = _aggregates(metric, fields.messages("aggregations", MAX_AGGREGATIONS))
    wanted = {key: each for key, _, each in values}
    with in_time():
        if columns:
            found = rows.annotate(**columns).order_by().values(*columns).annotate(**wanted)
            page = list(found.order_by(*reversed(columns))[offset : offset + limit + 1])
        else:
            page = [rows.aggregate(**wanted)][offset:]
    points = [_point(name, row, by, size, values) for row in page[:limit]]
    answer: dict = {"data_points": [point for point in points if point is not None]}
    if len(page) > limit > 0:
        answer["next_page_token"] = search.token(offset + limit)
    return answer


def _rows(call: Call, view: str) -> QuerySet:
    """Return the rows of the experiments that the caller may read."""
    keys = project_keys(call, call.fields.texts("experiment_ids"))
    if not keys:
        raise WrongField("Missing value for required parameter 'experiment_ids'.")
    traces = lookup.own(call).filter(project__in=keys, project__trashed=None)
    if shared := projects.shared_projects(call, keys):
        traces = traces | Trace.objects.filter(project__in=list(shared))
    if view == "SPANS":
        return Span.objects.filter(trace__in=traces.values("pk"))
    if view == "ASSESSMENTS":
        rows = Assessment.objects.filter(trace__in=traces.values("pk"), valid=True).order_by()
        return rows.annotate(word=Upper(TEXT))
    return traces


def _at_ns(view: str) -> Expression | F:
    """Return the time of a row in nanoseconds: of an assessment by the platform's clock."""
    if view != "ASSESSMENTS":
        return F("started_ns")
    epoch = Func(F("created"), template="(extract(epoch FROM %(expressions)s) * 1000)", output_field=FloatField())
    return Cast(epoch, BigIntegerField()) * 1_000_000


def _within(rows: QuerySet, view: str, fields: Fields) -> tuple[QuerySet, int | None]:
    """Return the rows of the time that is asked for, and the interval in seconds. Raises WrongField."""
    begin, end = fields.time("start_time_ms"), fields.time("end_time_ms")
    size = fields.whole("time_interval_seconds", low=1, high=MAX_INTERVAL_S)
    if size is not None and (begin is None or end is None):
        raise WrongField("start_time_ms and end_time_ms are required if time_interval_seconds is set")
    for moment, of_ns, of_time in (
        (begin, "started_ns__gte", "created__gte"),
        (end, "started_ns__lte", "created__lte"),
    ):
        if moment is not None and view == "ASSESSMENTS":
            rows = rows.filter(**{of_time: EPOCH + timedelta(milliseconds=moment)})
        elif moment is not None:
            rows = rows.filter(**{of_ns: min(moment * 1_000_000, 2**63 - 1)})
    return rows, size


def _dimensions(metric: Metric, given: list[str]) -> list[str]:
    if len(given) > MAX_DIMENSIONS or set(given) - set(metric.by):
        wrong = sorted(set(given) - set(metric.by))
        raise WrongField(f"Found invalid dimension(s): {wrong[:5]}. Supported dimensions: {sorted(metric.by)}")
    return list(dict.fromkeys(given))


def _aggregates(metric: Metric, given: list[Fields]) -> list[tuple[str, str, Aggregate]]:
    """Return a column, the name of its values and its expression for each aggregation. Raises WrongField."""
    if not given:
        raise WrongField("Missing value for required parameter 'aggregations'.")
    made: list[tuple[str, str, Aggregate]] = []
    for number, one in enumerate(given):
        kind, fraction = one.text("aggregation_type", required=True), one.number("percentile_value", required=False)
        if kind not in metric.how:
            raise WrongField(
                f"Found invalid aggregation_type(s): ['{kind[:50]}']. Supported aggregation types: {sorted(metric.how)}"
            )
        if (fraction is not None) != (kind == "PERCENTILE") or not 0 <= (fraction or 0) <= 100:
            raise WrongField("Percentile value must be between 0 and 100, and is for PERCENTILE only")
        key = f"value_{number}"
        if kind == "PERCENTILE":
            made.append((key, f"P{fraction}", Percentile(metric.value, fraction=repr(fraction / 100))))
        elif kind == "COUNT":
            known = ~Q(session="") if metric.distinct else None
            made.append((key, kind, Count(metric.value, distinct=metric.distinct, filter=known)))
        else:
            made.append((key, kind, SIMPLE[kind](metric.value)))
    return made


def _filtered(rows: QuerySet, view: str, texts: list[str]) -> QuerySet:
    """Return the rows that meet each filter. Raises WrongField."""
    if len(texts) > MAX_FILTERS:
        raise WrongField(f"Invalid value for parameter 'filters': at most {MAX_FILTERS} filters")
    of_row = {"TRACES": "trace", "SPANS": "span", "ASSESSMENTS": "assessment"}[view]
    trace = OuterRef("pk") if view == "TRACES" else OuterRef("trace")
    for term in (term for text in texts for term in search.terms(QUOTED.sub(r"trace.`\1.\2`", text), KINDS)):
        condition = _condition(term)
        if term.kind == of_row:
            rows = rows.filter(condition)
        elif term.kind == "trace":
            rows = rows.filter(Exists(Trace.objects.filter(condition, pk=trace)))
        else:
            inner = Span.objects if term.kind == "span" else Assessment.objects.filter(valid=True).order_by()
            rows = rows.filter(Exists(inner.filter(condition, trace=trace)))
    return rows


def _condition(term: Term) -> Q:
    """Return the condition of a comparison with a trace, a span or an assessment. Raises WrongField."""
    first, _dot, rest = term.name.partition(".")
    if term.kind == "trace" and first in ("tag", "metadata") and rest:
        field = "tags" if first == "tag" else "metadata"
        if (field, rest) == ("metadata", SOURCE_RUN) and term.operator == "=":
            return of_runs(term)
        return Q(**{f"{field}__has_key": rest}) & run_filter.text(tag_value(rest, field), term)
    known = {"trace": ("status",), "span": ("name", "status", "type"), "assessment": ("name", "type")}[term.kind]
    if term.name not in known:
        raise WrongField(f"Invalid filter on {term.kind} '{term.name[:50]}': valid are {', '.join(known)}")
    if term.name == "status":
        own = {**STATUSES, **{status.upper(): status for status in Span.Status.values if term.kind == "span"}}
        term = term._replace(values=tuple(own.get(text.upper(), text) for text in term.values))
    return run_filter.text(F("kind" if (term.kind, term.name) == ("assessment", "type") else term.name), term)


def _point(name: str, row: dict, by: list[str], size: int | None, values: list) -> dict | None:
    """Return a data point; None for a row without a value or with a dimension that is not known."""
    dimensions = {dimension: row[f"by_{number}"] for number, dimension in enumerate(by)}
    if None in dimensions.values():
        return None
    if size is not None:
        begin = max(0, row["bucket"]) * size
        dimensions[BUCKET] = datetime.fromtimestamp(min(begin, 253_402_300_799), UTC).isoformat()
    found = {said: float(row[key]) for key, said, _ in values if row[key] is not None}
    return {"metric_name": name, "dimensions": dimensions, "values": found} if found else None


ROUTES_3: Routes = {"traces/metrics": {"POST": query}}
