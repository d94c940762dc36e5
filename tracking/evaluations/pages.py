"""The pages of evaluations: datasets with their records, scorers, runs, and one run beside another."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Page, Paginator
from django.db.models import Count, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Left
from django.http import Http404, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.models import EvaluationDataset, EvaluationRecord, Job, Project, Scorer, ScorerVersion, State
from kernel.pages import Listing, attempt, page_of
from tracking.traces import lookup as traces
from tracking.traces.rows import in_time

from . import datasets, lookup, records, results

LISTING = Listing(
    heading=gettext_lazy("Evaluations"),
    about=gettext_lazy("Evaluation datasets, scorers and evaluations of MLflow's clients."),
    new="",
    none=gettext_lazy("No evaluation datasets yet"),
    hint=gettext_lazy("Call mlflow.genai.datasets.create_dataset."),
    no_match=gettext_lazy("No evaluation dataset matches."),
)
MAX_QUERY = 200  # characters of a search
MAX_SHOWN = 2000  # characters of a record's value on the page
CUT = 10 * MAX_SHOWN  # of one that is read, to be written with one field a line
SHOWN = {"inputs": gettext_lazy("Inputs"), "outputs": gettext_lazy("Outputs"),
         "expectations": gettext_lazy("Expectations")}  # fmt: skip
RUNS, SCORERS = 50, 100  # of the list
ROWS = 50  # of a page of results
EXPORTED = 200  # records that are read at once for an export
VERDICTS = {
    "improved": gettext_lazy("Improved"),
    "regressed": gettext_lazy("Regressed"),
    "error": gettext_lazy("Errors"),
}


@shareable
@require_GET
def evaluations(request):
    """Show the evaluation datasets, scorers and evaluations of the visitor, or of one project."""
    project, query = _project(request), request.GET.get("q", "").strip()[:MAX_QUERY].replace("\x00", "")
    owner = project.user if project is not None else request.user
    rows = EvaluationDataset.objects.filter(user=owner).order_by("-changed", "-pk").defer("schema")
    scorers = Scorer.objects.filter(user=owner, project__trashed=None).select_related("project")
    runs = Job.objects.filter(user=owner).exclude(state=State.DELETING).select_related("user", "project")
    if project is not None:
        rows, scorers = rows.filter(projects=project), scorers.filter(project=project)
        runs = runs.filter(project=project)
    rows = rows.filter(Q(name__icontains=query) | Q(key=query)) if query else rows
    context = {
        "listing": LISTING, "page": page_of(request, rows), "project": project, "q": query, "filtered": bool(query),
        "scorers": _with_definitions(scorers).order_by("-pk")[:SCORERS],
        "runs": results.evaluations(runs)[:RUNS],
    }  # fmt: skip
    return render(request, "tracking/evaluations.html", context)


def _with_definitions(scorers: QuerySet[Scorer]) -> QuerySet[Scorer]:
    """Return scorers with the number of their versions, and when the last one was registered and its definition."""
    last = ScorerVersion.objects.filter(scorer=OuterRef("pk")).order_by("-number")
    return scorers.annotate(
        count=Count("versions"), last=Max("versions__created"),
        definition=Subquery(last.annotate(begin=Left("serialized", MAX_SHOWN + 1)).values("begin")[:1]),
    )  # fmt: skip


def _project(request) -> Project | None:
    """Return the project of the address; what another user has is shown by project only."""
    name = request.GET.get("project", "")
    if not name and not request.page_owner:
        return None
    return access.find(request, Project.objects.filter(trashed=None).select_related("user"), name)


# --- datasets ---------------------------------------------------------------------------------------------------------
@shareable
@require_GET
def dataset(request, key: str):
    """Show an evaluation dataset and its records, or those that contain a text."""
    row = _dataset(request, key)
    query = request.GET.get("q", "").strip()[:MAX_QUERY].replace("\x00", "")
    found = EvaluationRecord.objects.filter(dataset=row).order_by("-pk")
    page, problem = _found(request, found.filter(_contains(query))) if query else (_page(request, found), "")
    if problem:
        messages.error(request, problem)
    own = row.user_id == request.user.pk and request.reading is None
    context = {
        "dataset": row, "page": page, "q": query, "own": own, "tags": sorted(row.tags.items()),
        "schema": sorted(_fields(row.schema)),
        "projects": row.projects.filter(trashed=None) if own else lookup.granted(access.visitor_of(request), row),
    }  # fmt: skip
    return render(request, "tracking/evaluation_dataset.html", context)


def _found(request, found: QuerySet[EvaluationRecord]) -> tuple[Page, str]:
    """Return the page of a search, and why there is none: then the page is empty."""
    pages: list[Page] = []

    def look() -> None:
        with in_time():
            pages.append(_page(request, found))

    problem = attempt(look)
    return (page_of(request, found.none()) if problem else pages[0]), problem


def _page(request, found: QuerySet[EvaluationRecord]) -> Page:
    """Return a page of records, each with `parts`, what is shown of it; of texts that may be large the beginning."""
    begins = {f"{name}_begin": Left(name, CUT + 1) for name in SHOWN}
    page = page_of(request, found.annotate(**begins).defer(*SHOWN, "tags", "source"))
    page.object_list = list(page.object_list)
    for record in page.object_list:
        _add_shown(record)
    return page


def _contains(query: str) -> Q:
    """Return the condition that a record contains a text, as JSON writes it, or has that id."""
    text = json.dumps(query, ensure_ascii=False)[1:-1]
    found = Q(key=query) | Q(source_id=query)
    for name in ("inputs", "expectations", "outputs", "tags"):
        found |= Q(**{f"{name}__icontains": text})
    return found


def _add_shown(record: EvaluationRecord) -> None:
    """Set what the page shows of a record: `parts`, and `trace`, the key of the trace that it was made from."""
    texts = [(title, getattr(record, f"{name}_begin")) for name, title in SHOWN.items()]
    record.parts = [(title, _pretty(text)) for title, text in texts if text not in (None, "{}")]
    record.parts = record.parts or [(SHOWN["inputs"], "{}")]
    record.trace = traces.key_of(record.source_id) if record.source_type == "TRACE" else None


def _pretty(text: str) -> str:
    """Return JSON with one field a line, cut to what the page shows."""
    if len(text) > CUT:
        return f"{text[:MAX_SHOWN]}…"
    shown = json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    shown = shown.encode("utf-8", "replace").decode()
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…"


def _fields(schema: dict | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of a schema with their types."""
    for part in ("inputs", "outputs", "expectations"):
        known = (schema or {}).get(part)
        if isinstance(known, dict):
            yield from ((f"{part}.{name}", kind) for name, kind in known.items())
        elif known:
            yield part, known


