"""The REST calls of named environments, one class for each path."""

from __future__ import annotations

from kernel.effects import DESTROY, READ, SUBMIT
from kernel.names import NAME
from kernel.views import Call, ContractView

from . import lifecycle, references
from .serializers import NamedEnvironmentDetailOut, NamedEnvironmentIn, NamedEnvironmentOut

STATES = ("building", "ready", "failed", "deleting")
TENANT = (("tenant", {"type": "string", "pattern": NAME}, "whose environment it is; default: the user's own tenant"),)


class NamedEnvironmentView(ContractView):
    kind = "environment"
    segments = {**ContractView.segments, "reference": references.REFERENCE}

    def version(self, reference: str):
        """Return the version of the address, in the tenant of the query. Raises Missing."""
        return references.find(self.owner, reference, self.request.query_params.get("tenant"))


class NamedEnvironmentList(NamedEnvironmentView):
    calls = {
        "GET": Call(
            "List the versions of named environments in the user's tenants, newest first",
            READ, out=NamedEnvironmentOut, many=True, states=STATES,
        ),
        "POST": Call(
            "Create the next version of a named environment; the first one of a new name",
            SUBMIT, body=NamedEnvironmentIn, out=NamedEnvironmentOut, status=201,
        ),
    }  # fmt: skip

    def get(self, request, user):
        return self.page(references.readable(self.owner))

    def post(self, request, user):
        return self.answer(lifecycle.create_version(user=self.owner, by=self.by, **self.body()))


class NamedEnvironmentDetail(NamedEnvironmentView):
    calls = {
        "GET": Call(
            "Get a version of a named environment: name@3, or the newest of a name",
            READ, out=NamedEnvironmentDetailOut, query=TENANT,
        ),
        "DELETE": Call("Delete a version that nothing uses", DESTROY, out=NamedEnvironmentOut, query=TENANT),
    }  # fmt: skip

    def get(self, request, user, reference):
        return self.answer(self.version(reference))

    def delete(self, request, user, reference):
        version = self.version(reference)
        return self.answer(lifecycle.delete_version(user=self.owner, pk=version.pk, by=self.by))


class NamedEnvironmentRetry(NamedEnvironmentView):
    calls = {"PUT": Call("Install a failed version again", SUBMIT, out=NamedEnvironmentOut, query=TENANT)}

    def put(self, request, user, reference):
        version = self.version(reference)
        return self.answer(lifecycle.retry_version(user=self.owner, pk=version.pk, by=self.by))
