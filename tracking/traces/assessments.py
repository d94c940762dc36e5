"""Writes what is said of traces: feedback of people, programs and models, and what was expected."""

from __future__ import annotations

import json

from django.db import transaction
from django.db.models import F, Func, QuerySet, TextField, Value
from django.db.models.functions import Coalesce, Left

from jobs.models import Assessment, Trace
from kernel import sanitize
from kernel.errors import Refused
from kernel.locking import Missing, lock_row

from . import storable

MAX_ASSESSMENTS = 1000  # of one trace
MAX_VALUE = 64 << 10  # characters of a value as JSON
MAX_NAME = 250
SHOWN, SAID = 500, 2000  # characters of a value and of a rationale on pages
# A value as text: a text without quotation marks, anything else as JSON.
TEXT = Func(F("value"), template="(%(expressions)s #>> '{}')", output_field=TextField())


def add(trace: Trace, *, name: str, **fields) -> Assessment:
    """Add an assessment to a trace. Raises Refused."""
    checked = {**fields, "name": _name(name)}
    if "value" in checked:
        checked["value"] = _value(checked["value"])
    with transaction.atomic():
        row = lock_row(Trace, pk=trace.pk)
        if row is None:
            raise Missing("trace")
        if Assessment.objects.filter(trace=row).count() >= MAX_ASSESSMENTS:
            raise Refused("a trace has at most %(limit)s assessments", limit=MAX_ASSESSMENTS)
        if overridden := checked.get("overrides"):
            Assessment.objects.filter(trace=row, key=overridden).update(valid=False)
        return Assessment.objects.create(user_id=trace.user_id, trace=row, **checked)


def change(trace: Trace, key: str, **fields) -> Assessment:
    """Change an assessment. Raises Missing, Refused."""
    if "name" in fields:
        fields["name"] = _name(fields["name"])
    if "value" in fields:
        fields["value"] = _value(fields["value"])
    with transaction.atomic():
        row = lock_row(Assessment, trace=trace, key=key)
        if row is None:
            raise Missing("assessment")
        for field, value in fields.items():
            setattr(row, field, value)
        row.save()
    return row


def delete(trace: Trace, key: str) -> None:
    """Delete an assessment; one that it has replaced is valid again. Repeated calls change nothing."""
    with transaction.atomic():
        row = lock_row(Assessment, trace=trace, key=key)
        if row is None:
            return
        if row.overrides:
            Assessment.objects.filter(trace=trace, key=row.overrides).update(valid=True)
        row.delete()


def shown(rows: QuerySet[Assessment]) -> QuerySet[Assessment]:
    """Return assessments for a page: with the beginnings `shown` and `said` in place of what may be large."""
    rows = rows.annotate(shown=Left(Coalesce(TEXT, Value("null")), SHOWN + 1), said=Left("rationale", SAID + 1))
    return rows.defer("value", "error", "rationale", "metadata")


def _name(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME or sanitize.UNSTORABLE.search(name):
        raise Refused("must have 1 to %(limit)s characters", field="name", limit=MAX_NAME)
    return name


def _value(value: object) -> object:
    made = storable.attributes({"value": value}).get("value")
    if len(json.dumps(made)) > MAX_VALUE:
        raise Refused("must have at most %(limit)s characters as JSON", field="value", limit=MAX_VALUE)
    return made
