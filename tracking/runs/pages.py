"""The table of runs on pages: of all runs and of a project; bulk actions with undo, saved views, exports."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, QueryDict, StreamingHttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.http import require_GET, require_POST

from jobs import form_values, states, trash
from jobs.models import Job, Project
from jobs.pages import EPOCH, projects_of, say_trashed, unchanged, undo_tag
from jobs.summaries import labels
from kernel.errors import Refused
from kernel.messages import translate
from kernel.pages import attempt, number_in, safe_next, why_not

from . import changes, columns, exports, filters, goals, groups, names, projects, selection, views
from .table import Table

NAMES_OFFERED = 200  # arguments and metrics each, in the choice of columns
MAX_COMPARED = 50
SORTABLE_FIRST = {"created", "started", "ended", "duration", "progress"}  # these are sorted descending first


def shown(request, user, project: Project | None = None) -> dict:
    """Return the context of templates/tracking/_runs.html: the table of the address, or the error in its filter."""
    own = user == request.user
    table = Table(user, request.GET, project, reads=not own)
    context = {
        "table": table,
        "project": project,
        "own": own,
        "words": states.WORDS,
        "views": views.views_of(user, project) if own else [],
        "views_full": why_not(lambda: views.require_room(user)) if own else "",
        "query": table.kept_query(),
        "columns": table.columns,
    }
    try:
        grouped = groups.groups_of(table) if table.by else None
        page = None if grouped else table.page()
        context |= {"groups": grouped, "page": page, "counts": _counts(table)}
    except filters.FilterError as problem:
        context |= {"problem": problem, "place": _place(table.filter, problem.column), "counts": [], "page": None}
    context["offered"] = choices(user, table)
    context["ambiguous"] = table.ambiguous.items()
    context["heads"] = [_head(column, table) for column in table.columns]
    context["others"] = projects_of(user) if own else []
    return context


def _head(column: columns.Column, table: Table) -> dict:
    """Return a column's header: its current order, the order that a click requests, and a metric's direction."""
    now = table.order
    current = now.column.key == column.key
    descending = not now.descending if current else column.key in SORTABLE_FIRST
    return {
        "column": column,
        "sort": ("-" if descending else "") + column.key,
        "aria": ("descending" if now.descending else "ascending") if current else "",
        "goal": goals.best_of(column.name, table.goals) if column.is_metric else "",
    }


def _counts(table: Table) -> list[tuple[str, object, int]]:
    counts = table.counts
    return [
        (word, label, counts.get(word, 0))
        for word, label in states.WORDS.items()
        if word in counts or word == table.state
    ]


def _place(text: str, column: int) -> dict[str, str]:
    """Return the parts of a filter before, at and after the error."""
    flat = text.replace("\n", " ").replace("\r", " ")
    begin = max(0, column - 1)
    return {
        "before": flat[max(0, begin - 200) : begin],
        "at": flat[begin : begin + 1] or " ",
        "after": flat[begin + 1 :][:200],
    }


def choices(user, table: Table) -> dict:
    """Return the columns that can be selected."""
    chosen = {column.key for column in table.columns}
    params, metrics = names.known(user, table.shared, NAMES_OFFERED)
    fixed = [(key, title, key in chosen) for key, title in columns.FIXED.items() if key != "name"]
    arguments = [(f"param:{name}", name, f"param:{name}" in chosen) for name in params]
    return {
        "lists": [(_("Attributes"), fixed), *([(_("Arguments"), arguments)] if arguments else [])],
        "params": [(name, f"param:{name}" in chosen) for name in params],
        "metrics": [(name, _statistics(name, chosen)) for name in metrics],
    }


def _statistics(name: str, chosen: set[str]) -> list[tuple[str, str, bool]]:
    return [(f"{kind}:{name}", title, f"{kind}:{name}" in chosen) for kind, title in columns.STATISTICS.items()]


# --- actions ---------------------------------------------------------------------------------------------------------
@login_required
@require_POST
def act(request):
    """Apply an action to the selected runs, or to all that match."""
    back = safe_next(request, reverse("jobs"))
    names_ = request.POST.getlist("job")
    everything = request.POST.get("all") == "1"
    if not names_ and not everything:
        messages.error(request, _("Select at least one run."))
        return redirect(back)
    action = ACTIONS.get(request.POST.get("do", ""))
    if action is None:
        raise Http404
    if action is _compare:
        return _compare(request, names_, everything)
    problem = attempt(lambda: action(request, _selected(request, names_, everything)))
    if problem:
        messages.error(request, problem)
    return redirect(back)


def _selected(request, names_: list[str], everything: bool):
    if not everything:
        return selection.named(request.user, names_)
    table = _table(request)
    return selection.matching(request.user, table.query, table.project)


def _table(request) -> Table:
    """Return the table that the form is in."""
    return Table(request.user, QueryDict(request.POST.get("query", "")), _project_of(request))


def _project_of(request) -> Project | None:
    """Return the project whose table the form is in; None for the table of all runs. Raises Missing."""
    pk = number_in(request.POST.get("project", ""))
    return None if pk is None else projects.find(request.user, pk)


def _compare(request, names_: list[str], everything: bool):
    if everything:
        table = _table(request)
        names_ = [row.job.name for row in table.page(MAX_COMPARED + 1).rows]
    if len(names_) > MAX_COMPARED:
        messages.info(request, _("Only the first %(limit)s runs are compared.") % {"limit": MAX_COMPARED})
    query = QueryDict(mutable=True)
    query.setlist("job", names_[:MAX_COMPARED])
    return redirect(f"{reverse('compare')}?{query.urlencode()}")


def _tag(request, runs) -> None:
    add = form_values.tags(request.POST.get("tags", ""))
    if not add:
        raise Refused("enter at least one tag", field="tags")
    _report(request, changes.tag(runs, request.user, add=add))


def _untag(request, runs) -> None:
    _report(request, changes.tag(runs, request.user, add={}, remove=form_values.tags(request.POST.get("tags", ""))))


def _favourite(request, runs) -> None:
    _report(request, changes.mark(runs, request.user, favourite=True))


def _plain(request, runs) -> None:
    _report(request, changes.mark(runs, request.user, favourite=False))


def _show(request, runs) -> None:
    _report(request, changes.mark(runs, request.user, hidden=False))


def _hide(request, runs) -> None:
    _report(request, changes.mark(runs, request.user, hidden=True))


def _only(request, runs) -> None:
    project = _project_of(request)
    if project is None:
        raise Http404
    _report(request, changes.show_only(runs, Job.kept.filter(project=project), request.user))


def _move(request, runs) -> None:
    _report(request, changes.move(runs, request.user, request.POST.get("to", "")))


def _cancel(request, runs) -> None:
    done = changes.cancel(runs, request.user.username)
    text = ngettext("%(n)d run cancelled.", "%(n)d runs cancelled.", done.changed) % {"n": done.changed}
    messages.success(request, f"{text} {unchanged(done.left)}" if done.left else text)


def _trash(request, runs) -> None:
    done, at = trash.trash(runs, request.user, request.user.username)
    say_trashed(request, done.changed, done.left, at)


def _restore(request, runs) -> None:
    _report(request, trash.restore(runs, request.user, request.user.username))


def _delete(request, runs) -> None:
    done = trash.delete(runs, request.user.username)
    text = ngettext("%(n)d run is being deleted.", "%(n)d runs are being deleted.", done.changed) % {"n": done.changed}
    messages.success(request, f"{text} {unchanged(done.left)}" if done.left else text)


ACTIONS = {
    "compare": _compare, "tag": _tag, "untag": _untag, "favourite": _favourite, "plain": _plain, "move": _move,
    "show": _show, "hide": _hide, "only": _only,
    "cancel": _cancel, "trash": _trash, "restore": _restore, "delete": _delete,
}  # fmt: skip


def say_trashed_project(request, project: Project, count: int) -> None:
    """Add a message that a project was moved to the trash with its runs, and a button that restores it."""
    text = ngettext(
        "The project %(name)s and %(n)d run moved to the trash.",
        "The project %(name)s and %(n)d runs moved to the trash.",
        count,
    ) % {"name": project.shown_name, "n": count}
    messages.success(request, text, extra_tags=undo_tag(project.trashed))


def _report(request, done: changes.Done) -> None:
    text = ngettext("%(n)d run changed.", "%(n)d runs changed.", done.changed) % {"n": done.changed}
    messages.success(request, f"{text} {unchanged(done.left)}" if done.left else text)


@login_required
@require_POST
def undo(request):
    """Restore what was moved to the trash at one time: runs, and a project if it was moved with them."""
    microseconds = number_in(request.POST.get("at", ""))
    if microseconds is None:
        raise Http404
    at = EPOCH + timedelta(microseconds=microseconds)
    project = Project.objects.filter(user=request.user, trashed=at).first()
    by = request.user.username
    if project is not None:
        problem = attempt(lambda: projects.restore(request.user, project.pk, by))
        messages.error(request, problem) if problem else messages.success(request, _("The project is restored."))
    else:
        done = trash.restore(Job.objects.filter(user=request.user, trashed=at), request.user, by)
        if done.changed:
            text = ngettext("%(n)d run restored.", "%(n)d runs restored.", done.changed) % {"n": done.changed}
            messages.success(request, text)
        else:
            messages.error(request, _("Nothing to restore: these runs are not in the trash any more."))
    return redirect(safe_next(request, reverse("jobs")))


# --- views and exports -----------------------------------------------------------------------------------------------
@login_required
@require_POST
def save_view(request):
    project, view = _project_of(request), number_in(request.POST.get("view", ""))
    back = safe_next(request, reverse("jobs"))

    def save() -> None:
        if request.POST.get("do") == "delete":
            if view is None or not views.delete(request.user, view):
                raise Refused("this view no longer exists")
            return
        name = labels.project_name(request.POST.get("view_name", "").strip()[:100], "name")
        views.save(request.user, name=name, query=request.POST.get("query", "")[:8000], project=project)
        messages.success(request, _("View %(name)s saved.") % {"name": name})

    problem = attempt(save)
    if problem:
        messages.error(request, problem)
    return redirect(back)


@login_required
@require_GET
def export(request, form: str):
    """Send all runs that match, with the chosen columns as CSV or with everything as JSON, as they are read."""
    pk = request.GET.get("in", "")
    project = None
    if pk:
        project = Project.objects.filter(user=request.user, pk=number_in(pk)).first()
        if project is None:
            raise Http404
    table = Table(request.user, request.GET, project)
    try:
        lines = exports.as_csv(table) if form == "csv" else exports.as_json(table)
    except filters.FilterError as problem:
        messages.error(request, translate(problem.msg))
        return redirect("jobs")
    headers = {"Content-Disposition": f'attachment; filename="runs.{form}"', "X-Content-Type-Options": "nosniff"}
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    return StreamingHttpResponse(lines, content_type=kind, headers=headers)
