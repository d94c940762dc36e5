"""The Metrics-manager's REST calls. Live metrics come by the websocket in tracking.metrics.consumers."""

from __future__ import annotations

import contextlib
import json
import math
import re

from django.conf import settings
from rest_framework.exceptions import ValidationError

from jobs.api import JobView
from jobs.auth import message_prefix, require_own_job
from jobs.models import Job, Metrics
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.errors import Refused
from kernel.fields import StrictSerializer
from kernel.views import Call

from . import recording, resending
from .serializers import MetricsIn, MetricsOut
from .series import MEASURED

MAX = 1000
MESSAGE_ID_LENGTH = 100


class JobMetricsRows(JobView):
    calls = {"GET": Call("List stored metrics, newest first", READ, out=MetricsOut, many=True)}

    def get(self, request, user, name):
        job = self.job(name)
        rows = Metrics.objects.filter(job=job)
        page = self.page(_Rows(rows, user, name))
        return page


class _Rows:
    """A queryset whose slices are JobMetrics objects."""

    def __init__(self, queryset, user: str, name: str):
        self.queryset, self.user, self.name = queryset, user, name

    def order_by(self, _field):
        return _Rows(self.queryset.order_by("-seq"), self.user, self.name)

    def count(self) -> int:
        return self.queryset.count()

    def __getitem__(self, part):
        return [recording.as_object(row, self.user, self.name) for row in self.queryset[part]]


class JobMetricsReport(JobView):
    """One object, or a list of up to 1000. With X-Message-Id, ending in a counter, or Idempotency-Key, a repeated
    report counts once; so does one without that is sent again after a 503.

    A row whose accuracy or loss is NaN or infinite refuses the report, by the field's name. Such rows are kept as named
    values all the same, so that charts show what has happened.
    """

    accepted = frozenset({"user", "job"})
    reads_nan = True  # so that the refusal names the field
    calls = {"POST": Call("Report metrics", SUBMIT, body=MetricsIn, one_or_many=True)}

    def post(self, request, user, name):
        try:
            rows = elements_of(MetricsIn, request.data, user, name)
        except (Refused, ValidationError):
            with contextlib.suppress(Refused, ValidationError):  # something else is wrong with it, too
                self._keep_not_finite(request, user, name)
            raise
        job = self.job(name)
        require_own_job(request, job)
        if job.is_live and rows:
            check_room(job)
            bodies = [json.dumps({"user": user, "name": name, **row}).encode() for row in rows]
            _publish(request, job, recording.subject(user, name), bodies)
        return self.answer()

    def _keep_not_finite(self, request, user: str, name: str) -> None:
        """Publish the rows with a NaN or an infinity as values, if nothing else is wrong with the report."""
        given = request.data if isinstance(request.data, list) else [request.data]
        bad = [row for row in given if isinstance(row, dict) and any(map(_is_not_finite, map(row.get, MEASURED)))]
        if not bad:
            return
        made_finite = [
            {key: 0 if key in MEASURED and _is_not_finite(value) else value for key, value in row.items()}
            if isinstance(row, dict)
            else row
            for row in given
        ]
        elements_of(MetricsIn, made_finite, user, name)
        job = self.job(name)
        require_own_job(request, job)
        if not job.is_live or job.values_kept >= settings.JOB_VALUES:
            return
        values = [{"step": row["epoch"], "values": {key: row[key] for key in MEASURED if key in row}} for row in bad]
        bodies = [json.dumps([row]).encode() for row in values]
        _publish(request, job, recording.values_subject(user, name), bodies, "bad.")


def _publish(request, job: Job, target: str, bodies: list[bytes], kind: str = "") -> None:
    """Publish the bodies, a message each. Raises Fault."""

    def messages(first: str) -> resending.Messages:
        ids = message_ids(job, first, len(bodies), kind)
        return [(target, body, id) for body, id in zip(bodies, ids, strict=True)]

    resending.publish(request, job, bodies, messages)


def _is_not_finite(value) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def check_room(job: Job) -> None:
    """Refuse a report of a job that keeps all the values that it may."""
    if job.values_kept >= settings.JOB_VALUES:
        raise Refused(recording.too_many())


def elements_of(serializer: type[StrictSerializer], data, user: str, name: str) -> list[dict]:
    """Return the one object or the list of objects of a report, each validated. Raises Refused for the whole report."""
    elements = data if isinstance(data, list) else [data]
    if len(elements) > MAX:
        raise Refused("must have at most %(limit)s elements", field="body", limit=MAX)
    rows = []
    for element in elements:
        row = serializer.read(element)
        if row.get("user", user) != user:
            raise Refused("must be the user in the path", field="user")
        if row.get("name", name) != name:
            raise Refused("must be the job in the path", field="name")
        rows.append(row)
    return rows


def message_ids(job: Job, given: str, count: int, kind: str = "") -> list[str]:
    """Return an id for each element: `given` ends in the number of the first, and the others count on from there.

    So a report that is sent again counts once, also in batches of other sizes. `kind` keeps the reports of two
    addresses apart. JetStream compares the ids of all jobs, so one that another job could guess would let it make this
    report a repetition.
    """
    stem, number = re.fullmatch(r"(.*?)(\d{0,15})", given[:MESSAGE_ID_LENGTH], re.DOTALL).groups()
    return [f"{message_prefix(job)}{kind}{stem}{int(number or 0) + index}" for index in range(count)]


class _Registration(JobView):
    internal = True
    verb = staticmethod(recording.begin)

    def put(self, request, user, name):
        self.verb(self.job(name).pk)
        return self.answer()


class JobMetricsBegin(_Registration):
    calls = {"PUT": Call("Register a running job; idempotent", SUBMIT)}


class JobMetricsFinish(_Registration):
    verb = staticmethod(recording.finish)
    calls = {"PUT": Call("Unregister a job: later metrics are ignored; idempotent", SUBMIT, frees=True)}


class JobMetricsDelete(_Registration):
    verb = staticmethod(recording.delete)
    calls = {"PUT": Call("Delete a job's metrics; idempotent", DESTROY)}
