"""REST for values beyond JobMetrics: any name, with step and time. Stored by way of JetStream, as metrics are."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from rest_framework.response import Response

from jobs.api import JobView
from jobs.auth import require_own_job
from jobs.models import Value
from kernel.effects import READ, SUBMIT
from kernel.errors import Refused
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, query_int, whole
from tracking.metrics.serializers import SeriesOut, ValueOut, ValuesIn

from . import points, recording, resending, series, usage_series
from .api import check_room, elements_of, message_ids
from .points_serializers import PointsOut


class JobValues(JobView):
    """With X-Message-Id or Idempotency-Key a repeated report counts once, as for JobMetrics."""

    accepted = frozenset({"user", "job"})
    reads_nan = True
    calls = {
        "POST": Call("Report values of any name at a step", SUBMIT, body=ValuesIn, one_or_many=True),
        "GET": Call(
            "List reported values, newest first",
            READ,
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
            target, packs = recording.values_subject(user, name), list(packs_of(rows))

            def messages(first: str) -> resending.Messages:
                ids = message_ids(job, first, len(rows), "values.")
                return [(target, data, f"{ids[start]}/{count}") for start, count, data in packs]

            resending.publish(request, job, [data for _start, _count, data in packs], messages)
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
    """One series for each name, accuracy and loss among them, each downsampled to `points` points. The points of a long
    series are means; the call `points` has the extremes, too.
    """

    calls = {
        "GET": Call(
            "Get reported values as series by name",
            READ,
            out=SeriesOut,
            many=True,
            query=(("points", whole(0, series.MAX_POINTS), "points of each series, 0 to 2000; default 0"),),
        )
    }

    def get(self, request, user, name):
        most = query_int(request, "points", 0, 0, series.MAX_POINTS)
        begin, end = _page_of(request)
        job = self.job(name)
        rows = series.of_job(job, begin, end)
        if most:
            sampled = points.samples(job, [row.name for row in rows], most)
            rows = [row._replace(points=sampled.get(row.name, [])) for row in rows]
        return _answer(rows, series.summarised([job]).count())


class JobPoints(JobView):
    """A long series comes as buckets with their least, greatest and mean value; ask for a shorter range to see more."""

    calls = {
        "GET": Call(
            "Get points of a job's series over a range, for a chart",
            READ,
            out=PointsOut,
            many=True,
            query=(
                (
                    "name",
                    str,
                    "only this series, or these if it is given several times; accuracy and loss are series, too",
                ),
                ("points", whole(1, points.MAX_POINTS), "buckets of each series, about; default 500"),
                ("x", {"type": "string", "enum": list(points.X)}, "what from and to are; default step"),
                ("find", str, "only series whose name has this part"),
                ("from", float, "begin of the range: a step, an epoch, seconds since 1970, or since the job's start"),
                ("to", float, "end of the range"),
            ),
        )
    }

    def get(self, request, user, name):
        most = query_int(request, "points", 500, 1, points.MAX_POINTS)
        x = request.query_params.get("x", "step")
        if x not in points.X:
            raise Refused("must be one of %(choices)s", field="x", choices=", ".join(points.X))
        low, high = _number(request, "from"), _number(request, "to")
        begin, end = _page_of(request)
        part = request.query_params.get("find", "").replace("\x00", "")
        job = self.job(name)
        given = set(request.query_params.getlist("name"))
        followed = series.names_of(job.pk, series.MAX_FOLLOWED)
        named = followed | set(series.summarised([job], part).values_list("name", flat=True))
        wanted = {metric for metric in named if (metric in given or not given) and part.lower() in metric.lower()}
        names = points.in_order(wanted)
        shown = names[begin:end]
        after = points.marks(job, followed.union(shown))
        ranges = {metric: points.range_of(job, metric, x, low, high) for metric in shown}
        answered = points.of_job(job, shown, ranges, most, after)
        return Response(PointsOut(answered, many=True).data, headers={"X-Total-Count": str(len(names))})


def _number(request, name: str) -> float | None:
    """Return a number from the query string, None where there is none. Raises Refused naming it."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = float(text) if len(text) < 30 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Refused("must be a finite number", field=name)
    return value


class JobUsage(JobView):
    """Resource usage measured by the runner; the script cannot change it."""

    calls = {
        "GET": Call(
            "Get a job's resource usage over time: cpu (cores), ram, disk, gpu_ram (MiB), gpu (%)",
            READ,
            out=SeriesOut,
            many=True,
            query=(
                (
                    "points",
                    whole(0, series.MAX_POINTS),
                    "points of each series, 0 to 2000; default 0; a step is a second",
                ),
                ("skip", whole(), "leave out the points of this many samples: those that the caller has; default 0"),
            ),
        )
    }

    def get(self, request, user, name):
        points = query_int(request, "points", 0, 0, series.MAX_POINTS)
        skip = query_int(request, "skip", 0, 0)
        begin, end = _page_of(request)
        usage = usage_series.of_job(self.job(name), points, skip)
        return _answer(usage[begin:end], len(usage))


def _answer(rows: list[series.Series], total: int) -> Response:
    return Response(SeriesOut(rows, many=True).data, headers={"X-Total-Count": str(total)})


def _page_of(request) -> tuple[int, int]:
    """Return the first place of the page of an address, and the first after it."""
    limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
    offset = query_int(request, "offset", 0, 0)
    return offset, offset + limit
