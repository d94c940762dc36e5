"""The versions of models that applications follow by an alias. Used by lifecycle and rollouts."""

from __future__ import annotations

from kernel.errors import Refused
from models_app.models import Alias


def alias_named(user, uri: str) -> Alias:
    """Return the user's alias of a URI such as models:/churn@champion. Raises Refused."""
    name, _at, alias = uri.removeprefix("models:/").rpartition("@")
    rows = Alias.objects.select_related("version__model").filter(registered__user=user, registered__name=name)
    row = rows.filter(name=alias).first() if "\x00" not in uri else None
    if row is None:
        raise Refused("you have no alias %(alias)s", field="follows", alias=uri)
    if row.version.model is None:
        raise Refused("the files of version %(number)s are not on this platform", field="follows",
                      number=row.version.number)  # fmt: skip
    return row
