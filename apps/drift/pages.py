"""The page of an application's drift: its features against the reference, the windows over time, the settings."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_POST

from datasets.models import Dataset
from datasets.models import State as DatasetState
from kernel.errors import Refused
from kernel.pages import attempt, number_in, problems_of
from kernel.registering import lines_of

from ..models import Application, DriftCheck, DriftWindow
from ..records.pages import own
from . import charts, columns, comparing, plan
from .serializers import DriftIn

WINDOWS_SHOWN, DATASETS_SHOWN = 60, 200
SHOWN_AT = "%Y-%m-%dT%H:%M"
KINDS = {
    columns.NUMERIC: gettext_lazy("numeric"), columns.CATEGORY: gettext_lazy("category"),
    columns.TEXT: gettext_lazy("text"), columns.SKIPPED: gettext_lazy("not compared"),
}  # fmt: skip
WHY = {
    columns.IDS: gettext_lazy("not compared: nearly every value differs"),
    columns.DATES: gettext_lazy("not compared: dates"),
    columns.EMPTY: gettext_lazy("not compared: the reference has no values"),
    columns.CHOSEN: gettext_lazy("not compared: by your choice"),
    comparing.ABSENT: gettext_lazy("not compared: no request has it"),
}


@login_required
@require_GET
def drift(request, name):
    """Show a window's features, the windows over time, and the form; `?window=` chooses the window."""
    return _page(request, own(request, name))


def _page(request, app: Application, problems=None, **given):
    check = plan.of(app)
    newest = DriftWindow.objects.filter(app=app).order_by("-begin")
    windows = list(newest.defer("features")[:WINDOWS_SHOWN])[::-1]
    shown = _chosen(request, newest)
    ready = Dataset.kept.filter(user=app.user, state=DatasetState.READY).order_by("-pk")
    context = {
        "app": app,
        "check": check,
        "windows": charts.over_time(windows),
        "width": max(len(windows), 1) * charts.STEP,
        "high": charts.TALL,
        "shown": shown,
        "features": [_shown(each) for each in shown.features] if shown is not None else [],
        "wide": charts.WIDTH,
        "tall": charts.HEIGHT,
        "datasets": list(ready.values_list("name", "title")[:DATASETS_SHOWN]),
        "lengths": DriftCheck.Window.choices,
        "records": app.records.exists(),
        "problems": problems,
        "settings": _settings_of(check),
        **given,
    }
    return render(request, "apps/drift.html", context, status=problems.status if problems else 200)


def _chosen(request, newest) -> DriftWindow | None:
    """Return the window that is asked for, else the newest that was compared."""
    number = number_in(request.GET.get("window", ""))
    found = newest.filter(pk=number).first() if number is not None and 0 < number < 2**63 else None
    return found or newest.exclude(features=[]).first() or newest.first()


def _shown(feature: dict) -> dict:
    """Return a feature as the page has it: numbers as texts."""
    shares = {
        key: f"{100 * feature[key]:.1f} %" for key in ("missing", "missing_before", "new", "outside") if key in feature
    }
    shares["odd"] = shares.pop("new", None) or shares.pop("outside", "")
    numbers = {key: f"{feature[key]:.3g}" for key in ("q", "distance", "psi", "low", "high") if key in feature}
    words = {"kind": KINDS.get(feature["kind"], ""), "why": WHY.get(feature["why"], "")}
    return {"name": feature["name"], "side": feature["side"], "drifted": feature["drifted"], "figures": "q" in feature,
            "bars": charts.distributions(feature), **shares, **numbers, **words}  # fmt: skip


def _settings_of(check: DriftCheck) -> dict:
    return {
        "dataset": check.dataset, "target": check.target, "window": check.window, "least": check.least,
        "alpha": f"{check.alpha:g}", "distance": f"{check.distance:g}", "percent": f"{100 * check.share:g}",
        "since": check.since.strftime(SHOWN_AT) if check.since else "",
        "until": check.until.strftime(SHOWN_AT) if check.until else "",
        "kinds": "\n".join(f"{name}={kind}" for name, kind in check.kinds.items()),
    }  # fmt: skip


@login_required
@require_POST
def change(request, name):
    """Do what the button `do` says: save, which turns it on, or stop."""
    app = own(request, name)
    key = {"user": app.user, "name": app.name, "by": request.user.username}
    if request.POST.get("do") == "stop":
        problem = attempt(lambda: plan.set_check(**key, on=False))
        if problem:
            messages.error(request, problem)
        else:
            messages.success(request, _("Drift is no longer looked for."))
        return redirect("application_drift", name=app.name)
    fields = ("dataset", "target", "since", "until", "window", "least", "alpha", "distance", "percent", "kinds")
    given = {field: request.POST.get(field, "").strip() for field in fields}
    problems = problems_of(
        lambda: plan.set_check(**key, **DriftIn.read(_values(given))), (*DriftIn().fields, "percent")
    )
    if problems:
        return _page(request, app, problems, settings=given)
    messages.success(request, _("Drift is looked for from now on."))
    return redirect("application_drift", name=app.name)


def _values(given: dict[str, str]) -> dict:
    """Return the fields of the form as REST has them. Raises Refused."""
    values: dict = {field: given[field] for field in ("dataset", "since", "until", "window") if given[field]}
    values |= {"target": given["target"], "kinds": _kinds(given["kinds"])}
    for field in ("least", "alpha", "distance"):
        if given[field]:
            values[field] = _number(field, given[field], int if field == "least" else float)
    if given["percent"]:
        values["share"] = _number("percent", given["percent"], float) / 100
        if not 0 <= values["share"] <= 1:
            raise Refused("must be a number from %(low)s to %(high)s", field="percent", low=0, high=100)
    return values


def _number(field: str, text: str, kind):
    try:
        return kind(text)
    except ValueError:
        raise Refused("must be a number", field=field) from None


def _kinds(text: str) -> dict[str, str]:
    kinds = {}
    for line in lines_of(text):
        name, equals, kind = line.rpartition("=")
        if not equals or not name:
            raise Refused("must have lines such as input.zip=category", field="kinds")
        kinds[name.strip()] = kind.strip()
    return kinds
