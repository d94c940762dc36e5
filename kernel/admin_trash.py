"""The trash on the administrators' pages: a filter of a list, and the verbs that move an object there and back."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.utils.translation import gettext_lazy as _

from .admin import Verb, always


class TrashFilter(admin.SimpleListFilter):
    """What is in the trash, or what is not."""

    title = _("trash")
    parameter_name = "trash"

    def lookups(self, request, model_admin):
        return [("0", _("not in the trash")), ("1", _("in the trash"))]

    def queryset(self, request, queryset: QuerySet) -> QuerySet:
        return queryset if self.value() is None else queryset.filter(trashed__isnull=self.value() == "0")


def trash_verbs(
    trash: Callable[..., Model], restore: Callable[..., Model], *,
    check: Callable[[Model], object] = always, check_restore: Callable[[Model], object] = always,
) -> dict[str, Verb]:  # fmt: skip
    """Return the verbs of an app whose functions take `user`, `name` and `by`. The checks raise what those refuse."""

    def move(row: Model, *, by: str) -> None:
        trash(user=row.user, name=row.name, by=by)

    def take(row: Model, *, by: str) -> None:
        restore(user=row.user, name=row.name, by=by)

    return {
        "trash": Verb(
            label=_("Move to the trash"), run=move, icon="auto_delete", transition="erase", permission="delete",
            when=lambda row: row.trashed is None, check=check,
        ),
        "restore": Verb(
            label=_("Restore"), run=take, icon="restore_from_trash", transition="erase",
            when=lambda row: row.trashed is not None, check=check_restore,
        ),
    }  # fmt: skip
