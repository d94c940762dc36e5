"""Shares in the admin, where they can be revoked. Imported by accounts.admin."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from accounts.models import Share
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, moment, url_of, word_of_kind

from . import grants


def revoke(share: Share, *, by: str) -> None:
    grants.revoke(share, by=by)


@admin.register(Share)
class ShareAdmin(LifecycleAdmin):
    icon = "share"
    list_display = ("what", "owner_link", "audience", "with_whom", "right", "ends", "used_at", "revoked_at")
    list_display_links = ("what",)
    list_filter = ("kind", "audience", "right")
    search_fields = ("owner__username", "user__username", "name")
    search_help_text = _("Username or the object's name")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("owner", "user", "tenant")
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("what", "owner_link"),
                    ("audience", "with_whom", "right"),
                    ("created", "ends"),
                    ("used_at", "revoked_at"),
                )
            },
        ),
    )
    verbs = {
        "revoke": Verb(
            label=_("Revoke"),
            run=revoke,
            when=lambda share: share.revoked is None,
            question=_("People with access lose it immediately, also on open pages."),
            icon="link_off",
            tone="danger",
        ),
    }

    @display(description=_("object"), ordering="name")
    def what(self, row: Share) -> str:
        return f"{word_of_kind(row.kind)} {row.name}"

    @display(description=_("owner"), ordering="owner__username")
    def owner_link(self, row: Share) -> str:
        return link(url_of(row.owner), row.owner)

    @display(description=_("shared with"))
    def with_whom(self, row: Share) -> str:
        return "–" if row.audience == Share.Audience.LINK else grants.whom(row)

    @display(description=_("ends"), ordering="expires")
    def ends(self, row: Share) -> str:
        return moment(row.expires)

    @display(description=_("last used"), ordering="used")
    def used_at(self, row: Share) -> str:
        return moment(row.used)

    @display(description=_("revoked"), ordering="revoked")
    def revoked_at(self, row: Share) -> str:
        return moment(row.revoked)
