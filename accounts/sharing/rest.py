"""The base of REST calls that read an object which may be shared with the caller."""

from __future__ import annotations

from django.db.models import Model
from rest_framework.permissions import SAFE_METHODS

from kernel.locking import Missing
from kernel.views import ContractView

from . import access


class SharedReads(ContractView):
    """A call for one object, `name` in the address. GET is allowed for all who may read it, other methods for its
    owner.

    `shared` is the object's model; views without one are for the owner only. `reading` is as on pages.
    """

    shared: type[Model] | None = None
    reading: access.Reading | None = None

    def _reads_shared(self, request) -> bool:
        return self.shared is not None and request.method in SAFE_METHODS and "name" in self.kwargs

    def check_permissions(self, request):
        """Let a browser without an account read what a link grants; `_owner` decides on the object."""
        nobody = request.user is None and self._reads_shared(request)
        if not (nobody and access.visitor_of(request).links):
            super().check_permissions(request)

    def _owner(self, request, username: str):
        user = request.user
        own = user is not None and (user.username == username or user.is_administrator)
        if own or not self._reads_shared(request):
            return super()._owner(request, username)
        rows = self.shared._default_manager.select_related("user")
        row = access.look_up(access.visitor_of(request), rows, username, self.kwargs["name"])
        if row is None:
            raise Missing(self.kind)
        self.reading = row.reading
        return row.user
