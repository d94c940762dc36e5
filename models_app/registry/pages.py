"""The pages of the registry: the list of registered models, and one with its versions, aliases, tags and history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Q, prefetch_related_objects
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing import access
from accounts.sharing.access import shareable
from jobs.models import RunMetric
from kernel.errors import Refused
from kernel.models import history_of
from kernel.names import title as title_in
from kernel.pages import Listing, attempt, free_name, page_of, why_not
from kernel.titles import name_of
from models_app import lifecycle
from models_app import sources as suggestions
from models_app.models import ModelVersion, RegisteredModel, Stage, State, Status
from models_app.pages import cpu_that_fits

from . import checks, comparing, prompts, reading, registered, sources, versions

HISTORY_SHOWN = 50
METRICS_SHOWN = 6
METRICS_LOOKED_AT = 2000
LISTING = Listing(
    heading=gettext_lazy("Registered models"),
    about=gettext_lazy("A registered model has numbered versions, and aliases that name one of them."),
    new=gettext_lazy("Register model"),
    none=gettext_lazy("No registered models yet"),
    hint=gettext_lazy("Register one here, or with mlflow.register_model()."),
    no_match=gettext_lazy("No model matches"),
    icon="models",
)
VERBS = {  # of the history
    "create": gettext_noop("Created"),
    "rename": gettext_noop("Renamed"),
    "version": gettext_noop("Version registered"),
    "delete version": gettext_noop("Version deleted"),
    "alias": gettext_noop("Alias"),
    "stage": gettext_noop("Stage"),
}


@login_required
@require_http_methods(["GET", "POST"])
def registered_models(request):
    """Show the user's registered models; a POST registers one."""
    if request.method == "POST":
        created: list[RegisteredModel] = []
        problem = attempt(lambda: created.append(_create(request)))
        if not problem:
            return redirect("registered_model", name=created[0].name)
        messages.error(request, problem)
        return redirect("registered_models")
    mine = RegisteredModel.objects.filter(user=request.user)
    rows, asked = reading.registered().filter(user=request.user), request.GET.get("q", "").strip()[:256]
    if asked and "\x00" not in asked:
        rows = rows.filter(Q(name__icontains=asked) | Q(title__icontains=asked))
    kind = request.GET.get("kind", "")
    if kind in ("models", "prompts"):
        of_kind = {"tags__contains": prompts.TAGS}
        rows = rows.filter(**of_kind) if kind == "prompts" else rows.exclude(**of_kind)
    page = page_of(request, rows.order_by("-updated", "-pk"))
    context = {
        "listing": LISTING,
        "kind": kind,
        "page": page,
        "q": asked,
        "any": bool(page.object_list) or mine.exists(),
        "most": checks.MAX_NAME,
        "full": why_not(lambda: registered.require_room(request.user)),
    }
    return render(request, "registry/list.html", context)


def _create(request) -> RegisteredModel:
    return registered.create(request.user, **name_of(request.POST, checks.name_from), by=request.user.username)


@shareable
@require_GET
def registered_model(request, name: str):
    """Show a registered model: its versions with the metrics of their runs, aliases, tags, description and history."""
    row = access.find(request, reading.registered(), name)
    page = page_of(request, reading.versions().filter(registered=row).order_by("-number"))
    shown = list(page.object_list)
    for version in shown:
        version.prompt = prompts.text_of(version.tags)
    own = row.reading is None
    refused = why_not(lambda: registered.require_unserved(row)) if own else ""
    context = {
        "registered": row,
        "own": own,
        "page": page,
        "versions": shown,
        "undeletable": refused,
        "metrics": _metrics(shown, refused),
        "stages": Stage.choices,
        "aliases": list(row.aliases.all()),
        "tags": sorted(row.tags.items()),
        "history": [(_(VERBS.get(entry.transition, "")), entry) for entry in history_of(row)[:HISTORY_SHOWN]],
        "sources": suggestions.of_user(request.user) if own else [],
        "deployable": set(
            ModelVersion.objects.filter(registered=row, model__state=State.READY).values_list("pk", flat=True)
        ),
        "full": why_not(lambda: versions.require_room(row)) if own else "",
        "unsteady": any(version.status == Status.PENDING for version in shown),
        "app_name": free_name(row.user.applications, row.name) or free_name(row.user.applications, "model"),
        "cpu": cpu_that_fits(row.user.tenant),
    }
    return render(request, "registry/page.html", context)


