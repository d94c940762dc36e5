"""How the requests of an application are recorded: what its owner sets, what its tenant allows, what its process gets.

The gateway sends the plan with each request (`header`), so a change holds within a second and no run is restarted. The
process draws the sample, masks and cuts (serving/recorder.py); collecting.py stores.
"""

from __future__ import annotations

import json
import re

from accounts import notices
from kernel import after_commit
from kernel.errors import Refused
from kernel.locking import locked
from kernel.messages import Message
from kernel.models import record_change
from resources.models import Tenant

from ..models import Application, AppRun, Recording

HEADER = "X-App-Record"
SET = ("share", "days", "mask", "record_kib", "most_mib")
MAX_DAYS, MAX_KIB, MAX_MIB = 365, 64, 10_240
MAX_MASKS, MAX_MASK, MAX_MASKS_BYTES = 30, 100, 1000
FIELD = re.compile(r"[^\x00-\x1f$.\[\]'\"][^\x00-\x1f.\[\]'\"]*")
PATH = re.compile(r"\$(\.[^\x00-\x1f.\[\]'\"]+|\[(\d{1,6}|\*)\]|\['[^\x00-\x1f'\"]+'\])+")


def set_recording(
    *, user, name: str, by: str, share: float | None = None, days: int | None = None, mask: list[str] | None = None,
    record_kib: int | None = None, most_mib: int | None = None, on: bool = True,
) -> Recording:  # fmt: skip
    """Record the requests of an application from now on, or with `on` False no longer; what is not given stays as it
    was. Its gateway and its runs know it within a second.

    `share` is from 0 to 1, `record_kib` the most that is kept of a body, `most_mib` of all records; beyond that the
    oldest are deleted. Raises Missing; Refused, also where the tenant allows no records, or fewer days.
    """
    given = {"share": share, "days": days, "mask": mask, "record_kib": record_kib, "most_mib": most_mib}
    values = {field: value for field, value in given.items() if value is not None}
    if mask is not None:
        values["mask"] = checked(mask)
    with locked(Application, user=user, name=name) as app:
        row = Recording.objects.filter(app=app).first() or Recording(app=app)
        for field, value in values.items():
            setattr(row, field, value)
        if on:
            _require_allowed(app.tenant, row, days)
            # The runs first, as collecting.py locks them.
            AppRun.objects.filter(app=app, ended=None, records__isnull=True).update(records={})
        row.on = on
        row.save(update_fields=None if row.pk is None else ["on", *SET])  # what is counted may change meanwhile
        reason = Message("requests are no longer recorded")
        if on:
            reason = Message("%(percent)s %% of the requests are recorded, for %(days)s days",
                             percent=f"{100 * row.share:g}", days=row.days)  # fmt: skip
        record_change(app, transition="recording", source=app.state, target=app.state, by=by, reason=reason)
        after_commit.changed(app.user.username, "application", app.name)
        notices.tell(app.user, Message("%(by)s changed the recording of requests to the application %(app)s.",
                                       by=notices.name_of(by), app=app.name))  # fmt: skip
    return row


def _require_allowed(tenant: Tenant, row: Recording, asked: int | None) -> None:
    """Raise Refused where the tenant allows no records, or not for so long; days that nobody has asked for are cut."""
    most = tenant.record_days
    if most == 0:
        raise Refused("the tenant %(tenant)s does not allow requests to be recorded", field="share", tenant=tenant.name)
    if most is not None and row.days > most:
        if asked is not None:
            raise Refused("the tenant %(tenant)s allows records to be kept for at most %(days)s days",
                          field="days", tenant=tenant.name, days=most)  # fmt: skip
        row.days = most


def checked(mask: list[str]) -> list[str]:
    """Return the fields and paths to mask, each once. Raises Refused."""
    for text in mask:
        if len(text) > MAX_MASK or not (PATH if text.startswith("$") else FIELD).fullmatch(text):
            raise Refused("%(mask)s is neither the name of a field nor a path such as $.user.email or "
                          "$.messages[*].content", field="mask", mask=text[:MAX_MASK])  # fmt: skip
    mask = list(dict.fromkeys(mask))
    if len(mask) > MAX_MASKS or len(json.dumps(mask)) > MAX_MASKS_BYTES:
        raise Refused("at most %(limit)s masks are allowed, with %(most)s characters together",
                      field="mask", limit=MAX_MASKS, most=MAX_MASKS_BYTES)  # fmt: skip
    return mask


def header(app: Application, shadow: int = 0) -> str:
    """Return what the application's process gets with each request; "" where nothing is recorded, and nothing copied.
    The rows of its recording and its tenant are read. `shadow`: the percent of the requests that are copied.
    """
    row = getattr(app, "recording", None)
    found: dict = {"share": 0, "bytes": 0, "mask": []}
    recorded = row is not None and row.on and app.tenant.record_days != 0
    if recorded:
        found = {"share": row.share, "bytes": row.record_kib << 10, "mask": row.mask}
    if shadow:
        found["shadow"] = shadow / 100
    return json.dumps(found, separators=(",", ":")) if recorded or shadow else ""


def kept_days(row: Recording) -> int:
    """Return for how many days records are kept; the application and its tenant are read."""
    most = row.app.tenant.record_days
    return row.days if most is None else min(row.days, most)


def of(app: Application) -> Recording:
    """Return how an application is recorded; a row that is not stored where that was never set."""
    return Recording.objects.filter(app=app).first() or Recording(app=app)
