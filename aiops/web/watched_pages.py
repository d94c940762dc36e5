"""The page where users choose which of their own workloads are watched, beside the administrators' watchlist."""

from __future__ import annotations

import json

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods, require_POST

from aiops import lifecycle, logstore
from aiops.judging import own_models, scope, watching
from aiops.models import ModelVersion
from aiops.training import own_training
from aiops.wire import watchlist
from kernel.errors import Fault, Refused
from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import attempt, number_in, safe_next, why_not


@login_required
@require_http_methods(["GET", "POST"])
def watched(request):
    """List the user's workloads; a POST watches one, or watches it no longer."""
    if request.method == "POST":
        problem = attempt(lambda: messages.success(request, _do(request)))
        if problem:
            messages.error(request, problem)
        return redirect("aiops_watched")
    context, status = {"rows": [], "serving": True}, 200
    try:
        context = {"rows": _rows(request.user), "serving": lifecycle.serving() is not None}
        context["own_models"] = with_versions(own_training.states(request.user))
        context["full"] = why_not(lambda: watching.require_room(request.user))
    except Fault as fault:
        context["problem"], status = translate(fault.msg), 503
    return render(request, "aiops/watched.html", context, status=status)


def with_versions(states: list[dict]) -> list[dict]:
    """Return the states of own models with their versions, newest first."""
    tenants = [state["tenant"] for state in states]
    rows = ModelVersion.objects.filter(tenant__name__in=tenants).select_related("tenant") if tenants else ()
    versions: dict[str, list[ModelVersion]] = {}
    for row in rows:
        versions.setdefault(row.tenant.name, []).append(row)
    return [{**state, "versions": versions.get(state["tenant"], [])} for state in states]


def _rows(user) -> list[dict]:
    names = scope.namespaces(user)
    owners, trained = own_models.owners(), own_models.trained()
    tenants = own_models.names_of(owners.values())
    mine = {(row.namespace, row.deployment): row for row in watching.visible(user)}
    counts = {
        row[1:3]: row[3]
        for row in logstore.get().aggregate_workloads()
        if row[0] == scope.LOCAL and (names is None or row[1] in names)
    }
    general = watching.general()
    return [
        {
            "namespace": namespace,
            "deployment": deployment,
            "lines": counts.get((namespace, deployment), 0),
            "row": mine.get((namespace, deployment)),
            "tenant": tenants[model := own_models.model_of(scope.LOCAL, namespace, owners)],
            "trained": model in trained,
            "general": (scope.LOCAL, namespace, deployment) in general,
            "key": json.dumps([namespace, deployment]),
        }
        for namespace, deployment in sorted({*mine, *counts}, key=lambda key: (key[0], -counts.get(key, 0), key[1]))
    ]


@login_required
@require_POST
def train(request):
    """Start or cancel a training of a tenant's own model (`tenant`), or activate a version of it."""
    problem = attempt(lambda: messages.success(request, _train(request)))
    if problem:
        messages.error(request, problem)
    return redirect(safe_next(request, reverse("aiops_watched")))


def _train(request) -> str:
    """Do what was asked for; return what to tell. Raises Http404, Refused, Fault."""
    tenant, wish = request.POST.get("tenant", ""), request.POST.get("do", "train")
    try:
        if wish == "cancel":
            own_training.cancel(request.user, tenant)
            return _("The training is cancelled.")
        if version := request.POST.get("version", ""):
            own_training.activate(request.user, tenant, version)
            return _("This version is now active.")
        own_training.request(request.user, tenant)
        return _("The training is queued.")
    except Missing:
        raise Http404 from None


def _do(request) -> str:
    """Do what was asked for; return what to tell. Raises Refused."""
    wish, _colon, rest = request.POST.get("do", "").partition(":")
    if wish == "watch":
        watching.watch(user=request.user, **_names(rest))
        return _("The workload is watched.")
    if wish != "unwatch":
        raise Refused("must be watch or unwatch", field="do")
    try:
        watching.unwatch(request.user, number_in(rest))
    except Missing:
        raise Refused("this workload is no longer watched")
    return _("The workload is no longer watched.")


def _names(text: str) -> dict[str, str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        names = None
    good = isinstance(names, list) and len(names) == 2 and all(isinstance(name, str) and name for name in names)
    if not good or any(len(name) > watchlist.MAX_NAME or not name.isprintable() for name in names):
        raise Refused("must be a namespace and a deployment", field="workload")
    return {"namespace": names[0], "deployment": names[1]}
