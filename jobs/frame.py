"""What all pages of a job share: the job of the address, and the context of templates/jobs/_frame.html."""

from __future__ import annotations

from urllib.parse import quote

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from accounts.sharing import access
from kernel.pages import why_not
from resources import retention

from . import trash
from .code import reading
from .doctor import diagnose
from .log.differences import earlier_runs
from .models import Diagnosis, Job, State
from .queue import waiting

ACTIVE = (State.CREATING, State.RUNNING)
# The pages of a job, in the order of the tabs: name of the URL, title.
TABS = (("job", _("Overview")), ("job_code", _("Code")), ("job_log", _("Log")), ("job_media", _("Media")))
OF_CLIENTS = ("job", "job_media")  # of a run that the platform has no process of


def own(request, name: str) -> Job:
    """Return the visitor's job of that name; at `/u/{owner}/…` the owner's, if the visitor may read it.

    Raises Http404.
    """
    return access.find(request, Job.objects.select_related("user", "tenant", "project"), name)


def frame(row: Job, tab: str) -> dict:
    """Return the context that the frame needs; `tab` is the URL name of the page shown."""
    diagnosis = diagnose.diagnosis_of(row) if row.state == State.ERROR else None
    return {
        "job": row,
        "diagnosis": diagnosis,
        "diagnosis_address": _script_address(row, diagnosis),
        "failure_address": _failure_address(row, diagnosis),
        # A reader of a shared job does not learn from a missing link whether its owner has run the script before.
        "earlier": not row.is_client
        and (row.state == State.ERROR or tab == "job_log")
        and (bool(row.reading) or earlier_runs(row).exists()),
        "waiting": waiting.explain(row, all_names=row.reading is not None and row.reading.audience == access.STAFF),
        "tabs": [
            {"address": access.address(row, name), "title": title, "current": name == tab}
            for name, title in TABS
            if not row.is_client or name in OF_CLIENTS
        ],
        "waits": row.state == State.CREATING and not row.reserved,
        "active": row.state in ACTIVE,
        "removals": retention.removals(row),
        "unrestorable": why_not(lambda: trash.require_project(row)) if row.trashed else "",
        "deletable": row.state in (State.FINISHED, State.ERROR) and row.trashed is None,
    }


def _script_address(row: Job, diagnosis: Diagnosis | None) -> str:
    """Return the address of the editor, at the line of the failure where it is in one of the user's own scripts."""
    own = diagnosis is not None and diagnosis.own_file
    if not row.entry and not own:
        return ""
    return reverse("script", args=[diagnosis.file if own else row.entry]) + (f"#L{diagnosis.line}" if own else "")


def _failure_address(row: Job, diagnosis: Diagnosis | None) -> str:
    """Return the address of the failure's line in the code that ran; in the editor where the code was not kept."""
    if diagnosis is None or not diagnosis.own_file:
        return ""
    kept = reading.manifest_of(row)
    if kept is None:
        return _script_address(row, diagnosis) if row.reading is None else ""
    if kept.file(diagnosis.file) is None:
        return ""
    path = quote(diagnosis.file)
    return f"{access.address(row, 'job_code')}?file={path}#{path}:L{diagnosis.line}"
