"""The Metrics-manager's REST calls (contract 4). The live half is the websocket in jobs.consumers."""

from __future__ import annotations

import json
import uuid

from mlp.kernel import bus
from mlp.kernel.errors import Refused
from mlp.kernel.views import Call

from . import metrics
from .api import JobView
from .auth import require_own_job
from .models import Metrics
from .serializers import MetricsIn, MetricsOut

MOST = 1000
MESSAGE_ID_LENGTH = 100


class JobMetricsRows(JobView):
    calls = {"GET": Call("Stored metrics, newest first", out=MetricsOut, many=True)}

    def get(self, request, user, name):
        job = self.job(name)
        rows = Metrics.objects.filter(job=job)
        page = self.page(_Rows(rows, user, name))
        return page


class _Rows:
    """A queryset whose slices come out as JobMetrics objects."""

    def __init__(self, queryset, user: str, name: str):
        self.queryset, self.user, self.name = queryset, user, name

    def order_by(self, _field):
        return _Rows(self.queryset.order_by("-seq"), self.user, self.name)

    def count(self) -> int:
        return self.queryset.count()

    def __getitem__(self, part):
        return [metrics.as_object(row, self.user, self.name) for row in self.queryset[part]]


class JobMetricsReport(JobView):
    """One object, or a list of up to 1000. A report that is sent again under the same X-Message-Id counts once."""

    accepted = frozenset({"user", "job"})
    calls = {"POST": Call("Report metrics", body=MetricsIn)}

    def post(self, request, user, name):
        rows = self._rows(request.data, user, name)
        job = self.job(name)
        require_own_job(request, job)
        if job.is_live and rows:
            prefix = request.headers.get("X-Message-Id", "")[:MESSAGE_ID_LENGTH] or uuid.uuid4().hex
            bus.publish(
                [
                    (
                        metrics.subject(user, name),
                        json.dumps({"user": user, "name": name, **row}).encode(),
                        f"{job.pk}.{prefix}.{index}",
                    )
                    for index, row in enumerate(rows)
                ]
            )
        return self.answer()

    @staticmethod
    def _rows(data, user: str, name: str) -> list[dict]:
        elements = data if isinstance(data, list) else [data]
        if len(elements) > MOST:
            raise Refused(f"body: at most {MOST} elements")
        rows = []
        for element in elements:
            row = MetricsIn.read(element)
            if row.get("user", user) != user:
                raise Refused("user: must be the user of the path")
            if row.get("name", name) != name:
                raise Refused("name: must be the job of the path")
            rows.append(row)
        return rows


class _Registration(JobView):
    internal = True
    verb = staticmethod(metrics.begin)

    def put(self, request, user, name):
        self.verb(self.job(name).pk)
        return self.answer()


class JobMetricsBegin(_Registration):
    calls = {"PUT": Call("Register a running job; idempotent")}


class JobMetricsFinish(_Registration):
    verb = staticmethod(metrics.finish)
    calls = {"PUT": Call("Unregister it: later metrics are ignored; idempotent")}


class JobMetricsDelete(_Registration):
    verb = staticmethod(metrics.delete)
    calls = {"PUT": Call("Delete its metrics; idempotent")}
