"""The watchlist with the training, and the versions of the model, in the browser. For operators."""

from __future__ import annotations

import json

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from aiops import logstore
from aiops.judging import watching
from aiops.models import ModelVersion, TrainingRun
from aiops.training import own_training, requests, versions
from aiops.wire import gpu_info, watchlist
from kernel.errors import Fault, Refused
from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import attempt, page_of

from .training_serializers import tenant_of
from .watched_pages import with_versions

WIDTH, HEIGHT = 600, 120  # of the loss curve


def _operator(request) -> None:
    if not request.user.is_administrator:
        raise PermissionDenied


@login_required
@require_http_methods(["GET", "POST"])
def watch(request):
    _operator(request)
    if request.method == "POST":
        problem = attempt(lambda: _ask(request))
        if problem:
            messages.error(request, problem)
        else:
            messages.success(request, _("The watchlist is submitted."))
        return redirect("aiops_watchlist")
    context = {"state": {}, "rows": [], "clusters": [], "cluster": request.GET.get("cluster", "")}
    context["all"] = request.GET.get("all", "")
    status = 200
    try:
        _fill(context)
    except Fault as fault:
        context["problem"], status = translate(fault.msg), 503
    run = TrainingRun.objects.filter(tenant=None).first()
    context |= {"run": run, "curve": _curve(run.losses) if run else ""}
    return render(request, "aiops/watchlist.html", context, status=status)


def _fill(context: dict) -> None:
    watched = {(row["clusterId"], row["namespace"], row["deployment"]) for row in requests.watched_rows()}
    owned = watching.owned()
    counts = {row[:3]: row[3] for row in logstore.get().aggregate_workloads()}
    rows = [
        {
            "key": json.dumps(key),
            "names": key,
            "lines": counts.get(key, 0),
            "watched": key in watched or key in owned,
            "owned": key in owned,
        }
        for key in sorted({*watched, *owned, *counts}, key=lambda key: (key[0], key[1], -counts.get(key, 0), key[2]))
    ]
    if (everything := context["all"]) in ("0", "1"):  # "select all" and "select none" of the rows shown
        shown = context["cluster"]
        rows = [{**row, "watched": everything == "1"} if shown in ("", row["names"][0]) else row for row in rows]
    context["clusters"] = sorted({row["names"][0] for row in rows})
    chosen = context["cluster"]
    context["rows"] = [row for row in rows if not chosen or row["names"][0] == chosen]
    context["kept"] = [row["key"] for row in rows if chosen and row["names"][0] != chosen and row["watched"]]
    context["state"] = requests.state()


def _ask(request) -> None:
    wish = request.POST.get("do")
    if wish == "clear":
        requests.request_training({})
        return
    chosen = watchlist.tree(_key(text) for text in request.POST.getlist("workload"))
    if not chosen:
        raise Refused("select at least one workload, or clear the watchlist")
    requests.request_training(chosen, retrain=wish == "retrain")


def _key(text: str) -> tuple[str, str, str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    if not (isinstance(names, list) and len(names) == 3 and all(isinstance(name, str) and name for name in names)):
        raise Refused("must be a cluster, a namespace and a deployment", field="workload")
    return tuple(names)


def _curve(losses: list) -> str:
    """Return the points of the loss over time, for an SVG polyline; "" for fewer than two."""
    if len(losses) < 2:
        return ""
    first, last = losses[0][0], losses[-1][0]
    top = max(loss for _at, loss in losses) or 1
    span = (last - first) or 1
    return " ".join(f"{(at - first) / span * WIDTH:.1f},{HEIGHT - loss / top * HEIGHT:.1f}" for at, loss in losses)


@login_required
@require_http_methods(["GET", "POST"])
def models(request):
    _operator(request)
    if request.method == "POST":
        problem = attempt(lambda: _serve(request.POST.get("version", ""), request.user.username))
        if problem:
            messages.error(request, problem)
        else:
            messages.success(request, _("This version is now active."))
        return redirect("aiops_models")
    context = {"page": page_of(request, ModelVersion.objects.select_related("run", "tenant"))}
    for row in context["page"]:
        row.whose = tenant_of(row)
        share = row.manifest.get("odd_share")
        row.alarms = None if share is None else 100 * share
    try:
        context["gpus"] = gpu_info.info()
        context["own_models"] = with_versions(own_training.states(request.user))
    except Fault as fault:
        context["problem"] = translate(fault.msg)
    return render(request, "aiops/models.html", context)


def _serve(version: str, by: str) -> None:
    try:
        versions.serve(version, by)
    except (Missing, ValueError) as problem:
        raise Refused("this version no longer exists") from problem
