"""The REST calls for shares: those that the user has made, and those with the user."""

from __future__ import annotations

from accounts.models import Share
from kernel import pages
from kernel.effects import DESTROY, READ
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.names import NAME
from kernel.views import Call, ContractView

from . import grants, links
from .serializers import SHARED_KINDS, NewShareOut, ShareIn, ShareOut

ID = r"^[0-9]{1,18}$"


class ShareList(ContractView):
    calls = {
        "POST": Call(
            "Share an object with a user, with the tenant or by a link", body=ShareIn, out=NewShareOut, status=201
        ),
        "GET": Call(
            "List the shares that the user has made and that are in force, newest first", READ, out=ShareOut, many=True
        ),
    }

    def post(self, request, user):
        body = dict(self.body())
        row = grants.own(self.owner, body.pop("kind"), body.pop("name"))
        body["expires"] = grants.moment(body.pop("expires", ""))
        share, token = grants.make(row=row, by=self.by, **body)
        share.link = f"{pages.address(request)}{links.address_of(token)}" if token else ""
        return self.answer(share)

    def get(self, request, user):
        return self.page(grants.made_by(self.owner))


class ShareDetail(ContractView):
    kind = "share"
    segments = {"user": NAME, "share": ID}
    calls = {
        "GET": Call("Get a share", READ, out=ShareOut),
        "DELETE": Call("Revoke a share, also on open pages", DESTROY),
    }

    def share(self, number: str) -> Share:
        """Return the user's active share. Raises Missing."""
        share = grants.numbered(self.owner, number)
        if share is None:
            raise Missing("share")
        return share

    def get(self, request, user, share):
        return self.answer(self.share(share))

    def delete(self, request, user, share):
        grants.revoke(self.share(share), by=self.by)
        return self.answer()


class SharedWithMe(ContractView):
    calls = {
        "GET": Call(
            "List the shares with the user, newest first",
            READ,
            out=ShareOut,
            many=True,
            query=(("kind", {"type": "string", "enum": list(SHARED_KINDS)}, "only objects of this kind"),),
        )
    }

    def get(self, request, user):
        kind = request.query_params.get("kind")
        if kind not in (None, *SHARED_KINDS):
            raise Refused("must be one of %(choices)s", field="kind", choices=", ".join(SHARED_KINDS))
        shares = grants.made_for(self.owner)
        return self.page(shares if kind is None else shares.filter(kind=kind))
