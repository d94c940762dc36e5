"""The REST calls of traces, one class for each path."""

from __future__ import annotations

from accounts.sharing import access
from jobs.models import Assessment, Span, Trace
from kernel import after_commit
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.names import NAME
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int
from tracking.runs import changes

from . import assessments, lookup, retention, rows
from .serializers import ID, AssessmentOut, SpanOut, TraceFeedbackIn, TraceOut

QUERY = (
    ("project", str, "name of a project"),
    ("status", {"type": "string", "enum": list(Trace.Status.values)}, "only traces of this status"),
    ("run", str, "id of a run, as MLflow has it: its traces only, such as those of an evaluation"),
    ("q", str, "a text in the name, the model, the session, the messages or another attribute; or an id"),
)


class TraceView(ContractView):
    """A call for traces. Who reads a project reads its traces; only the owner changes them."""

    kind = "trace"
    segments = {"user": NAME, "trace": ID, "key": r"^a-[0-9a-f]{32}$"}
    shared: Trace | None = None

    def _owner(self, request, username: str):
        try:
            return super()._owner(request, username)
        except Missing:
            key = lookup.key_of(self.kwargs.get("trace", ""))
            if request.method not in ("GET", "HEAD") or key is None:
                raise
            row = lookup.shared(access.visitor_of(request), key, request.user.pk)
            if row is None or row.user.username != username:
                raise
            self.shared = row
            return row.user

    def row(self) -> Trace:
        """Return the trace of the path. Raises Missing."""
        return self.shared or rows.find(self.owner, self.kwargs["trace"])

    def small_page(self, queryset):
        """Return a page of rows. Raises Refused for one that is too large to be made in memory."""
        limit = query_int(self.request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        rows.require_small_page(queryset, limit, query_int(self.request, "offset", 0, 0))
        return self.page(queryset)


class TraceList(TraceView):
    calls = {"GET": Call("List traces, newest first", READ, out=TraceOut, many=True, query=QUERY)}

    def get(self, request, user):
        query = request.query_params
        if query.get("status") not in (None, *Trace.Status.values):
            raise Refused("must be one of %(choices)s", field="status", choices=", ".join(Trace.Status.values))
        project = changes.project_named(self.owner, query["project"]) if "project" in query else None
        given = {name: query.get(other, "") for name, other in (("status", "status"), ("query", "q"), ("run", "run"))}
        with rows.in_time():
            return self.small_page(rows.of(self.owner, project, **given))


class TraceDetail(TraceView):
    calls = {
        "GET": Call("Get a trace", READ, out=TraceOut),
        "DELETE": Call("Delete a trace with its spans and its feedback", DESTROY),
    }

    def get(self, request, user, trace):
        return self.answer(self.row())

    def delete(self, request, user, trace):
        row = self.row()
        retention.delete(Trace.objects.filter(pk=row.pk), 1)
        after_commit.changed(self.owner.username, "project", "")
        return self.answer()


class TraceSpans(TraceView):
    calls = {"GET": Call("List the spans of a trace, those received last first", READ, out=SpanOut, many=True)}

    def get(self, request, user, trace):
        return self.small_page(Span.objects.filter(trace=self.row()))


class TraceFeedback(TraceView):
    calls = {
        "GET": Call("List feedback and expectations, newest first", READ, out=AssessmentOut, many=True),
        "POST": Call("Give feedback on a trace", SUBMIT, body=TraceFeedbackIn, out=AssessmentOut, status=201),
    }

    def get(self, request, user, trace):
        return self.small_page(Assessment.objects.filter(trace=self.row()))

    def post(self, request, user, trace):
        return self.answer(assessments.add(self.row(), source=request.user.username, **self.body()))


class TraceFeedbackDetail(TraceView):
    calls = {"DELETE": Call("Delete feedback or an expectation", DESTROY)}

    def delete(self, request, user, trace, key):
        assessments.delete(self.row(), key)
        return self.answer()
