"""Evaluation datasets and scorers for administrators: look, and delete. Imported by tracking.admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from jobs.models import EvaluationDataset, Scorer
from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import link, short, url_of

from . import datasets


def delete(row: EvaluationDataset, *, by: str) -> None:
    datasets.delete(row)


def delete_scorer(row: Scorer, *, by: str) -> None:
    row.delete()


def deletes(run, question) -> dict[str, Verb]:
    """Return the verb that deletes an object."""
    return {
        "delete": Verb(
            label=_("Delete"), run=run, question=question, icon="delete", tone="danger", permission="delete"
        ),
    }


@admin.register(EvaluationDataset)
class EvaluationDatasetAdmin(LifecycleAdmin):
    icon = "fact_check"
    list_display = ("key", "label", "user_link", "records_kept", "digest", "changed")
    search_fields = ("key", "name", "user__username")
    search_help_text = _("Id, name or username")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = (
        (None, {"fields": (("key", "label"), ("user_link", "records_kept"), ("digest",))}),
        (_("When"), {"fields": (("created", "created_by"), ("changed", "changed_by"))}),
    )
    verbs = deletes(delete, _("The evaluation dataset is deleted with its records. This cannot be undone."))

    @display(description=_("name"), ordering="name")
    def label(self, row: EvaluationDataset) -> str:
        return short(row.name) or "-"

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: EvaluationDataset) -> str:
        return link(url_of(row.user), row.user)


@admin.register(Scorer)
class ScorerAdmin(LifecycleAdmin):
    icon = "grading"
    list_display = ("label", "user_link", "project_link", "count", "created")
    search_fields = ("key", "name", "user__username", "project__name")
    search_help_text = _("Id, name, username or project")
    date_hierarchy = "created"
    ordering = ("-id",)
    list_select_related = ("user", "project__user")
    fieldsets = ((None, {"fields": (("key", "label"), ("user_link", "project_link"), ("count", "created"))}),)
    verbs = deletes(delete_scorer, _("The scorer is deleted with its versions. This cannot be undone."))

    def get_queryset(self, request):
        return super().get_queryset(request).annotate(number=Count("versions"))

    @display(description=_("name"), ordering="name")
    def label(self, row: Scorer) -> str:
        return short(row.name) or "-"

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Scorer) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("project"), ordering="project__name")
    def project_link(self, row: Scorer) -> str:
        return link(url_of(row.project), row.project.name)

    @display(description=_("versions"))
    def count(self, row: Scorer) -> int:
        return row.number
