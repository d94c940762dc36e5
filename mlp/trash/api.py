"""The REST calls of a user's trash."""

from __future__ import annotations

from rest_framework.response import Response

from kernel.effects import DESTROY, READ
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int

from . import kinds
from .serializers import TrashedIn, TrashedOut


class TrashList(ContractView):
    """Objects of every kind, the last moved there first. They are deleted at the time `purged`."""

    kind = "object"
    calls = {"GET": Call("List what is in the user's trash", READ, out=TrashedOut, many=True)}

    def get(self, request, user):
        rows = kinds.rows(self.owner)
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        entries = kinds.entries(list(rows[offset : offset + limit]))
        return Response(TrashedOut(entries, many=True).data, headers={"X-Total-Count": str(rows.count())})


class TrashRestore(ContractView):
    kind = "object"
    calls = {"PUT": Call("Restore an object from the trash", body=TrashedIn)}

    def put(self, request, user):
        kinds.restore(self.owner, by=self.by, **self.body())
        return self.answer()


class TrashDelete(ContractView):
    kind = "object"
    calls = {"PUT": Call("Delete an object in the trash permanently", DESTROY, body=TrashedIn)}

    def put(self, request, user):
        kinds.delete(self.owner, by=self.by, **self.body())
        return self.answer()
