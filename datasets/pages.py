"""Datasets in the browser: the list with its form, one dataset, and the data client to take home (contract 7)."""

from __future__ import annotations

import hashlib
from functools import cache

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from mlp.kernel import storage
from mlp.kernel.models import history_of
from mlp.kernel.pages import attempt, page_of, read_form

from . import client_build, lifecycle
from .models import Dataset, State
from .serializers import DatasetIn

FILES_SHOWN = 500


@login_required
@require_http_methods(["GET", "POST"])
def datasets(request):
    error = ""
    if request.method == "POST":
        error = attempt(lambda: _create(request))
        if not error:
            return redirect("dataset", name=request.POST["name"].strip())
    rows = Dataset.objects.filter(user=request.user).order_by("-pk")
    state = request.GET.get("state", "")
    if state in State.values:
        rows = rows.filter(state=state)
    context = {
        "page": page_of(request, rows),
        "states": State.choices,
        "state": state,
        "error": error,
        "form": request.POST,
    }
    return render(request, "datasets/datasets.html", context, status=403 if error else 200)


def _create(request) -> None:
    fields = read_form(request, DatasetIn, size=int)
    lifecycle.create_dataset(user=request.user, name=fields["name"], size=fields["size"], by=request.user.username)


@login_required
@require_GET
def dataset(request, name):
    row = Dataset.objects.filter(user=request.user, name=name).first()
    if row is None:
        raise Http404
    files = []
    for path, info in storage.files(storage.dataset_dir(request.user.username, name)):
        files.append({"path": path, "size": info.st_size})
        if len(files) > FILES_SHOWN:
            break
    context = {
        "dataset": row,
        "files": files[:FILES_SHOWN],
        "more": len(files) > FILES_SHOWN,
        "history": history_of(row)[:50],
        "deletable": row.state in (State.READY, State.ERROR),
    }
    return render(request, "datasets/dataset.html", context)


@login_required
@require_POST
def delete(request, name):
    problem = attempt(lambda: lifecycle.delete_dataset(user=request.user, name=name, by=request.user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("The dataset %(name)s is being deleted.") % {"name": name})
    return redirect("datasets")


@cache
def _client() -> tuple[bytes, str]:
    data = client_build.build()
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


@require_GET
def data_client(request):
    """The data client: one file, served under both of its names, byte for byte."""
    data, tag = _client()
    if request.headers.get("If-None-Match") == tag:
        return HttpResponse(status=304, headers={"ETag": tag})
    name = request.path.rpartition("/")[2]
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(data, content_type="application/octet-stream", headers=headers)