def _dataset(request, key: str) -> EvaluationDataset:
    """Return the dataset of the address: the visitor's own, or one of a project that the visitor may read."""
    owner = request.page_owner or request.user.username
    key = key.replace("\x00", "")
    rows = EvaluationDataset.objects.filter(key=key, user__username=owner.replace("\x00", ""))
    row, visitor = rows.select_related("user").first(), access.visitor_of(request)
    if row is not None and owner != request.user.username:
        shared = lookup.granted(visitor, row)
        found = None
        if shared:
            kept = Project.objects.filter(trashed=None).select_related("user")
            found = access.look_up(visitor, kept, owner, shared[0].name)
        request.reading = found.reading if found is not None else None
        row = row if found is not None else None
    if row is None and not request.page_owner:
        other = lookup.shared(visitor, key, request.user.pk)
        if other is not None:
            raise access.Elsewhere(other.user.username)
    if row is None:
        raise Http404
    return row


@shareable
@require_GET
def export(request, key: str):
    """Send all records of a dataset, a JSON object each line."""
    row = _dataset(request, key)
    answer = StreamingHttpResponse(_lines(row), content_type="application/x-ndjson")
    answer["Content-Disposition"] = f'attachment; filename="{row.key}.ndjson"'
    return answer


def _lines(row: EvaluationDataset) -> Iterator[str]:
    """Yield the records as clients read them, a line each."""
    last = 0
    while True:
        rows = EvaluationRecord.objects.filter(dataset=row, pk__gt=last).order_by("pk")
        sizes = list(rows.values_list("pk", "size")[:EXPORTED])
        page = next(iter(records.groups(sizes, datasets.ROOM, EXPORTED)), [])
        if not page:
            return
        for record in EvaluationRecord.objects.filter(pk__in=page).order_by("pk"):
            yield f"{records.written(record, row.key)}\n"
        last = page[-1]


@login_required
@require_POST
def change(request, key: str):
    """Delete the visitor's own dataset."""
    row = get_object_or_404(EvaluationDataset.objects.select_related("user"), user=request.user, key=key)
    if request.POST.get("do") != "delete":
        raise Http404
    problem = attempt(lambda: datasets.delete(row))
    if problem:
        messages.error(request, problem)
        return redirect("evaluation_dataset", key=row.key)
    messages.success(request, _("The evaluation dataset is deleted."))
    return redirect("evaluations")


# --- runs -------------------------------------------------------------------------------------------------------------
@shareable
@require_GET
def run(request, name: str):
    """Show an evaluation: what each scorer says, and how that differs from another evaluation of the project."""
    job = _run(request, name)
    new = results.read(job)
    base = _others(job).filter(name=request.GET.get("base", "").replace("\x00", "")[:200]).first()
    old = results.read(base) if base is not None else None
    if old is not None:
        results.compare(new, old)
    show = request.GET.get("show", "")
    show = show if show in VERDICTS and (old is not None or show == "error") else ""
    rows = [row for row in new.rows if not show or (row.has_error if show == "error" else show in row.verdicts)]
    page = Paginator(rows, ROWS).get_page(request.GET.get("page"))
    for row in page.object_list:
        row.shown = row.columns(new.scorers)
    context = {
        "job": job, "evaluation": new, "summaries": results.summaries(new), "page": page, "show": show,
        "base": base, "others": results.evaluations(_others(job))[:RUNS],
        "shows": [(value, word) for value, word in VERDICTS.items() if old is not None or value == "error"],
        "left": new.total - len(new.rows), "alone": sum(row.before is None for row in new.rows) if old else 0,
    }  # fmt: skip
    return render(request, "tracking/evaluation_run.html", context)


def _others(job: Job) -> QuerySet[Job]:
    """Return the other runs of the project."""
    rows = Job.objects.filter(user=job.user_id, project=job.project_id, trashed=None).exclude(state=State.DELETING)
    return rows.exclude(pk=job.pk).select_related("user", "project")


def _run(request, name: str) -> Job:
    """Return the run of the address, whose project the visitor may read."""
    owner = (request.page_owner or request.user.username).replace("\x00", "")
    rows = Job.objects.filter(user__username=owner, name=name.replace("\x00", ""), project__trashed=None)
    rows = rows.exclude(project=None)
    job = rows.exclude(state=State.DELETING).select_related("user", "project__user").first()
    if job is None:
        raise Http404
    if owner != request.user.username:
        kept = Project.objects.filter(trashed=None).select_related("user")
        project = access.look_up(access.visitor_of(request), kept, owner, job.project.name)
        if project is None or access.in_trash(job):
            raise Http404
        request.reading = project.reading
    return job
