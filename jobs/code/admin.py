"""Snapshots of code for administrators: whose, how many files, which jobs ran them. Imported by jobs.admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, Func, IntegerField
from django.db.models.fields.json import KeyTransform
from django.utils.html import format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs.models import Snapshot
from kernel import units
from kernel.admin import LifecycleAdmin
from kernel.admin_display import link, list_address, moment, url_of
from snapshots import manifest

MAX_LISTED = 200


@admin.register(Snapshot)
class SnapshotAdmin(LifecycleAdmin):
    icon = "data_object"
    list_display = ("short_digest", "user_link", "file_count", "jobs_link", "made_at")
    list_display_links = ("short_digest",)
    search_fields = ("digest", "user__username")
    search_help_text = _("Checksum or username")
    date_hierarchy = "made"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = ((None, {"fields": (("digest", "user_link"), ("file_count", "size"), ("jobs_link", "made"), "paths")}),)

    def get_queryset(self, request):
        rows = super().get_queryset(request).select_related("user").defer("manifest")
        files = Func(KeyTransform("files", "manifest"), function="jsonb_array_length", output_field=IntegerField())
        return rows.annotate(job_count=Count("jobs"), files=files)

    @display(description=_("checksum"), ordering="digest")
    def short_digest(self, row: Snapshot) -> str:
        return row.digest[:12]

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Snapshot) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("files"), ordering="files")
    def file_count(self, row: Snapshot) -> int:
        return row.files

    @display(description=_("jobs"), ordering="job_count")
    def jobs_link(self, row: Snapshot) -> SafeString:
        return link(list_address("jobs_job", snapshot__id__exact=row.pk), row.job_count)

    @display(description=_("created"), ordering="made")
    def made_at(self, row: Snapshot) -> str:
        return moment(row.made)

    @display(description=_("size"))
    def size(self, row: Snapshot) -> str:
        return units.size(manifest.from_data(row.manifest).size)

    @display(description=_("paths"))
    def paths(self, row: Snapshot) -> SafeString:
        """Return the first paths; the contents belong to the user and are not shown."""
        files = manifest.from_data(row.manifest).files
        shown = [(file.path, units.size(file.size)) for file in files[:MAX_LISTED]]
        if len(files) > MAX_LISTED:
            shown.append(("…", f"+ {len(files) - MAX_LISTED}"))
        return format_html_join(mark_safe("<br>"), "<code>{}</code> {}", shown) or "-"
