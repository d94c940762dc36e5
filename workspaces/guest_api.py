"""The REST calls of the guests of workspaces, one class for each path."""

from __future__ import annotations

from kernel.effects import DESTROY, READ
from kernel.errors import Refused
from kernel.names import NAME
from kernel.views import Call, ContractView

from . import guests
from .api import WorkspaceView
from .models import Guest
from .serializers import GuestOut, InvitationOut


class GuestList(WorkspaceView):
    calls = {"GET": Call("List the guests of a workspace, the last invited first", READ, out=GuestOut, many=True)}

    def get(self, request, user, name):
        return self.page(self.workspace(name).guests.select_related("user"))


class GuestDetail(WorkspaceView):
    """A guest acts in the workspace as its owner. They accept the invitation before they can enter."""

    kind = "guest"
    segments = {"user": NAME, "name": NAME, "guest": NAME}
    calls = {
        "PUT": Call("Invite a user of the workspace's tenant (its owner)", out=GuestOut),
        "DELETE": Call("Remove a guest, and close their connections", DESTROY),
    }

    def put(self, request, user, name, guest):
        row = self.workspace(name)
        if request.user != self.owner:  # not even an administrator gets in
            raise Refused("only the owner of a workspace invites guests", field="guest")
        return self.answer(guests.invite(user=self.owner, name=row.name, guest=guest, by=self.by))

    def delete(self, request, user, name, guest):
        guests.remove(owner=self.workspace(name).user.username, name=name, guest=guest, by=self.by)
        return self.answer()


class InvitationList(ContractView):
    calls = {
        "GET": Call(
            "List the workspaces to which the user is invited, newest first", READ, out=InvitationOut, many=True
        )
    }

    def get(self, request, user):
        rows = Guest.objects.filter(user=self.owner).standing()
        return self.page(rows.select_related("workspace__user", "workspace__tenant"))


class InvitationDetail(ContractView):
    kind = "workspace"
    segments = {"user": NAME, "owner": NAME, "name": NAME}
    calls = {"DELETE": Call("Decline an invitation, or leave the workspace", DESTROY)}

    def delete(self, request, user, owner, name):
        guests.remove(owner=owner, name=name, guest=self.owner.username, by=self.by)
        return self.answer()


class InvitationAccept(ContractView):
    """In the workspace the user then acts as its owner. Its pages may act in the user's own workspaces."""

    kind = "workspace"
    segments = {"user": NAME, "owner": NAME, "name": NAME}
    calls = {"PUT": Call("Accept an invitation (the invited user)", out=InvitationOut)}

    def put(self, request, user, owner, name):
        if request.user != self.owner:  # nobody trusts a workspace in somebody else's name
            raise Refused("only the invited user accepts an invitation", field="user")
        return self.answer(guests.accept(owner=owner, name=name, user=self.owner, by=self.by))
