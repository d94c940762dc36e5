"""The title of an object: any text, which pages show in place of its name. The name stays the key."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class Titled(models.Model):
    """A model whose rows have a title, empty for none. `untitled` is the beginning of a name that is made from a title
    without letters.
    """

    untitled = "object"

    # People may enter names.MOST_TITLE characters; MLflow's run names are longer.
    title = models.CharField(_("title"), max_length=500, blank=True, default="", db_default="")

    class Meta:
        abstract = True

    @property
    def shown_name(self) -> str:
        """Return what pages call it: the title that was given, else the name."""
        return self.title or self.name
