"""The pages of traces: the list, and one trace with its waterfall, its messages and feedback."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Page
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.models import Assessment, Project, Span, Trace
from kernel import after_commit
from kernel.lenient import text_of
from kernel.pages import Listing, attempt, page_of

from . import assessments, lookup, meaning, retention, rows, waterfall

LISTING = Listing(
    heading=gettext_lazy("Traces"),
    about=gettext_lazy("Requests of your programs, span by span, as OpenTelemetry and MLflow report them."),
    new="",
    none=gettext_lazy("No traces yet"),
    hint=gettext_lazy("Call mlflow.openai.autolog() or send OpenTelemetry spans to /v1/traces."),
    no_match=gettext_lazy("No trace matches."),
)
MAX_ROWS = 500  # spans of a waterfall
MAX_SHOWN = 20_000  # characters of one message or attribute
SAID = 3  # assessments of a trace in the list
MODEL_TYPES = ("CHAT_MODEL", "LLM")


@shareable
@require_GET
def traces(request):
    """Show the traces of the visitor, or of one project, which may be another user's."""
    project, query = _project(request), request.GET.get("q", "").strip()[: rows.MAX_QUERY]
    owner = project.user if project is not None else request.user
    status = request.GET.get("status", "")
    status = status if status in Trace.Status.values else ""
    run = request.GET.get("run", "")[:32].replace("\x00", "")
    found = rows.of(owner, project, status=status, query=query, run=run).defer("tags", "metadata")
    page, problem = _found(request, found) if query else (page_of(request, found), "")
    if problem:
        messages.error(request, problem)
    _add_said(page.object_list)
    context = {
        "listing": LISTING, "page": page, "project": project, "q": query, "status": status, "run": run,
        "statuses": Trace.Status.choices, "filtered": bool(query or status or run),
    }  # fmt: skip
    return render(request, "tracking/traces.html", context)


def _found(request, found: QuerySet[Trace]) -> tuple[Page, str]:
    """Return the page of a search, and why there is none: then the page is empty."""
    pages: list[Page] = []

    def look() -> None:
        with rows.in_time():
            page = page_of(request, found)
            page.object_list = list(page.object_list)
            pages.append(page)

    problem = attempt(look)
    return (page_of(request, found.none()) if problem else pages[0]), problem


def _add_said(shown: Sequence[Trace]) -> None:
    """Set of each trace `said`, the first of its feedback and expectations."""
    found: dict[int, list[Assessment]] = defaultdict(list)
    first = Window(RowNumber(), partition_by=F("trace"), order_by=F("pk").asc())
    rows_ = assessments.shown(Assessment.objects.filter(trace__in=[trace.pk for trace in shown], valid=True))
    for row in rows_.annotate(place=first).filter(place__lte=SAID).order_by("pk"):
        found[row.trace_id].append(row)
    for trace in shown:
        trace.said = found[trace.pk]


def _project(request) -> Project | None:
    """Return the project of the address; another user's traces are shown by project only."""
    name = request.GET.get("project", "")
    if not name and not request.page_owner:
        return None
    return access.find(request, Project.objects.filter(trashed=None).select_related("user"), name)


@shareable
@require_GET
def trace(request, key: str):
    """Show one trace: the waterfall of its spans, and one span with its messages and attributes."""
    row = _find(request, key)
    spans = rows.slim(row, MAX_ROWS)
    chosen = _chosen(row, spans, request.GET.get("span", ""))
    context = {
        "trace": row, "id": lookup.id_of(row.key), "rows": waterfall.rows(spans), "left": row.spans_kept - len(spans),
        "chosen": chosen, "own": request.reading is None and row.user_id == request.user.pk,
        "assessments": assessments.shown(Assessment.objects.filter(trace=row)).order_by("pk"),
        "tags": sorted(row.tags.items()), "metadata": sorted(row.metadata.items()),
    }  # fmt: skip
    if chosen is not None:
        context |= _of_span(chosen)
    return render(request, "tracking/trace.html", context)


def _find(request, text: str) -> Trace:
    """Return the trace of the address: the visitor's own, or one of a project that the visitor may read."""
    key = lookup.key_of(text)
    owner = request.page_owner or request.user.username
    rows_ = Trace.objects.filter(user__username=owner, key=key, project__trashed=None)
    row = rows_.select_related("project__user", "user").first() if key and "\x00" not in owner else None
    visitor = access.visitor_of(request)
    kept = Project.objects.filter(trashed=None).select_related("user")
    if row is not None and owner != request.user.username:
        project = access.look_up(visitor, kept, owner, row.project.name)
        request.reading = project.reading if project is not None else None
        row = row if project is not None else None
    if row is None and key and not request.page_owner:
        other = lookup.shared(visitor, key, request.user.pk)
        if other is not None:
            raise access.Elsewhere(other.user.username)
    if row is None:
        raise Http404
    return row


def _chosen(trace: Trace, spans: list[Span], key: str) -> Span | None:
    """Return the span that the address names, else the first call of a model, else the first span."""
    picked = next((span for span in spans if span.key == key), None)
    picked = picked or next((span for span in spans if span.type in MODEL_TYPES), None)
    picked = picked or next((span for span in spans if not span.parent), spans[0] if spans else None)
    if key and (picked is None or picked.key != key):
        picked = Span.objects.filter(trace=trace, key=key[:16].replace("\x00", "")).first() or picked
    return None if picked is None else Span.objects.filter(pk=picked.pk).first()


def _of_span(span: Span) -> dict:
    """Return what the page shows of one span."""
    return {
        "messages_": [(one.role, one.text[:MAX_SHOWN]) for one in meaning.messages(span.attributes, span.events)],
        "input": meaning.first_text(span.attributes, meaning.INPUTS)[:MAX_SHOWN],
        "output": meaning.first_text(span.attributes, meaning.OUTPUTS)[:MAX_SHOWN],
        "attributes": _pairs(span.attributes),
        "resource": _pairs(span.resource),
        "events": [(event["name"], _pairs(event["attributes"])) for event in span.events[:100]],
    }


def _pairs(values: dict) -> list[tuple[str, str]]:
    return [(name, text_of(value)[:MAX_SHOWN]) for name, value in sorted(values.items())]


@login_required
@require_POST
def change(request, key: str):
    """Give or delete feedback on the visitor's own trace, or delete the trace."""
    row = Trace.objects.filter(user=request.user, key=lookup.key_of(key) or "").select_related("project").first()
    action = CHANGES.get(request.POST.get("do", ""))
    if row is None or action is None:
        raise Http404
    problem = attempt(lambda: action(request, row))
    if problem:
        messages.error(request, problem)
    if request.POST["do"] == "delete" and not problem:
        messages.success(request, _("The trace is deleted."))
        return redirect(f"{reverse('traces')}?project={row.project.name}")
    return redirect("trace", key=row.key)


def _feedback(request, row: Trace) -> None:
    value = {"1": True, "0": False}.get(request.POST.get("value", ""))
    if value is None:
        raise Http404
    assessments.add(
        row, name="feedback", value=value, rationale=request.POST.get("rationale", "").strip()[:10_000],
        source=request.user.username,
    )  # fmt: skip


def _remove(request, row: Trace) -> None:
    assessments.delete(row, request.POST.get("key", ""))


def _delete(request, row: Trace) -> None:
    retention.delete(Trace.objects.filter(pk=row.pk), 1)
    after_commit.changed(request.user.username, "project", "")


CHANGES: dict[str, Callable] = {"feedback": _feedback, "remove": _remove, "delete": _delete}
