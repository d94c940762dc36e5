"""Datasets in the browser: the list with its form, one dataset, the data client."""

from __future__ import annotations

import hashlib
from functools import cache

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.sharing.access import shareable
from kernel import notes
from kernel.messages import sentences
from kernel.models import history_of
from kernel.pages import (
    Listing,
    Problems,
    address,
    attempt,
    free_name,
    list_and_create,
    problems_of,
    read_form,
    retitle,
    say_trashed,
    shown_in_trash,
    why_not,
)

from . import client_build, copies, lifecycle, publishing, trash, uses, versions
from .buckets import listing as refreshing
from .buckets import rows as buckets
from .file_pages import listing, own
from .models import Dataset, State, Version
from .serializers import DatasetIn, DatasetVersionIn

HISTORY_SHOWN = 50
USES_SHOWN = 10
VERSIONS_SHOWN = 100
BUCKETS_SHOWN = 10
PUBLISHABLE_SHOWN = 30  # each is looked up among what is under way
LISTING = Listing(
    heading=gettext_lazy("Datasets"),
    about=gettext_lazy("Folders of files that jobs read. A dataset is uploaded once and then does not change."),
    new=gettext_lazy("New dataset"),
    none=gettext_lazy("No datasets yet"),
    hint=gettext_lazy("Choose files above, or use the data client."),
    no_match=gettext_lazy("No dataset matches"),
    icon="datasets",
)


# --- datasets --------------------------------------------------------------------------------------------------------
@login_required
@require_http_methods(["GET", "POST"])
def datasets(request):
    return list_and_create(
        request, Dataset.kept, LISTING, "datasets/datasets.html", states=State.choices, create=_create,
        fields=("title", "name", "size", "src", "external", "tenant"), opened_by={"new", "src"}, context=_form,
    )  # fmt: skip


def _form(request) -> dict:
    """Return what the form shows; `?src=` asks for the one of a copy, and proposes a name."""
    form, src = request.POST, request.GET.get("src", "")
    if request.method != "POST" and src:
        form = {"src": src, "name": free_name(Dataset.objects.filter(user=request.user), _word_of(src))}
    named = list(buckets.usable(request.user).values_list("name", flat=True)[:BUCKETS_SHOWN])
    return {"form": form, "of_source": "src" in form, "buckets": named, "gateway": address(request)}


def _word_of(src: str) -> str:
    """Return the last word of a source's path, without a suffix."""
    return src.rstrip("/").rpartition("/")[2].partition(".")[0]


def _create(request) -> Dataset:
    fields = read_form(request, DatasetIn, size=int, external=lambda text: text == "on")
    fields.pop("user", None)
    create = copies.create if "src" in fields else lifecycle.create_dataset
    return create(user=request.user, by=request.user.username, **fields)


@shareable
@require_http_methods(["GET", "POST"])
def dataset(request, name):
    """Show one dataset; a POST saves its notes."""
    row = own(request, name, trashed=True)
    if row.trashed is not None:
        return shown_in_trash(request, row)
    problems = Problems()
    if request.method == "POST":
        save = lambda: lifecycle.set_notes(user=request.user, name=row.name, **notes.from_page(request))  # noqa: E731
        problems = problems_of(save, ("notes",))
        if not problems:
            return redirect("dataset", name=name)
    used_by = [] if request.reading else uses.newest(row, USES_SHOWN + 1)
    refused = "" if request.reading else why_not(lambda: trash.require_free(row))
    context = {
        "dataset": row,
        **listing(request, row),
        "from_job": copies.job_of(row),
        "problems": problems,
        "notes": request.POST.get("notes", "") if problems else row.notes,
        "most_notes": notes.MAX,
        "used_by": used_by[:USES_SHOWN],
        "more_uses": len(used_by) > USES_SHOWN,
        "history": history_of(row)[:HISTORY_SHOWN],
        "versions": _versions(row, refused),
        "publishable": _publishable(request, row),
        "takes_uploads": row.external and not request.reading and buckets.may_write(row.user, row.src),
        "deletable": row.state in (State.READY, State.ERROR),
        "undeletable": refused,
        "gateway": address(request),
    }
    return render(request, "datasets/dataset.html", context, status=problems.status if problems else 200)


def _versions(row: Dataset, refused: str) -> list[Version]:
    """Return the newest versions. Where something uses the dataset, `undeletable` says what uses the version."""
    rows = list(row.versions.filter(erased=False, number__lte=row.version).order_by("-number")[:VERSIONS_SHOWN])
    used = uses.refusals_of_versions(row, [each.number for each in rows]) if refused else {}
    for each in rows:
        each.undeletable = sentences(used[each.number].problem) if each.number in used else ""
    return rows


def _publishable(request, row: Dataset) -> list[str]:
    """Return the names of the datasets that can be published as the next version."""
    if request.reading or row.external or row.state != State.READY:
        return []
    rows = Dataset.kept.filter(
        user=request.user, tenant=row.tenant_id, state=State.READY, incoming=None, external=False
    )
    rows = rows.exclude(pk=row.pk).exclude(versions__number__lt=F("version")).select_related("user").order_by("-pk")
    shown = list(rows[:PUBLISHABLE_SHOWN])
    used = uses.refusals(shown) if shown else {}
    return [each.name for each in shown if each.pk not in used]


@login_required
@require_POST
def title(request, name):
    return retitle(request, Dataset, name)


@login_required
@require_POST
def refresh(request, name):
    """List the bucket of an external dataset again."""
    row = own(request, name)
    problem = attempt(lambda: refreshing.ask(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    return redirect("dataset", name=name)


@login_required
@require_POST
def change_versions(request, name):
    """Publish another dataset as the next version (`source`), or delete an earlier one (`delete`)."""
    row, by = own(request, name), request.user.username
    if number := request.POST.get("delete"):
        given = {"number": int(number) if number.isdecimal() and len(number) < 10 else 0}
        problem = attempt(lambda: versions.delete_version(user=request.user, name=row.name, by=by, **given))
        done = _("Version %(number)s is being deleted.") % given
    else:
        fields = {"source": request.POST.get("source", ""), "notes": request.POST.get("notes", "")}
        problem = attempt(
            lambda: publishing.publish(user=request.user, name=name, by=by, **DatasetVersionIn.read(fields))
        )
        done = _("The new version is published.")
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, done)
    return redirect("dataset", name=name)


@login_required
@require_POST
def end_upload(request, name):
    """End an upload without the data client: `state` ready (all declared bytes must be stored) or error."""
    state = State.READY if request.POST.get("state") == State.READY else State.ERROR
    by = request.user.username
    row = own(request, name)
    progress = 100 if state == State.READY else row.progress
    problem = attempt(lambda: lifecycle.heartbeat(user=request.user, name=name, state=state, progress=progress, by=by))
    if problem:
        messages.error(request, problem)
    return redirect("dataset", name=name)


@login_required
@require_POST
def delete(request, name):
    row = own(request, name)
    problem = attempt(lambda: trash.trash(user=request.user, name=row.name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        say_trashed(request, row)
    return redirect("datasets")


# --- the data client -----------------------------------------------------------------------------------------------
@cache
def _client() -> tuple[bytes, str]:
    data = client_build.build()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


@require_GET
def data_client(request):
    """Send the data client: one file, the same bytes under both of its names."""
    data, tag = _client()
    if request.headers.get("If-None-Match") == tag:
        return HttpResponse(status=304, headers={"ETag": tag})
    name = request.path.rpartition("/")[2]
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(data, content_type="application/octet-stream", headers=headers)
