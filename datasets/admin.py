"""Datasets for operators: look, end a stuck upload, delete."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel import storage, units
from kernel.admin import OwnedAdmin, Verb
from kernel.admin_display import bar, link, object_url
from kernel.admin_trash import TrashFilter, trash_verbs
from kernel.messages import Message
from kernel.outcomes import Outcome

from . import lifecycle, trash
from .buckets import admin as bucket_admin
from .models import Dataset


def delete(dataset: Dataset, *, by: str) -> None:
    lifecycle.delete_dataset(user=dataset.user, name=dataset.name, by=by)


def end_upload(dataset: Dataset, *, by: str) -> None:
    lifecycle.fail(dataset.pk, Message("cancelled by an administrator"), by=by, outcome=Outcome.CANCELLED)


@admin.register(Dataset)
class DatasetAdmin(OwnedAdmin):
    icon = "database"
    list_display = (
        "name",
        "title",
        "user_link",
        "state_badge",
        "stored_bar",
        "size_text",
        "why",
        "tenant",
        "created_at",
    )
    list_filter = ("state", TrashFilter, "tenant")
    search_fields = ("name", "title", "user__username", "reason")
    search_help_text = _("Name, title, username or reason")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "tenant")
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("state_badge", "progress"), "reason_text")}),
        (_("Bytes"), {"fields": (("size_text", "stored_bar"), ("tenant_link", "request_link"), "folder", "src")}),
        (_("When"), {"fields": (("created", "touched"), "trashed")}),
    )
    verbs = {
        "end": Verb(
            label=_("Abort upload"),
            run=end_upload,
            transition="fail",
            question=_("The dataset fails and refuses further uploads. It can then be deleted."),
            icon="stop_circle",
        ),
        **trash_verbs(trash.trash, trash.restore, check=trash.require_free),
        "delete": Verb(
            label=_("Delete"),
            run=delete,
            transition="erase",
            question=_("All files of the dataset are deleted and its space is freed. This cannot be undone."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    @display(description=_("size"), ordering="size")
    def size_text(self, dataset: Dataset) -> str:
        return units.size(dataset.size)

    @display(description=_("stored"), ordering="stored")
    def stored_bar(self, dataset: Dataset) -> str:
        values = {"part": units.size(dataset.stored), "percent": dataset.progress}
        return bar(dataset.progress, 100, gettext("%(part)s, %(percent)s %%") % values, plain=True)

    @display(description=_("resource request"))
    def request_link(self, dataset: Dataset) -> str:
        pk = lifecycle.request_id(dataset.pk)
        return link(object_url("resourcerequest", pk), pk)

    @display(description=_("folder"))
    def folder(self, dataset: Dataset) -> str:
        return str(storage.dataset_dir(dataset.user.username, dataset.name))


__all__ = ["bucket_admin"]  # imported for the admin that it registers
