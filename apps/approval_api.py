"""The REST calls of a tenant's administrators for rollouts that wait for an approval."""

from __future__ import annotations

from accounts.tenancy import members
from kernel.effects import READ
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.views import Call, ContractView

from . import approvals, canaries
from .serializers import ApprovalIn, ProposalOut

ONLY_THEY = Message("only the tenant's administrators can approve rollouts")


class ApprovalView(ContractView):
    """A call of those who administer a tenant."""

    kind = "tenant"

    def tenant(self, request, name: str):
        """Return the tenant. Raises Missing for who is not in it, Refused for who does not administer it."""
        row = members.visible(request.user, name)
        if not request.user.administers(row.pk):
            raise Refused(ONLY_THEY, field="tenant")
        return row


class ProposalList(ApprovalView):
    """For the tenant's administrators."""

    calls = {"GET": Call("List the rollouts that wait for an approval", READ, out=ProposalOut, many=True)}

    def get(self, request, tenant):
        return self.page(approvals.waiting(self.tenant(request, tenant)))


class ProposalApprove(ApprovalView):
    """`run` and `percent` are those of the list: what has taken their place meanwhile is not approved."""

    calls = {"PUT": Call("Approve a step of a rollout (the tenant's administrators)", body=ApprovalIn, out=ProposalOut)}

    def put(self, request, tenant):
        given = self.body()
        rows = approvals.waiting(self.tenant(request, tenant))
        row = rows.filter(app__user__username=given["user"], app__name=given["name"]).first()
        if row is None:
            raise Missing("application")
        canaries.approve(row.pk, given["run"], given["percent"], self.by)
        return self.answer(row)
