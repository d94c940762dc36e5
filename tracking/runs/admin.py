"""Projects and saved views for administrators. Imported by tracking.admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs.models import Project, View
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, list_address, moment, url_of
from kernel.admin_trash import TrashFilter

from . import projects, views


@admin.register(Project)
class ProjectAdmin(LifecycleAdmin):
    icon = "folder_special"
    list_display = ("name", "title", "user_link", "runs", "default", "updated_at", "trashed_at")
    list_filter = (TrashFilter, "default")
    search_fields = ("name", "title", "user__username")
    search_help_text = _("Name, title or username")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("name", "user_link"), ("runs", "default"), ("created", "updated"), "trashed_at")}),
        (_("Readme"), {"fields": ("readme",)}),
        (_("Board"), {"fields": ("panels", "goals", "tags")}),
    )
    verbs = {
        "delete": Verb(
            label=_("Move to the trash"),
            run=lambda project, by: projects.delete(project.user, project.pk, by),
            when=lambda project: project.trashed is None and not project.default,
            question=_("Its runs go to the trash with it. They can be restored together."),
            icon="auto_delete",
            tone="danger",
            permission="delete",
        ),
        "restore": Verb(
            label=_("Restore"),
            run=lambda project, by: projects.restore(project.user, project.pk, by),
            when=lambda project: project.trashed is not None,
            icon="restore_from_trash",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("user").annotate(run_count=Count("jobs"))

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Project) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("runs"), ordering="run_count")
    def runs(self, row: Project) -> SafeString:
        return link(list_address("jobs_job", project__id__exact=row.pk), row.run_count)

    @display(description=_("panels"))
    def panels(self, row: Project) -> str:
        return ", ".join(str(panel.get("kind", "")) for panel in row.board) or "-"

    @display(description=_("changed"), ordering="updated")
    def updated_at(self, row: Project) -> str:
        return moment(row.updated)

    @display(description=_("in the trash since"), ordering="trashed")
    def trashed_at(self, row: Project) -> str:
        return moment(row.trashed) if row.trashed else "-"


@admin.register(View)
class ViewAdmin(LifecycleAdmin):
    icon = "table_view"
    list_display = ("name", "user_link", "project_link", "query", "created_at")
    search_fields = ("name", "user__username", "project__name", "query")
    search_help_text = _("View, username, project or query")
    ordering = ("-id",)
    list_select_related = ("user", "project__user")
    fieldsets = ((None, {"fields": (("name", "user_link"), ("project_link", "created"), "query")}),)
    verbs = {
        "delete": Verb(
            label=_("Delete"),
            run=lambda view, by: views.delete(view.user, view.pk),
            question=_("The saved view is deleted. Its runs are kept."),
            icon="delete",
            tone="danger",
            permission="delete",
        ),
    }

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: View) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("project"), ordering="project__name")
    def project_link(self, row: View) -> str:
        return link(url_of(row.project), row.project) if row.project else "-"

    @display(description=_("created"), ordering="created")
    def created_at(self, row: View) -> str:
        return moment(row.created)
