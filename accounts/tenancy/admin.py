"""Members of tenants for operators; changed through accounts.tenancy.members only."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from accounts.models import Membership, Role
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, url_of

from . import members


class RoleForm(forms.Form):
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, widget=UnfoldAdminSelectWidget())


class MemberForm(RoleForm):
    tenant = forms.ModelChoiceField(
        label=_("Tenant"), queryset=members.Tenants.order_by("name"), widget=UnfoldAdminSelectWidget()
    )
    user = forms.CharField(label=_("User"), widget=UnfoldAdminTextInputWidget())
    field_order = ["tenant", "user", "role"]


def change_role(row: Membership, *, by: str, role: str) -> None:
    members.put(tenant=row.tenant.name, user=row.user.username, role=role, by=by)


def remove(row: Membership, *, by: str) -> None:
    members.remove(tenant=row.tenant.name, user=row.user.username, by=by)


@admin.register(Membership)
class MembershipAdmin(LifecycleAdmin):
    icon = "groups"
    list_display = ("user_link", "tenant_link", "role_text", "by_groups", "created_at")
    list_filter = ("tenant", "role", "by_groups")
    search_fields = ("user__username",)
    search_help_text = _("Username")
    ordering = ("tenant__name", "user__username")
    list_select_related = ("tenant", "user")
    create_form = MemberForm
    fieldsets = ((None, {"fields": (("user_link", "tenant_link"), ("role_text", "by_groups"), "created_at")}),)
    verbs = {
        "role": Verb(
            label=_("Change role"),
            run=change_role,
            form=RoleForm,
            initial=lambda row: {"role": row.role},
            icon="manage_accounts",
            tone="primary",
        ),
        "remove": Verb(
            label=_("Remove"),
            run=remove,
            check=members.require_other,
            question=_("Active work continues; the user can submit nothing new to this tenant."),
            icon="group_remove",
            tone="danger",
            permission="delete",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("tenant", "user")

    def create(self, *, by, tenant, user, role):
        return members.put(tenant=tenant.name, user=user, role=role, by=by)

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Membership) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("tenant"), ordering="tenant__name")
    def tenant_link(self, row: Membership) -> str:
        return link(url_of(row.tenant), row.tenant)

    @display(description=_("role"), ordering="role")
    def role_text(self, row: Membership) -> str:
        return row.get_role_display()
