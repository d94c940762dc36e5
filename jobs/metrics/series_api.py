"""REST for values beyond JobMetrics: any name, with step and time. Stored by way of JetStream, as metrics are."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rest_framework.response import Response

from jobs.api import JobView
from jobs.auth import require_own_job
from jobs.models import Value
from jobs.serializers import SeriesOut, ValueOut, ValuesIn
from kernel import bus
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, query_int, whole

from . import recording, series, usage_series
from .api import check_room, elements_of, message_ids


class JobValues(JobView):
    """With X-Message-Id a repeated report counts once, as for JobMetrics."""

    accepted = frozenset({"user", "job"})
    calls = {
        "POST": Call("Report values of any name at a step", body=ValuesIn, one_or_many=True),
        "GET": Call(
            "List reported values, newest first",
            out=ValueOut,
            many=True,
            query=(("name", str, "only values of this name"),),
        ),
    }

    def post(self, request, user, name):
        rows = elements_of(ValuesIn, request.data, user, name)
        job = self.job(name)
        require_own_job(request, job)
        if job.is_live and rows:
            # A few hundred rows for each message: the stream's cost is for each message.
            check_room(job)
            ids = message_ids(job.pk, request.headers.get("X-Message-Id", ""), len(rows), "values.")
            target = recording.values_subject(user, name)
            packs = [(target, data, f"{ids[start]}/{count}") for start, count, data in packs_of(rows)]
            bus.publish(packs)
        return self.answer()

    def get(self, request, user, name):
        rows = Value.objects.filter(job=self.job(name))
        if "name" in request.query_params:
            rows = rows.filter(name=request.query_params["name"].replace("\x00", ""))
        return self.page(rows)


def packs_of(rows: list[dict]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (first row, number of rows, body) of each message: neither too many rows nor too many bytes."""
    start, pieces, size = 0, [], 0
    for row in rows:
        piece = json.dumps(row).encode()
        if pieces and (len(pieces) >= recording.PACK or size + len(piece) > recording.PACK_BYTES):
            yield start, len(pieces), b"[%s]" % b",".join(pieces)
            start, pieces, size = start + len(pieces), [], 0
        pieces.append(piece)
        size += len(piece) + 1
    yield start, len(pieces), b"[%s]" % b",".join(pieces)


class JobSeries(JobView):
    """One series for each name, accuracy and loss among them, each downsampled to `points` points."""

    calls = {
        "GET": Call(
            "Get reported values as series by name",
            out=SeriesOut,
            many=True,
            query=(("points", whole(0, series.MOST_POINTS), "points of each series, 0 to 2000; default 0"),),
        )
    }

    def get(self, request, user, name):
        points = query_int(request, "points", 0, 0, series.MOST_POINTS)
        return _part_of(request, series.of_job(self.job(name), points))


class JobUsage(JobView):
    """Resource usage measured by the runner; the script cannot change it."""

    calls = {
        "GET": Call(
            "Get a job's resource usage over time: cpu (cores), ram, disk, gpu_ram (MiB), gpu (%)",
            out=SeriesOut,
            many=True,
            query=(
                (
                    "points",
                    whole(0, series.MOST_POINTS),
                    "points of each series, 0 to 2000; default 0; a step is a second",
                ),
            ),
        )
    }

    def get(self, request, user, name):
        points = query_int(request, "points", 0, 0, series.MOST_POINTS)
        return _part_of(request, usage_series.of_job(self.job(name), points))


def _part_of(request, rows: list[series.Series]) -> Response:
    limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
    offset = query_int(request, "offset", 0, 0)
    page = SeriesOut(rows[offset : offset + limit], many=True).data
    return Response(page, headers={"X-Total-Count": str(len(rows))})
