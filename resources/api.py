"""The Resource-manager's REST calls (contract 8): a thin shell over resources.tcc."""

from __future__ import annotations

from mlp.kernel.errors import Refused
from mlp.kernel.locking import Missing
from mlp.kernel.views import Call, ContractView

from . import tcc
from .models import Tenant
from .serializers import CapacityIn, SettleIn, TenantOut, TryIn


class TryRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Reserve, or earmark a release; idempotent by id", body=TryIn)}

    def put(self, request):
        tcc.try_(**self.body())
        return self.answer()


class ConfirmRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Make a try stay; idempotent", body=SettleIn)}

    def put(self, request):
        tcc.confirm(**self.body())
        return self.answer()


class CancelRequest(ContractView):
    internal = True
    calls = {"PUT": Call("Give a try back; idempotent", body=SettleIn)}

    def put(self, request):
        tcc.cancel(**self.body())
        return self.answer()


class TenantList(ContractView):
    """Staff see all; a user sees their own tenant."""

    kind = "tenant"
    calls = {"GET": Call("Tenants", out=TenantOut, many=True)}

    def get(self, request):
        mine = {} if request.user.is_staff else {"pk": request.user.tenant_id}
        return self.page(Tenant.objects.filter(**mine))


class TenantDetail(ContractView):
    kind = "tenant"
    calls = {
        "GET": Call("One tenant", out=TenantOut),
        "PUT": Call("Change the capacity, never below what is in use (staff)", body=CapacityIn, out=TenantOut),
    }

    def get(self, request, tenant):
        found = Tenant.objects.filter(name=tenant).first()
        if found is None or not (request.user.is_staff or request.user.tenant_id == found.pk):
            raise Missing("tenant")
        return self.answer(found)

    def put(self, request, tenant):
        if not request.user.is_staff:
            raise Refused("tenant: only staff may change a capacity")
        return self.answer(tcc.set_capacity(name=tenant, by=self.by, **self.body()))
