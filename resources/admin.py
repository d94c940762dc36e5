"""Tenants, limits, resource requests and usage for operators; changed through tcc and limits only."""

from __future__ import annotations

from django import forms
from django.apps import apps
from django.contrib import admin
from django.db.models import Model
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, list_address, moment, object_url, url_of
from kernel.errors import Refused

from . import limits, tcc, tenants
from .models import (
    IDLE_POLICY,
    LENDING,
    Applier,
    GpuProduct,
    Network,
    ResourceRequest,
    State,
    Tenant,
    UsageSample,
    UserLimit,
)
from .policies import INTERACTIVE, LOGS, RECORDS, RETENTION, ROLLOUTS
from .shown import (
    amount,
    compare,
    idle_in_words,
    in_words,
    interactive_in_words,
    lending_in_words,
    retention_in_words,
    share,
)
from .tenant_forms import (
    AmountsForm,
    CapacityForm,
    IdleForm,
    InteractiveForm,
    LendingForm,
    LogsForm,
    NetworkForm,
    RecordsForm,
    RetentionForm,
    RolloutsForm,
    TenantForm,
)

# Whose request it is, by the beginning of its id (see the managers' `request_id`).
OWNERS = {"job": "jobs.Job", "dataset": "datasets.Dataset", "model": "models_app.Model", "app": "apps.Application",
          "workspace": "workspaces.Workspace"}  # fmt: skip


# --- tenants ------------------------------------------------------------------------------------------------------
def capacity(tenant: Tenant, *, by: str, **values) -> None:
    """Set the values that differ; an unchanged form fixes the capacity, so that it no longer follows the machine."""
    changed = {kind: value for kind, value in values.items() if value != getattr(tenant, kind)}
    tenants.change(name=tenant.name, by=by, **(changed or values))


def policy(label: str, form: type[forms.Form], fields: tuple[str, ...], icon: str) -> Verb:
    """Return the action that sets these columns of a tenant."""
    return Verb(
        label=label,
        run=lambda tenant, **values: tcc.set_capacity(name=tenant.name, **values),
        form=form,
        initial=lambda tenant: {field: getattr(tenant, field) for field in fields},
        icon=icon,
        on_lists=False,
    )


@admin.register(Tenant)
class TenantAdmin(LifecycleAdmin):
    icon = "domain"
    list_display = ("name", "gpu_share", "cpu_share", "ram_share", "rom_share", "source")
    search_fields = ("name",)
    search_help_text = _("Name")
    ordering = ("name",)
    create_form = TenantForm
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("name", "source"),
                    ("members_of", "open_of"),
                    ("limits_of", "network_text"),
                    ("idle_text", "retention_text"),
                    ("lending_text", "log_model"),
                    ("interactive_text", "approves_rollouts"),
                    ("record_days",),
                )
            },
        ),
        (_("Resources"), {"fields": ("comparison",)}),
    )
    verbs = {
        "capacity": Verb(
            label=_("Set capacity"),
            run=capacity,
            form=CapacityForm,
            initial=Tenant.amounts,
            icon="tune",
            tone="primary",
            on_lists=False,
        ),
        "network": policy(_("Set network policy"), NetworkForm, ("network",), "lan"),
        "idle": policy(_("Set idle policy"), IdleForm, IDLE_POLICY, "hourglass_disabled"),
        "retention": policy(_("Set retention policy"), RetentionForm, RETENTION, "auto_delete"),
        "lending": policy(_("Set lending policy"), LendingForm, LENDING, "swap_horiz"),
        "logs": policy(_("Set log policy"), LogsForm, LOGS, "model_training"),
        "interactive": policy(_("Set policy of interactive work"), InteractiveForm, INTERACTIVE, "terminal"),
        "rollouts": policy(_("Set policy of rollouts"), RolloutsForm, ROLLOUTS, "swap_horiz"),
        "records": policy(_("Set policy of records"), RecordsForm, RECORDS, "receipt_long"),
        "delete": Verb(
            label=_("Delete"),
            run=lambda tenant, *, by: tenants.delete(name=tenant.name, by=by),
            when=lambda tenant: tenant.name != tenants.DEFAULT,
            check=tenants.require_empty,
            question=_(
                "Only a tenant in which nothing is left can be deleted. Its capacity returns to the default tenant."
            ),
            icon="delete",
            tone="danger",
            permission="delete",
            on_lists=False,
        ),
    }

    def create(self, *, by, **values):
        return tenants.create(by=by, **values)

    @display(description=_("Network"))
    def network_text(self, tenant: Tenant) -> str:
        return str(Network(tenant.network_policy).label)

    @display(description=_("Idle jobs"))
    def idle_text(self, tenant: Tenant) -> str:
        return idle_in_words(tenant)

    @display(description=_("Retention"))
    def retention_text(self, tenant: Tenant) -> str:
        return retention_in_words(tenant)

    @display(description=_("Lending and borrowing"))
    def lending_text(self, tenant: Tenant) -> str:
        return lending_in_words(tenant)

    @display(description=_("Interactive work"))
    def interactive_text(self, tenant: Tenant) -> str:
        return interactive_in_words(tenant)

    @display(description=_("GPU"), ordering="gpu_inuse")
    def gpu_share(self, tenant: Tenant) -> str:
        return share(tenant, "gpu")

    @display(description=_("CPU"), ordering="cpu_inuse")
    def cpu_share(self, tenant: Tenant) -> str:
        return share(tenant, "cpu")

    @display(description=_("Memory"), ordering="ram_inuse")
    def ram_share(self, tenant: Tenant) -> str:
        return share(tenant, "ram")

    @display(description=_("Disk"), ordering="rom_inuse")
    def rom_share(self, tenant: Tenant) -> str:
        return share(tenant, "rom")

    @display(description=_("members"))
    def members_of(self, tenant: Tenant) -> str:
        return link(list_address("accounts_membership", tenant__id__exact=tenant.pk), tenant.memberships.count())

    @display(description=_("open requests"))
    def open_of(self, tenant: Tenant) -> str:
        count = tenant.requests.filter(state=State.TRIED).count()
        query = {"tenant__id__exact": tenant.pk, "state__exact": State.TRIED.value}
        return link(list_address("resources_resourcerequest", **query), count)

    @display(description=_("limits of users"))
    def limits_of(self, tenant: Tenant) -> str:
        return link(list_address("resources_userlimit", tenant__id__exact=tenant.pk), tenant.limits.count())

    @display(description=_("usage, and sum of requests"))
    def comparison(self, tenant: Tenant) -> SafeString:
        return render_to_string("admin/resources/books.html", {"rows": compare(tenant)})


