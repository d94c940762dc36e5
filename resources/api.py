"""The resource manager's REST calls (contract 8): a thin shell over resources.tcc."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.names import NAME
from kernel.views import Call, ContractView, query_int, whole

from . import lending, limits, tcc, usage
from .models import Tenant
from .serializers import CapacityIn, LimitIn, LimitOut, SettleIn, TenantOut, TryIn, UsageOut

TRIED = {"requestBody": {"id": "$request.body#/id", "applier": "$request.body#/applier"}}
LISTED = {"parameters": {"tenant": "$request.path.tenant", "name": "$response.body#/0/user"}}
MAX_HOURS = usage.KEPT.days * 24


class TryRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Request resources, or request a release; idempotent by id", body=TryIn)}

    @lending.recalling
    def put(self, request):
        tcc.try_(**self.body())
        return self.answer()


class ConfirmRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Confirm a request; idempotent", body=SettleIn, after={"putTryRequest": TRIED})}

    def put(self, request):
        tcc.confirm(**self.body())
        return self.answer()


class CancelRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Cancel a request; idempotent", body=SettleIn, after={"putTryRequest": TRIED})}

    def put(self, request):
        tcc.cancel(**self.body())
        return self.answer()


class TenantList(ContractView):
    """Administrators see all tenants, other users their own."""

    kind = "tenant"
    calls = {"GET": Call("List tenants", out=TenantOut, many=True)}

    def get(self, request):
        mine = {} if request.user.is_staff else {"pk": request.user.tenant_id}
        return self.page(Tenant.objects.filter(**mine))


class TenantDetail(ContractView):
    kind = "tenant"
    calls = {
        "GET": Call("Get a tenant", out=TenantOut),
        "PUT": Call(
            "Set capacity (not below current usage), network policy and idle policy (administrators only)",
            body=CapacityIn,
            out=TenantOut,
        ),
    }

    def get(self, request, tenant):
        return self.answer(visible_tenant(request.user, tenant))

    def put(self, request, tenant):
        only_staff(request.user, Message("only administrators can change the capacity"), field="tenant")
        return self.answer(tcc.set_capacity(name=tenant, by=self.by, **self.body()))


class TenantUsage(ContractView):
    """Administrators see all users' usage, other users their own. Layer "" is usage requested over REST directly."""

    kind = "tenant"
    calls = {
        "GET": Call(
            "Get usage over time",
            out=UsageOut,
            query=(
                ("hours", whole(1, MAX_HOURS), f"hours up to now, 1 to {MAX_HOURS}; default 24"),
                ("by", {"type": "string", "enum": list(usage.BY)}, "group by owner or kind; default owner"),
            ),
        )
    }

    def get(self, request, tenant):
        for parameter in request.query_params:
            if parameter not in {"hours", "by"}:
                raise Refused("unknown parameter", field=parameter)
        hours = query_int(request, "hours", 24, 1, MAX_HOURS)
        by = request.query_params.get("by", "owner")
        if by not in usage.BY:
            raise Refused("must be one of %(choices)s", field="by", choices=", ".join(usage.BY))
        row, now = visible_tenant(request.user, tenant), timezone.now()
        owner = None if request.user.is_staff else request.user.username
        return self.answer(usage.series(row, now - timedelta(hours=hours), now, by=by, owner=owner))


class LimitList(ContractView):
    """Administrators see all limits, other users the one that applies to them."""

    kind = "tenant"
    calls = {"GET": Call("List user limits", out=LimitOut, many=True)}

    def get(self, request, tenant):
        row = visible_tenant(request.user, tenant)
        rows = row.limits.select_related("tenant")
        if not request.user.is_staff:
            mine = limits.limit_of(row.pk, request.user.username)
            rows = rows.filter(pk=mine.pk if mine else None)
        return self.page(rows)


class LimitDetail(ContractView):
    """The user `*` means all users without a limit of their own."""

    kind = "limit"
    segments = {"tenant": NAME, "name": r"^([a-z]{1,50}|\*)$"}
    calls = {
        "GET": Call("Get the limit of a user", out=LimitOut, after={"getLimitList": LISTED}),
        "PUT": Call("Set a limit; null means no limit (administrators only)", body=LimitIn, out=LimitOut),
        "DELETE": Call("Remove the limit (administrators only)", out=LimitOut),
    }

    def get(self, request, tenant, name):
        row = visible_tenant(request.user, tenant)
        if not request.user.is_staff and name != request.user.username:
            raise Missing("limit")
        return self.answer(limits.effective_limit(row, name))

    def put(self, request, tenant, name):
        only_staff(request.user, Message("only administrators can set limits"), field="limit")
        return self.answer(limits.set_limit(tenant=tenant, user=name, by=self.by, **self.body()))

    def delete(self, request, tenant, name):
        only_staff(request.user, Message("only administrators can remove limits"), field="limit")
        return self.answer(limits.remove_limit(tenant=tenant, user=name, by=self.by))


def visible_tenant(user, name: str) -> Tenant:
    """Return the tenant to administrators and its own users. Raises Missing for all others."""
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None or not (user.is_staff or user.tenant_id == tenant.pk):
        raise Missing("tenant")
    return tenant


def only_staff(user, problem: Message, *, field: str) -> None:
    """Raise Refused with the problem unless the user is an administrator."""
    if not user.is_staff:
        raise Refused(problem, field=field)
