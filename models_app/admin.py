"""Models in the admin site: list, abort a creation, delete."""

from __future__ import annotations

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel import units
from kernel.admin import OwnedAdmin, Verb
from kernel.admin_display import link, object_url, url_of
from kernel.admin_trash import TrashFilter, trash_verbs
from kernel.messages import Message
from kernel.outcomes import Outcome

from . import external, lifecycle, trash
from .models import Model
from .registry import admin as registry_admin  # noqa: F401 (registers the registry)


def may_be_deleted(model: Model) -> None:
    lifecycle.require_no_version(model)
    lifecycle.require_unserved(model)


def delete(model: Model, *, by: str) -> None:
    lifecycle.delete_model(user=model.user, name=model.name, by=by)


def end(model: Model, *, by: str) -> None:
    lifecycle.fail(model.pk, Message("aborted by an administrator"), by=by, outcome=Outcome.CANCELLED)


@admin.register(Model)
class ModelAdmin(OwnedAdmin):
    icon = "deployed_code"
    list_display = ("name", "title", "user_link", "state_badge", "format", "size_text", "src", "why", "created_at")
    list_filter = ("state", TrashFilter, "format", "tenant")
    search_fields = ("name", "title", "user__username", "src", "reason")
    search_help_text = _("Name, title, username, source or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "format"), "reason_text", "served")}),
        (_("Files"), {"fields": (("src", "external", "size_text"), ("tenant_link", "request_link"), "folder", "sums")}),
        (_("Check"), {"fields": (("copied", "run_name"), ("run_ordered", "created"), "packages_text", "trashed")}),
    )
    verbs = {
        "end": Verb(
            label=_("Abort creation"),
            run=end,
            transition="fail",
            question=_("The copy or the load check is stopped; the model fails."),
            icon="stop_circle",
        ),
        **trash_verbs(trash.trash, trash.restore, check=trash.require_free),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            check=may_be_deleted,
            question=_("The model's files are deleted. A model that an application uses cannot be deleted."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    @display(description=_("size"), ordering="size")
    def size_text(self, model: Model) -> str:
        return units.size(model.size)

    @display(description=_("served by"))
    def served(self, model: Model) -> str:
        apps = model.served_by.order_by("pk").select_related("user")
        return format_html_join(", ", "{}", ((link(url_of(app), app.name),) for app in apps)) or "-"

    @display(description=_("resource request"))
    def request_link(self, model: Model) -> str:
        pk = lifecycle.request_id(model.pk)
        return link(object_url("resourcerequest", pk), pk)

    @display(description=_("folder"))
    def folder(self, model: Model) -> str:
        return str(external.folder(model))

    @display(description=_("packages"))
    def packages_text(self, model: Model) -> str:
        return model.shown_requirements or "-"

    @display(description=_("checksums"))
    def sums(self, model: Model) -> str:
        known = model.checksums.items() if isinstance(model.checksums, dict) else ()
        rows = ((path, file.get("sha256", "")) for path, file in list(known)[:20])
        return format_html_join("", "<div>{} <code>{}</code></div>", rows) or "-"
