"""The traces of a list: of a user or a project, filtered and searched. Used by REST and pages."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

from django.db import OperationalError, connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Coalesce, Length, Upper
from psycopg.errors import QueryCanceled

from jobs.models import Assessment, Project, Span, Trace, TraceLink
from kernel import sanitize
from kernel.errors import Refused
from kernel.locking import Missing

from .lookup import key_of

SOURCE_RUN = "mlflow.sourceRun"
MAX_ANSWER = 32 << 20  # characters of what is large in the rows of one answer
LARGE: dict[type, tuple[str, ...]] = {
    Trace: ("tags", "metadata"),
    Span: ("attributes", "events", "resource", "message"),
    Assessment: ("value", "rationale", "metadata", "error"),
}
SEARCHED = 2000  # traces whose spans a search reads
MAX_QUERY = 200  # characters of a search
SEARCH_S = 20.0  # of a statement of a search


def of(user, project: Project | None = None, *, status: str = "", query: str = "", run: str = "") -> QuerySet[Trace]:
    """Return the user's traces, those of projects in the trash left out, the newest first; `run` is the id of a run, as
    MLflow has it, such as that of an evaluation.
    """
    rows = Trace.objects.filter(user=user, project__trashed=None).select_related("project", "user").order_by("-pk")
    if project is not None:
        rows = rows.filter(project=project)
    if run:
        rows = rows.filter(of_run(sanitize.text(run)))
    if status:
        rows = rows.filter(status=status)
    return rows.filter(_contains(rows, query)) if query else rows


def of_run(*runs: str) -> Q:
    """Return the condition that a trace belongs to one of these runs, by their ids."""
    made = reduce(operator.or_, (Q(metadata__contains={SOURCE_RUN: run}) for run in runs))
    return made | Q(pk__in=TraceLink.objects.filter(run__in=runs).values("trace"))


@contextmanager
def in_time() -> Iterator[None]:
    """Limit the time of a search, which may read the text of all spans of a user. Raises Refused."""
    try:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT set_config('statement_timeout', %s, true)", [f"{SEARCH_S * 1000:.0f}ms"])
            yield
    except OperationalError as problem:
        if not isinstance(problem.__cause__, QueryCanceled):
            raise
        raise Refused(
            "the search takes longer than %(limit)s s: search in one project, or for a name or a time as well",
            limit=f"{SEARCH_S:g}",
        ) from None


def _contains(rows: QuerySet[Trace], query: str) -> Q:
    """Return the condition that a trace, or the name or an attribute of one of its spans, contains a text, in any case.
    An id finds its trace. Spans have no index by their text, so those of the newest SEARCHED traces are read.
    """
    text = query[:MAX_QUERY].replace("\x00", "")
    found = Q(key=key_of(text) or "")
    for field in ("name", "request", "response", "model", "session", "end_user"):
        found |= Q(**{f"{field}__icontains": text})
    inside = Span.objects.filter(trace=OuterRef("pk")).annotate(said=Upper(Cast("attributes", TextField())))
    said = Q(name__icontains=text)
    for form in _forms(text):
        said |= Q(said__contains=form.upper())
    return found | Q(Exists(inside.filter(said)), pk__in=rows.values("pk")[:SEARCHED])


def _forms(text: str) -> set[str]:
    """Return how attributes in JSON have a text: as it is, and within a text that is JSON itself, where most programs
    write what is not ASCII as \\u….
    """
    inner = {text, *(json.dumps(text, ensure_ascii=ascii)[1:-1] for ascii in (False, True))}
    return {json.dumps(form, ensure_ascii=False)[1:-1] for form in inner}


def find(user, text: str) -> Trace:
    """Return the user's trace with that id. Raises Missing."""
    key = key_of(text)
    row = Trace.objects.filter(user=user, key=key).select_related("project", "user").first() if key else None
    if row is None:
        raise Missing("trace")
    return row


def require_small(rows: QuerySet) -> None:
    """Raise Refused for rows that are too large together for one answer, which is made in memory."""
    lengths = [Coalesce(Length(Cast(name, TextField())), 0) for name in LARGE[rows.model]]
    size = rows.aggregate(size=Sum(reduce(operator.add, lengths)))["size"] or 0
    if size > MAX_ANSWER:
        raise Refused("this answer has more than %(limit)s MiB; ask for fewer at once", limit=MAX_ANSWER >> 20)


def require_small_page(rows: QuerySet, limit: int, offset: int) -> None:
    """Raise Refused for a page of rows, the newest first, that is too large for one answer."""
    require_small(rows.model._default_manager.filter(pk__in=rows.order_by("-pk").values("pk")[offset : offset + limit]))


def slim(trace: Trace, most: int) -> list[Span]:
    """Return the first spans of a trace by their begin, without what makes them large."""
    rows = Span.objects.filter(trace=trace).defer("attributes", "events", "resource")
    return list(rows.order_by(F("started_ns").asc(), "pk")[:most])
