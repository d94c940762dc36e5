"""The title of an object: any text, which pages show in place of its name. The name stays the key.

Used by the models of every app, and by the calls and pages that change the title of any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.db import models
from django.utils.translation import gettext_lazy as _

from . import after_commit, names
from .fields import StrictSerializer, TitleField
from .locking import locked


class Titled(models.Model):
    """A model whose rows have a title, empty for none. `untitled` is the beginning of a name that is made from a title
    without letters.
    """

    untitled = "object"

    # People may enter names.MAX_TITLE characters; MLflow's run names are longer.
    title = models.CharField(_("title"), max_length=500, blank=True, default="", db_default="")

    class Meta:
        abstract = True

    @property
    def shown_name(self) -> str:
        """Return what pages call it: the title that was given, else the name."""
        return self.title or self.name


class TitleIn(StrictSerializer):
    title = TitleField()


def name_of(request_fields: Mapping[str, str], derive: Callable[[str], str]) -> dict[str, str]:
    """Return name and title of a new object whose name may be a text, from the fields of a form.

    `derive` makes a name from the title where none is entered. A title that is the name itself is not stored: a new
    name would not change what is shown.
    """
    name, title = (request_fields.get(field, "").strip() for field in ("name", "title"))
    name = name or derive(title)
    return {"name": name, "title": names.title("" if title == name else title)}


def set_title(model: type[Titled], *, user, name: str, title: str = "") -> Titled:
    """Save the title of the user's object, in any state. Raises Missing."""
    with locked(model, user=user, name=name) as row:
        row.title = title
        row.save(update_fields=["title"])
        after_commit.changed(user.username, model._meta.model_name, name)
    return row
