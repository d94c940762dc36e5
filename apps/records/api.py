"""The REST calls of records, one class for each path: for the owner of the application, not for those whom it is shared
with, as records have what callers have sent.
"""

from __future__ import annotations

from django.http import StreamingHttpResponse
from rest_framework.response import Response

from datasets.serializers import DatasetOut
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import Missing
from kernel.names import NAME
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int

from ..models import Application
from . import datasets, plan, retention, rows
from .serializers import RecordDatasetIn, RecordingIn, RecordingOut, RecordOut

FILTER = (
    ("since", str, "records of this time or later, such as 2026-05-17T10:00:00Z"),
    ("until", str, "records before this time"),
    ("model", str, "the name of the model that answered"),
    ("canary", {"type": "string", "enum": ["canary", "base"]}, "which model answered while a canary was up"),
    ("status", str, "ok, refused, failed or a status such as 200"),
    ("id", str, "the X-Request-Id of an answer"),
    ("key", str, "the name of the caller's key"),
)
MEDIA = "application/x-ndjson"
MAX_PAGE = 100  # records of one answer, each with up to 128 KiB


class RecordView(ContractView):
    """A call about one application's records."""

    kind = "application"
    segments = {"user": NAME, "name": NAME, "number": r"^[0-9]{1,18}$"}

    def application(self, name: str, kept: bool = True) -> Application:
        """Return the owner's application of that name; `kept`: one in the trash does not count. Raises Missing."""
        app = Application.objects.filter(user=self.owner, name=name).select_related("user", "tenant").first()
        if app is None or (kept and app.trashed):
            raise Missing("application")
        return app


class AppRecording(RecordView):
    """A change holds from the next second on; no run is restarted."""

    calls = {
        "GET": Call("Get how an application's requests are recorded", READ, out=RecordingOut),
        "PUT": Call("Record an application's requests and answers, or stop", body=RecordingIn, out=RecordingOut),
        "DELETE": Call("Stop recording an application's requests", frees=True, out=RecordingOut),
    }

    def get(self, request, user, name):
        return self.answer(plan.of(self.application(name, kept=False)))

    def put(self, request, user, name):
        return self.answer(plan.set_recording(user=self.owner, name=name, by=self.by, **self.body()))

    def delete(self, request, user, name):
        return self.answer(plan.set_recording(user=self.owner, name=name, by=self.by, on=False))


class AppRecords(RecordView):
    calls = {
        "GET": Call("List an application's records, newest first", READ, out=RecordOut, many=True, query=FILTER),
        "DELETE": Call("Delete all records of an application, with their feedback", DESTROY),
    }

    def get(self, request, user, name):
        found = rows.of(self.application(name), request.query_params)
        limit = min(query_int(request, "limit", MAX_PAGE, 1, PAGE_LIMIT), MAX_PAGE)
        offset = query_int(request, "offset", 0, 0)
        page = rows.with_feedback(found[offset : offset + limit])
        return Response([rows.shown(row) for row in page], headers={"X-Total-Count": str(found.count())})

    def delete(self, request, user, name):
        retention.delete_all(self.application(name, kept=False))
        return self.answer()


class AppRecord(RecordView):
    calls = {"GET": Call("Get a record", READ, out=RecordOut)}

    def get(self, request, user, name, number):
        row = rows.find(self.application(name), number)
        return self.answer(rows.with_feedback([row])[0])


class AppRecordsExport(RecordView):
    """Oldest first, with the feedback of each."""

    calls = {"GET": Call("Export records as NDJSON", READ, media=(MEDIA,), query=FILTER)}

    def get(self, request, user, name):
        return export(rows.of(self.application(name), request.query_params), name)


def export(found, name: str) -> StreamingHttpResponse:
    """Return records as a file of NDJSON."""
    response = StreamingHttpResponse(map(rows.line, rows.oldest_first(found)), content_type=MEDIA)
    response["Content-Disposition"] = f'attachment; filename="{name}-records.ndjson"'
    response["X-Accel-Buffering"] = "no"
    return response


class AppRecordsDataset(RecordView):
    """The records are written in the background, oldest first, as parts of NDJSON or CSV; `progress` of the dataset
    says how far that is. Jobs read it as any other dataset.
    """

    calls = {
        "POST": Call(
            "Write the records of a time range to a dataset", SUBMIT, body=RecordDatasetIn, out=DatasetOut, status=201
        )
    }

    def post(self, request, user, name):
        body = self.body()
        form = body.pop("format", "ndjson")
        row = datasets.create(app=self.application(name), form=form, by=self.by, **body)
        return self.answer(row)
