"""The pages of an application's records: the list with its filters and settings, and one record with its feedback."""

from __future__ import annotations

import json

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from datasets.models import Dataset
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import translate
from kernel.pages import app_address, attempt, free_name, number_in, page_of, problems_of
from kernel.registering import lines_of

from ..models import Application, AppRun, Record
from . import api, datasets, plan, retention, rows
from .serializers import RecordDatasetIn, RecordingIn

STATUSES = ("ok", "refused", "failed")
NUMBERS = ("days", "record_kib", "most_mib")
MAX_SHOWN = 64 << 10  # characters of a body
MODELS_SHOWN = 50


def own(request, name: str) -> Application:
    app = (
        Application.objects.filter(user=request.user, name=name, trashed=None).select_related("user", "tenant").first()
    )
    if app is None:
        raise Http404
    return app


@login_required
@require_GET
def records(request, name):
    """List the records, newest first, with filters, the settings of recording, and forms for what is done with them."""
    return _page(request, own(request, name))


def _page(request, app: Application, problems=None, **given):
    wanted = {key: request.GET.get(key, "").strip()[:100] for key in rows.FILTERS}
    try:
        found = rows.of(app, wanted)
    except Refused as refused:
        messages.error(request, translate(refused.msg))
        found = Record.objects.none()
    page = page_of(request, found)
    page.object_list = rows.with_feedback(page.object_list)
    recording = plan.of(app)
    context = {
        "app": app,
        "page": page,
        "recording": recording,
        "wanted": wanted,
        "filtered": any(wanted.values()),
        "models": sorted(set(AppRun.objects.filter(app=app).values_list("model_name", flat=True)[:MODELS_SHOWN])),
        "statuses": [("ok", _("answered")), ("refused", _("refused")), ("failed", _("failed"))],
        "forbidden": app.tenant.record_days == 0,
        "most_days": app.tenant.record_days or plan.MAX_DAYS,
        "most_kib": plan.MAX_KIB,
        "most_mib": plan.MAX_MIB,
        "formats": datasets.FORMATS,
        "base": f"{app_address(request)}/{app.user.username}/{app.name}",
        "problems": problems,
        "settings": _settings_of(recording),
        "dataset": {"name": free_name(Dataset.objects.filter(user=request.user), f"{app.name}records")},
        **given,
    }
    return render(request, "apps/records.html", context, status=problems.status if problems else 200)


def _settings_of(recording) -> dict:
    numbers = {field: getattr(recording, field) for field in NUMBERS}
    return numbers | {"percent": f"{100 * recording.share:g}", "mask": "\n".join(recording.mask)}


@login_required
@require_GET
def record(request, name, number: str):
    """Show one record: its request, its answer, and what callers said of it."""
    app = own(request, name)
    try:
        row = rows.find(app, number)
    except Missing:
        raise Http404 from None
    rows.with_feedback([row])
    sides = [
        {"title": title, "kept": getattr(row, f"{side}_kept"), "word": getattr(row, f"get_{side}_kept_display")(),
         "type": getattr(row, f"{side}_type"), "size": getattr(row, f"{side}_size"), "text": _pretty(row, side)}
        for side, title in (("input", _("Input")), ("output", _("Output")))
    ]  # fmt: skip
    return render(request, "apps/record.html", {"app": app, "record": row, "sides": sides})


def _pretty(row: Record, side: str) -> str:
    """Return the text of a body, JSON with a line for each value."""
    value = rows.value_of(row, side)
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return "" if value is None else text[:MAX_SHOWN]


@login_required
@require_GET
def download(request, name):
    """Send the records that match the filters as NDJSON."""
    try:
        return api.export(rows.of(own(request, name), request.GET), name)
    except Refused as refused:
        return HttpResponse(translate(refused.msg), status=403, content_type="text/plain; charset=utf-8")


@login_required
@require_POST
def change(request, name):
    """Do what the button `do` says: record or stop (recording), dataset (of a time range), or delete (all records)."""
    app = own(request, name)
    verbs = {"record": _record, "stop": _stop, "dataset": _dataset, "delete": _delete}
    verb = verbs.get(request.POST.get("do", ""))
    if verb is None:
        messages.error(request, _("Choose what to do."))
        return redirect("application_records", name=name)
    return verb(request, app)


def _record(request, app: Application):
    given = {field: request.POST.get(field, "").strip() for field in ("percent", "mask", *NUMBERS)}

    def save() -> None:
        values: dict = {field: _number(field, given[field]) for field in NUMBERS if given[field]}
        if given["percent"]:
            values["share"] = _share(given["percent"])
        values = RecordingIn.read({**values, "mask": lines_of(given["mask"])})
        plan.set_recording(user=app.user, name=app.name, by=request.user.username, **values)

    problems = problems_of(save, ("percent", *RecordingIn().fields))
    if problems:
        return _page(request, app, problems, settings=given)
    messages.success(request, _("Requests are recorded from now on."))
    return redirect("application_records", name=app.name)


def _number(field: str, text: str) -> int:
    if (number := number_in(text)) is None:
        raise Refused("must be a whole number", field=field)
    return number


def _share(text: str) -> float:
    try:
        percent = float(text)
    except ValueError:
        percent = 0.0
    if not 0.01 <= percent <= 100:
        raise Refused("must be a number from 0.01 to 100", field="percent")
    return percent / 100


def _stop(request, app: Application):
    problem = attempt(lambda: plan.set_recording(user=app.user, name=app.name, by=request.user.username, on=False))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("Requests are no longer recorded."))
    return redirect("application_records", name=app.name)


def _dataset(request, app: Application):
    given = {field: request.POST.get(field, "").strip() for field in ("name", "since", "until", "format")}
    made: list[Dataset] = []

    def create() -> None:
        values = RecordDatasetIn.read({field: text for field, text in given.items() if text})
        form = values.pop("format", datasets.FORMATS[0])
        made.append(datasets.create(app=app, form=form, by=request.user.username, **values))

    problems = problems_of(create, RecordDatasetIn().fields)
    if problems:
        return _page(request, app, problems, dataset=given)
    return redirect("dataset", made[0].name)


def _delete(request, app: Application):
    problem = attempt(lambda: retention.delete_all(app))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, _("All records are deleted."))
    return redirect("application_records", name=app.name)