# --- limits -------------------------------------------------------------------------------------------------------


class LimitForm(AmountsForm):
    tenant = forms.ModelChoiceField(
        label=_("Tenant"), queryset=Tenant.objects.order_by("name"), widget=UnfoldAdminSelectWidget()
    )
    user = forms.CharField(
        label=_("User"),
        required=False,
        widget=UnfoldAdminTextInputWidget(),
        help_text=_("Leave empty for all users without a limit of their own."),
    )
    field_order = ["tenant", "user"]


def set_limit(limit: UserLimit, *, by: str, **values) -> None:
    limits.set_limit(tenant=limit.tenant.name, user=limit.user or limits.EVERYBODY, by=by, **values)


def remove_limit(limit: UserLimit, *, by: str) -> None:
    limits.remove_limit(tenant=limit.tenant.name, user=limit.user or limits.EVERYBODY, by=by)


@admin.register(UserLimit)
class UserLimitAdmin(LifecycleAdmin):
    icon = "speed"
    list_display = ("whose", "tenant_link", "gpu", "cpu_cores", "ram", "rom", "database", "outputs")
    list_filter = ("tenant",)
    search_fields = ("user",)
    search_help_text = _("Username")
    ordering = ("tenant__name", "user")
    list_select_related = ("tenant",)
    create_form = LimitForm
    fieldsets = (
        (None, {"fields": (("whose", "tenant_link"),)}),
        (_("Maximum at a time"), {"fields": (("gpu", "cpu_cores"), ("ram", "rom"), ("database", "outputs"))}),
    )
    verbs = {
        "change": Verb(
            label=_("Change"),
            run=set_limit,
            form=AmountsForm,
            initial=lambda limit: {kind: getattr(limit, kind) for kind in limits.LIMITED},
            icon="tune",
            tone="primary",
        ),
        "remove": Verb(
            label=_("Remove"),
            run=remove_limit,
            question=_("The default limit then applies to the user."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("tenant")

    def create(self, *, by, tenant, user, **values):
        return limits.set_limit(tenant=tenant.name, user=user or limits.EVERYBODY, by=by, **values)

    @display(description=_("CPU"), ordering="cpu")
    def cpu_cores(self, limit: UserLimit) -> str:
        return "-" if limit.cpu is None else amount("cpu", limit.cpu)

    @display(description=_("user"), ordering="user")
    def whose(self, limit: UserLimit) -> str:
        return limit.user or gettext("all users")

    @display(description=_("tenant"), ordering="tenant__name")
    def tenant_link(self, limit: UserLimit) -> str:
        return link(url_of(limit.tenant), limit.tenant)


@admin.register(UsageSample)
class UsageSampleAdmin(LifecycleAdmin):
    icon = "query_stats"
    list_display = ("at_text", "tenant", "owner", "applier_text", "amounts")
    list_filter = ("tenant", "applier")
    search_fields = ("=owner",)
    search_help_text = _("Owner (exact match)")
    date_hierarchy = "at"
    ordering = ("-id",)
    list_select_related = ("tenant",)
    show_full_result_count = False
    fieldsets = ((None, {"fields": (("at", "amounts"), ("tenant", "owner"), "applier_text")}),)

    @display(description=_("applier"), ordering="applier")
    def applier_text(self, row: UsageSample) -> str:
        return str(dict(Applier.choices).get(row.applier, row.applier)) or "-"

    @display(description=_("at"), ordering="at")
    def at_text(self, row: UsageSample) -> str:
        return moment(row.at)

    @display(description=_("amounts"))
    def amounts(self, row: UsageSample) -> str:
        return in_words(row)


@admin.register(GpuProduct)
class GpuProductAdmin(LifecycleAdmin):
    icon = "memory"
    list_display = ("__str__", "count")
    search_fields = ("name",)
    fieldsets = ((None, {"fields": (("name", "count"),)}),)


# --- requests -----------------------------------------------------------------------------------------------------
def owning(row: ResourceRequest) -> tuple[type[Model], str] | None:
    """Return the model and the key of the platform's object that the request is for; None for one over REST."""
    prefix, _colon, pk = row.pk.partition(":")
    label = OWNERS.get(prefix)
    if not row.owner or label is None or not apps.is_installed(label.partition(".")[0]):
        return None
    return apps.get_model(label), pk


def is_open(row: ResourceRequest) -> bool:
    """Return whether the request was tried over REST and not settled. A platform's object settles its own."""
    return row.state == State.TRIED and not row.owner


def may_cancel(row: ResourceRequest) -> bool:
    """Return whether an operator may cancel it: an open one, or one whose object no longer exists."""
    if row.state != State.TRIED or not row.owner:
        return is_open(row)
    owner = owning(row)
    return owner is not None and not owner[0].objects.filter(pk=owner[1]).exists()


def confirm(row: ResourceRequest, *, by: str) -> None:
    _still_open(row)
    tcc.confirm(id=row.pk, applier=row.applier)


def cancel(row: ResourceRequest, *, by: str) -> None:
    _still_open(row)
    tcc.cancel(id=row.pk, applier=row.applier)


def _still_open(row: ResourceRequest) -> None:
    """Raise Refused for a settled request: tcc, being idempotent, would accept it, but an operator should know."""
    if not ResourceRequest.objects.filter(pk=row.pk, state=State.TRIED).exists():
        raise Refused("the request was settled in the meantime", field="state")


@admin.register(ResourceRequest)
class ResourceRequestAdmin(LifecycleAdmin):
    icon = "receipt_long"
    list_display = ("id", "state_badge", "request_type", "amounts", "applier", "tenant_link", "owner", "created_at")
    list_filter = ("state", "request_type", "applier", "tenant")
    search_fields = ("id", "owner")
    search_help_text = _("ID or owner")
    date_hierarchy = "created"
    ordering = ("-created", "id")
    show_full_result_count = False
    fieldsets = (
        (None, {"fields": (("id", "state_badge"), ("request_type", "applier"), ("owner", "belongs_to"))}),
        (_("Resources"), {"fields": (("amounts", "tenant_link"),)}),
        (_("When"), {"fields": (("created", "settled"), "released")}),
    )
    verbs = {
        "confirm": Verb(
            label=_("Confirm"),
            run=confirm,
            when=is_open,
            question=_("A request keeps the resources it has reserved; a release frees them."),
            icon="check",
        ),
        "cancel": Verb(
            label=_("Cancel"),
            run=cancel,
            when=may_cancel,
            question=_("Frees the resources that a request has reserved; a release is discarded."),
            icon="close",
            tone="danger",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("tenant")

    @display(description=_("amounts"))
    def amounts(self, row: ResourceRequest) -> str:
        return in_words(row)

    @display(description=_("tenant"), ordering="tenant__name")
    def tenant_link(self, row: ResourceRequest) -> str:
        return link(url_of(row.tenant), row.tenant) if row.tenant else "-"

    @display(description=_("belongs to"))
    def belongs_to(self, row: ResourceRequest) -> str:
        owner = owning(row)
        if owner is None:
            return gettext("API request (no session)") if not row.owner else "-"
        model, pk = owner
        obj = model.objects.filter(pk=pk).first()
        if obj is None:
            return gettext("%(kind)s %(pk)s, which is gone") % {"kind": model._meta.verbose_name, "pk": pk}
        return link(object_url(model._meta.model_name, pk), f"{model._meta.verbose_name} {obj}")
