"""The REST calls for members of tenants, and for the tenants of a user."""

from __future__ import annotations

from accounts.models import Membership
from kernel.effects import DESTROY, READ
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.views import Call, ContractView

from . import members
from .serializers import MemberIn, MemberOut

LISTED = {"parameters": {"tenant": "$request.path.tenant", "name": "$response.body#/0/user"}}
ONLY_THEY = Message("only the tenant's administrators can change its members")


class MemberList(ContractView):
    """Its administrators see all members, others these administrators and themselves."""

    kind = "tenant"
    calls = {"GET": Call("List the members of a tenant", READ, out=MemberOut, many=True)}

    def get(self, request, tenant):
        return self.page(members.members_of(members.visible(request.user, tenant), request.user))


class MemberDetail(ContractView):
    kind = "member"
    calls = {
        "GET": Call("Get a member of a tenant", READ, out=MemberOut, after={"getMemberList": LISTED}),
        "PUT": Call(
            "Add a member, or change the role (administrators, also the tenant's)", body=MemberIn, out=MemberOut
        ),
        "DELETE": Call(
            "Remove a member (administrators, also the tenant's; a member may leave)", DESTROY, out=MemberOut
        ),
    }

    def get(self, request, tenant, name):
        rows = members.members_of(members.visible(request.user, tenant), request.user)
        row = rows.filter(user__username=name).first()
        if row is None:
            raise Missing("member")
        return self.answer(row)

    def put(self, request, tenant, name):
        self._need_administrator(request, tenant)
        return self.answer(members.put(tenant=tenant, user=name, by=self.by, **self.body()))

    def delete(self, request, tenant, name):
        row = members.visible(request.user, tenant)
        if name != request.user.username and not request.user.administers(row.pk):
            raise Refused(ONLY_THEY, field="member")
        return self.answer(members.remove(tenant=tenant, user=name, by=self.by))

    def _need_administrator(self, request, tenant: str) -> None:
        if not request.user.administers(members.visible(request.user, tenant).pk):
            raise Refused(ONLY_THEY, field="member")


class UserTenants(ContractView):
    calls = {"GET": Call("List the tenants of a user, with the roles", READ, out=MemberOut, many=True)}

    def get(self, request, user):
        rows = Membership.objects.filter(user_id=self.owner.member_id).select_related("user", "tenant")
        return self.page(rows)


class UserTenantDefault(ContractView):
    kind = "tenant"
    calls = {"PUT": Call("Let what the user submits belong to this tenant by default", out=MemberOut)}

    def put(self, request, user, tenant):
        members.make_default(user=self.owner, tenant=tenant, by=self.by)
        rows = Membership.objects.filter(user_id=self.owner.member_id, tenant__name=tenant)
        return self.answer(rows.select_related("user", "tenant").get())
