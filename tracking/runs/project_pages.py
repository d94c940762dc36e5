"""The list of projects, and a project's page: its board, its runs and its readme."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Manager, OuterRef, Subquery
from django.http import Http404, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs import form_values
from jobs.models import Job, Project
from jobs.summaries import labels
from kernel.names import title as title_in
from kernel.pages import Listing, attempt, number_in, page_of, safe_next, why_not
from kernel.titles import name_of

from . import changes, pages, panel_pages, panels, projects

LIVE = ("queued", "starting", "running")
LISTING = Listing(
    heading=gettext_lazy("Projects"),
    about=gettext_lazy("A project groups runs and has a board and a readme."),
    new=gettext_lazy("Create project"),
    none=gettext_lazy("No projects yet"),
    hint=gettext_lazy("The first job creates the default project."),
)


@login_required
@require_http_methods(["GET", "POST"])
def project_list(request):
    """Show the projects with the number of their runs; create one."""
    if request.method == "POST":
        created: list[Project] = []
        problem = attempt(lambda: created.append(_create(request)))
        if not problem:
            return redirect("project", name=created[0].name)
        messages.error(request, problem)
        return redirect("projects")
    in_trash = request.GET.get("trash") == "1"
    rows = Project.objects.filter(user=request.user, trashed__isnull=not in_trash)
    page = page_of(request, rows.order_by("-default", "-pk"))
    _count(page.object_list, Job.objects if in_trash else Job.kept)
    names = projects.taken(request.user, page.object_list) if in_trash else set()
    for row in page.object_list if in_trash else ():
        row.unrestorable = why_not(partial(projects.require_free_name, row, names))
    context = {
        "listing": LISTING,
        "page": page,
        "in_trash": in_trash,
        "full": why_not(lambda: projects.require_room(request.user)),
    }
    return render(request, "tracking/projects.html", context)


def _create(request) -> Project:
    given = name_of(request.POST, labels.project_name_from)
    return projects.create(request.user, **given | {"name": labels.project_name(given["name"], "name")})


def _count(shown: Sequence[Project], jobs: Manager[Job]) -> None:
    """Set of each project `runs` and `live`, how many it has, and `last`, when the newest was created."""
    newest = jobs.filter(project=OuterRef("pk")).order_by("-pk").values("created")[:1]
    keys = [row.pk for row in shown]
    last = dict(Project.objects.filter(pk__in=keys).values_list("pk", Subquery(newest)))
    counts: dict[int, Counter] = {pk: Counter() for pk in keys}
    of_user = jobs.filter(user__in={row.user_id for row in shown}, project__in=keys)
    for pk, state, n in of_user.order_by().values_list("project", "display_state").annotate(n=Count("pk")):
        counts[pk][state] = n
    for row in shown:
        row.runs, row.live = counts[row.pk].total(), sum(counts[row.pk][state] for state in LIVE)
        row.last = last[row.pk]


@shareable
@require_GET
def project(request, name: str):
    """Show a project: its board, its runs as a table, and its readme."""
    rows = Project.objects.filter(trashed=None).select_related("user")
    try:
        row = access.find(request, rows, name)
    except Http404:
        row = access.find(request, rows, f"/{name}")  # a server in front merges the slashes of such an address
    context = {
        **pages.shown(request, row.user, row),
        "project": row,
        "own": row.user == request.user,
    }
    context["hidden"] = Job.kept.filter(project=row, hidden=True).count()
    context["panels"] = panels.filled(row, context["table"])
    if context["own"]:
        context["undeletable"] = why_not(lambda: projects.require_deletable(row))
        form = panel_pages.form_of(request, row, context["offered"])
        context |= {**form, "goals": _directions(row, form["form_metrics"])}
    return render(request, "tracking/project.html", context)


def _directions(row: Project, metrics: list[str]) -> list[tuple[str, str]]:
    """Return the metrics whose direction can be chosen, with what is chosen."""
    return [(name, row.goals.get(name, "")) for name in sorted({*metrics, *row.goals})]


@login_required
@require_POST
def change(request, pk: int):
    """Change a project: name, readme, panels of its board; delete or restore it."""
    row = _own(request, pk)
    action = CHANGES.get(request.POST.get("do", ""))
    if action is None:
        raise Http404
    problem = attempt(lambda: action(request, row))
    if problem:
        messages.error(request, problem)
    if request.headers.get("X-Background"):  # a script of the page, which fetches it again; a message waits for that
        return HttpResponse(status=409 if problem else 204)
    if row.trashed:
        return redirect("projects")
    row.refresh_from_db()
    return redirect(reverse("project", args=[row.name]) if not row.trashed else "projects")


def _own(request, pk: int) -> Project:
    row = Project.objects.filter(user=request.user, pk=pk).first()
    if row is None:
        raise Http404
    return row


def _edit(request, row: Project) -> None:
    name = row.name if row.default else request.POST.get("name", "").strip()
    projects.edit(
        request.user, row.pk, name=labels.project_name(name, "name"),
        title=title_in(request.POST.get("title", row.title)),
        readme=labels.notes(request.POST.get("readme", "").replace("\r\n", "\n"), "readme"),
    )  # fmt: skip


def _delete(request, row: Project) -> None:
    gone = projects.delete(request.user, row.pk, request.user.username)
    count = Job.objects.filter(project=row, trashed=gone.trashed).count()
    pages.say_trashed_project(request, gone, count)


def _restore(request, row: Project) -> None:
    projects.restore(request.user, row.pk, request.user.username)
    messages.success(request, _("The project is restored."))


def _goals(request, row: Project) -> None:
    names_, directions = request.POST.getlist("metric"), request.POST.getlist("goal")
    for name, direction in zip(names_, directions, strict=False):
        projects.set_goal(request.user, row.pk, name, direction)


def _show_all(request, row: Project) -> None:
    changes.mark(Job.kept.filter(project=row, hidden=True), request.user, hidden=False)


CHANGES = {
    "show_all": _show_all,
    "edit": _edit,
    "delete": _delete,
    "restore": _restore,
    "goals": _goals,
    **panel_pages.CHANGES,
}


@login_required
@require_POST
def edit_run(request, name: str):
    """Change title, tags, notes, group, project, favourite mark, colour, visibility or priority of one run."""
    post, fields = request.POST, {}
    if not Job.objects.filter(user=request.user, name=name).exists():
        raise Http404

    def edit() -> None:
        if "title" in post:
            fields["title"] = title_in(post["title"])
        if "tags" in post:
            fields["tags"] = form_values.tags(post["tags"])
        if "notes" in post:
            fields["notes"] = labels.notes(post["notes"].replace("\r\n", "\n"))
        if "group" in post:
            fields["group"] = labels.group_name(post["group"].strip())
        if post.get("project"):
            fields["project"] = post["project"]
        if "favourite" in post:
            fields["favourite"] = post["favourite"] == "1"
        if "hidden" in post:
            fields["hidden"] = post["hidden"] == "1"
        if "colour" in post:
            fields["colour"] = labels.colour(number_in(post["colour"]))
        if "priority" in post:
            fields["priority"] = form_values.priority(post["priority"])
        changes.edit(request.user, name, **fields)

    problem = attempt(edit)
    if request.headers.get("X-Background"):  # the cell of a table, which shows the problem itself
        return JsonResponse({"msg": problem}, status=409) if problem else HttpResponse(status=204)
    if problem:
        messages.error(request, problem)
    return redirect(safe_next(request, reverse("job", args=[name])))
