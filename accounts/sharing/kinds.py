"""The kinds of objects that can be shared. Each app registers its own when it is loaded (`apps.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from django.db import models
from django.db.models.signals import post_delete

from accounts.models import Share

Parents = Callable[[Sequence[int]], Iterable[tuple[int, str, int]]]


def _none(_keys: Sequence[int]) -> Iterable[tuple[int, str, int]]:
    return ()


@dataclass(frozen=True)
class Kind:
    """A kind of object: its model, the URL name of its page, and the parents whose shares cover it.

    `parents` gets keys of objects and returns (key, kind, key of that parent): a shared project covers its jobs.
    """

    name: str
    model: type[models.Model]
    page: str
    parents: Parents = _none

    @property
    def of_tenant(self) -> bool:
        """Return whether such an object belongs to a tenant, whose administrators may read it."""
        return any(field.name == "tenant" for field in self.model._meta.fields)


KINDS: dict[str, Kind] = {}


def register(model: type[models.Model], *, page: str, parents: Parents = _none) -> None:
    """Add a kind of object that has `user` and `name`. Its shares are deleted with it."""
    name = model._meta.model_name
    KINDS[name] = Kind(name, model, page, parents)
    post_delete.connect(_deleted, sender=model, dispatch_uid=f"accounts.sharing.{name}")


def kind_of(row: models.Model | type[models.Model]) -> Kind:
    return KINDS[row._meta.model_name]


def _deleted(sender, instance, **_others) -> None:
    Share.objects.filter(kind=sender._meta.model_name, object_id=instance.pk).delete()
