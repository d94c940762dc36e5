"""The REST calls of exports, one class for each path."""

from __future__ import annotations

from kernel.effects import READ, SUBMIT
from kernel.locking import Missing
from kernel.names import NAME
from kernel.views import Call, ContractView

from ..models import Export, ExportState
from . import lifecycle
from .serializers import ExportIn, ExportOut

STATES = tuple(ExportState.values)


class ExportList(ContractView):
    kind = "export"
    segments = {"user": NAME}
    calls = {
        "POST": Call(
            "Send a dataset, a model or the output of a finished job to a bucket",
            SUBMIT,
            body=ExportIn,
            out=ExportOut,
            status=201,
        ),
        "GET": Call("List the user's exports, newest first", READ, out=ExportOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(lifecycle.create_export(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(Export.objects.filter(user=self.owner))


class ExportDetail(ContractView):
    kind = "export"
    segments = {"user": NAME}
    calls = {"GET": Call("Get an export", READ, out=ExportOut)}

    def get(self, request, user, number):
        row = Export.objects.filter(user=self.owner, pk=number).first()
        if row is None:
            raise Missing("export")
        return self.answer(row)


class ExportCancel(ContractView):
    kind = "export"
    segments = {"user": NAME}
    calls = {"PUT": Call("Cancel an export; what was sent stays in the bucket", SUBMIT, frees=True, out=ExportOut)}

    def put(self, request, user, number):
        return self.answer(lifecycle.cancel(user=self.owner, number=number, by=self.by))