@shareable
@require_GET
def compare(request, name: str):
    """Show versions of a registered model side by side: those of `?version=1&version=2`, else the two newest."""
    row = access.find(request, reading.registered(), name)
    versions_shown = comparing.chosen(row, request.GET.getlist("version"))
    context = {"registered": row, "own": row.reading is None, "result": comparing.compare(versions_shown)}
    if len(versions_shown) == 2 and prompts.is_prompt(row.tags):
        context["lines"] = prompts.difference(*(version.tags for version in versions_shown))
        context["is_prompt"] = True
    return render(request, "registry/compare.html", context)


def _metrics(shown: list[ModelVersion], refused: str) -> list[str]:
    """Return the names of the metrics to compare; each version gets their values as `numbers`, and where the registered
    model cannot be deleted why the version cannot, as `undeletable`.
    """
    jobs = {version.job_id for version in shown if version.job_id}
    rows = list(RunMetric.objects.filter(job__in=jobs).values_list("job", "name", "last")[:METRICS_LOOKED_AT])
    common = Counter(name for _job, name, _last in rows)
    names = sorted(name for name, _count in common.most_common(METRICS_SHOWN))
    values = {(job, name): last for job, name, last in rows}
    if refused:
        prefetch_related_objects(shown, *lifecycle.checked("model__"))
    for version in shown:
        version.numbers = [values.get((version.job_id, name)) for name in names]
        version.undeletable = why_not(partial(versions.require_unserved, version)) if refused else ""
        version.deployable = version.model is not None and version.model.state == State.READY
    return names


@login_required
@require_POST
def change(request, name: str):
    """Change a registered model or one of its versions; `do` says what."""
    action = CHANGES.get(request.POST.get("do", ""))
    if action is None or not RegisteredModel.objects.filter(user=request.user, name=name).exists():
        raise Http404
    done: list[str] = []
    problem = attempt(lambda: done.append(action(request, name) or name))
    if problem:
        messages.error(request, problem)
    if not problem and action is _delete:
        messages.success(request, _("The registered model %(name)s is deleted.") % {"name": name})
        return redirect("registered_models")
    return redirect("registered_model", name=name if problem else done[0])


def _post(request, field: str) -> str:
    return request.POST.get(field, "").replace("\r\n", "\n").strip()


def _number(request) -> int:
    text = request.POST.get("version", "")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refused("must be the number of a version", field="version")
    return int(text)


def _edit(request, name: str) -> str:
    by = request.user.username
    title = title_in(request.POST["title"]) if "title" in request.POST else None
    row = registered.edit(
        request.user, name, new_name=_post(request, "name") or None, title=title,
        description=_post(request, "description"), by=by,
    )  # fmt: skip
    return row.name


def _delete(request, name: str) -> None:
    registered.delete(request.user, name, request.user.username)


def _set_tag(request, name: str) -> None:
    at = (request.user, name)
    if request.POST.get("version"):
        versions.set_tag(*at, _number(request), _post(request, "key"), _post(request, "value"), request.user.username)
    else:
        registered.set_tag(*at, _post(request, "key"), _post(request, "value"), request.user.username)


def _delete_tag(request, name: str) -> None:
    at, key = (request.user, name), request.POST.get("key", "")
    if request.POST.get("version"):
        versions.delete_tag(*at, _number(request), key, request.user.username)
    else:
        registered.delete_tag(*at, key, request.user.username)


def _add(request, name: str) -> None:
    source = _post(request, "source")
    files = sources.files_of(request.user, source)
    given = {"description": _post(request, "description"), "by": request.user.username}
    versions.create(request.user, name, files=files, source=source, **given)


def _set_alias(request, name: str) -> None:
    registered.set_alias(request.user, name, _post(request, "alias"), _number(request), request.user.username)


def _delete_alias(request, name: str) -> None:
    registered.delete_alias(request.user, name, request.POST.get("alias", ""), request.user.username)


def _stage(request, name: str) -> None:
    versions.set_stage(
        request.user, name, _number(request), request.POST.get("stage", ""), archive="archive" in request.POST,
        by=request.user.username,
    )  # fmt: skip


def _describe(request, name: str) -> None:
    text = _post(request, "description")
    versions.edit(request.user, name, _number(request), description=text, by=request.user.username)


def _delete_version(request, name: str) -> None:
    versions.delete(request.user, name, _number(request), request.user.username)


CHANGES: dict[str, Callable] = {
    "edit": _edit,
    "delete": _delete,
    "tag": _set_tag,
    "untag": _delete_tag,
    "add": _add,
    "alias": _set_alias,
    "unalias": _delete_alias,
    "stage": _stage,
    "describe": _describe,
    "drop": _delete_version,
}
