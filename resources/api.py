"""The resource manager's REST calls: a thin shell over resources.tcc, tenants, limits and work."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone
from rest_framework.response import Response

from kernel.effects import DESTROY, READ
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.names import NAME
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int, whole

from . import lending, limits, products, tcc, tenants, usage, work
from .models import Tenant
from .serializers import (
    CapacityIn,
    GpuTypeOut,
    LimitIn,
    LimitOut,
    SettleIn,
    TenantIn,
    TenantOut,
    TryIn,
    UsageOut,
    WorkIn,
    WorkOut,
)

TRIED = {"requestBody": {"id": "$request.body#/id", "applier": "$request.body#/applier"}}
LISTED = {"parameters": {"tenant": "$request.path.tenant", "name": "$response.body#/0/user"}}
ONLY_THEY = Message("only the tenant's administrators can do this")
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
    calls = {"PUT": Call("Confirm a request; idempotent", frees=True, body=SettleIn, after={"putTryRequest": TRIED})}

    def put(self, request):
        tcc.confirm(**self.body())
        return self.answer()


class CancelRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Cancel a request; idempotent", frees=True, body=SettleIn, after={"putTryRequest": TRIED})}

    def put(self, request):
        tcc.cancel(**self.body())
        return self.answer()


class GpuTypeList(ContractView):
    """As measured within the last minute. Any other part of a product's name is a type, too."""

    calls = {"GET": Call("List the types of GPUs that jobs, applications and workspaces may name", READ,
                         out=GpuTypeOut, many=True)}  # fmt: skip

    def get(self, request):
        found = products.listed()
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        return Response(found[offset : offset + limit], headers={"X-Total-Count": str(len(found))})


class TenantList(ContractView):
    """Administrators see all tenants, other users their own."""

    kind = "tenant"
    calls = {
        "GET": Call("List tenants", READ, out=TenantOut, many=True),
        "POST": Call(
            "Create a tenant; its capacity comes out of that of `default` (administrators only)",
            body=TenantIn, out=TenantOut, status=201,
        ),
    }  # fmt: skip

    def get(self, request):
        mine = {} if request.user.is_administrator else {"pk__in": request.user.roles()}
        return self.page(Tenant.objects.filter(**mine))

    def post(self, request):
        only_staff(request.user, Message("only administrators can create tenants"), field="tenant")
        return self.answer(tenants.create(by=self.by, **self.body()))


class TenantDetail(ContractView):
    kind = "tenant"
    calls = {
        "GET": Call("Get a tenant", READ, out=TenantOut),
        "PUT": Call(
            "Set capacity (not below current usage), network, idle and retention policy (administrators only)",
            body=CapacityIn,
            out=TenantOut,
        ),
        "DELETE": Call("Delete a tenant in which nothing is left (administrators only)", DESTROY, out=TenantOut),
    }

    def get(self, request, tenant):
        return self.answer(visible_tenant(request.user, tenant))

    def put(self, request, tenant):
        only_staff(request.user, Message("only administrators can change the capacity"), field="tenant")
        return self.answer(tenants.change(name=tenant, by=self.by, **self.body()))

    def delete(self, request, tenant):
        only_staff(request.user, Message("only administrators can delete tenants"), field="tenant")
        return self.answer(tenants.delete(name=tenant, by=self.by))


class TenantUsage(ContractView):
    """Administrators, also those of the tenant, see all users' usage, other users their own.

    Layer "" is usage requested over REST directly.
    """

    kind = "tenant"
    calls = {
        "GET": Call(
            "Get usage over time",
            READ,
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
        owner = None if request.user.administers(row.pk) else request.user.username
        return self.answer(usage.series(row, now - timedelta(hours=hours), now, by=by, owner=owner))


class TenantWork(ContractView):
    """Sweeps, schedules and runs of pipelines are of the tenant that their jobs name, else of their user's default."""

    kind = "tenant"
    calls = {
        "GET": Call(
            "List what is under way in a tenant (administrators, also the tenant's)", READ, out=WorkOut, many=True,
            query=(("of", str, "only this user's"),),
        ),
    }  # fmt: skip

    def get(self, request, tenant):
        row = only_administrators(request.user, tenant, ONLY_THEY, field="tenant")
        limit = query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        offset = query_int(request, "offset", 0, 0)
        rows = work.live(row, request.query_params.get("of", "").replace("\0", ""))
        answer = WorkOut(rows[offset : offset + limit], many=True).data
        return Response(answer, headers={"X-Total-Count": str(len(rows))})


class TenantWorkEnd(ContractView):
    kind = "tenant"
    calls = {
        "PUT": Call(
            "Cancel a job, an upload, a sweep or a pipeline's run, stop an application, pause a schedule "
            "(administrators, also the tenant's)", body=WorkIn,
        )
    }  # fmt: skip

    def put(self, request, tenant):
        row = only_administrators(request.user, tenant, ONLY_THEY, field="tenant")
        work.end(row, by=self.by, **self.body())
        return self.answer()


class LimitList(ContractView):
    """Administrators, also those of the tenant, see all limits, other users the one that applies to them."""

    kind = "tenant"
    calls = {"GET": Call("List user limits", READ, out=LimitOut, many=True)}

    def get(self, request, tenant):
        row = visible_tenant(request.user, tenant)
        rows = row.limits.select_related("tenant")
        if not request.user.administers(row.pk):
            mine = limits.limit_of(row.pk, request.user.username)
            rows = rows.filter(pk=mine.pk if mine else None)
        return self.page(rows)


class LimitDetail(ContractView):
    """The user `*` means all users without a limit of their own."""

    kind = "limit"
    segments = {"tenant": NAME, "name": r"^([a-z]{1,50}|\*)$"}
    calls = {
        "GET": Call("Get the limit of a user", READ, out=LimitOut, after={"getLimitList": LISTED}),
        "PUT": Call("Set a limit; null means no limit (administrators only)", body=LimitIn, out=LimitOut),
        "DELETE": Call("Remove the limit (administrators only)", DESTROY, out=LimitOut),
    }

    def get(self, request, tenant, name):
        row = visible_tenant(request.user, tenant)
        if name != request.user.username and not request.user.administers(row.pk):
            raise Missing("limit")
        return self.answer(limits.effective_limit(row, name))

    def put(self, request, tenant, name):
        only_administrators(request.user, tenant, Message("only administrators can set limits"), field="limit")
        return self.answer(limits.set_limit(tenant=tenant, user=name, by=self.by, **self.body()))

    def delete(self, request, tenant, name):
        only_administrators(request.user, tenant, Message("only administrators can remove limits"), field="limit")
        return self.answer(limits.remove_limit(tenant=tenant, user=name, by=self.by))


def visible_tenant(user, name: str) -> Tenant:
    """Return the tenant to administrators and its own users. Raises Missing for all others."""
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None or not (user.is_administrator or tenant.pk in user.roles()):
        raise Missing("tenant")
    return tenant


def only_administrators(user, tenant: str, problem: Message, *, field: str) -> Tenant:
    """Return the tenant to those who administer it. Raises Missing for who is not in it, else Refused."""
    row = visible_tenant(user, tenant)
    if not user.administers(row.pk):
        raise Refused(problem, field=field)
    return row


def only_staff(user, problem: Message, *, field: str) -> None:
    """Raise Refused with the problem unless the user is an administrator."""
    if not user.is_administrator:
        raise Refused(problem, field=field)
