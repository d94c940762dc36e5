"""How many replicas an application may have: the numbers that its owner gives. Used by lifecycle and replicas."""

from __future__ import annotations

from kernel.errors import Refused
from resources import tcc

from .models import Application

MAX = 32
TARGET = 8  # requests at once per replica, where the number of replicas may change and none is given
MAX_TARGET = 10_000
KINDS = ("cpu", "gpu", "ram")
COLUMNS = ("replicas_min", "replicas_max", "target", "fewer_since")


def configure(app: Application, given: dict[str, int]) -> None:
    """Set `min`, `max` and `target` in a row that the caller locks and saves; what is not given stays as it is.

    Raises Refused for numbers that do not go together, and where the tenant never has as much as the fewest need.
    """
    least, most = given.get("min", app.replicas_min), given.get("max", app.replicas_max)
    target = given.get("target", app.target)
    for field, value, first in (("min", least, 0), ("max", most, 1)):
        if not first <= value <= MAX:
            raise Refused("must be from %(first)s to %(last)s", field=f"replicas.{field}", first=first, last=MAX)
    if least > most:
        raise Refused("must be at least the smallest number, %(least)s", field="replicas.max", least=least)
    if target is not None and not 1 <= target <= MAX_TARGET:
        raise Refused("must be from %(first)s to %(last)s", field="replicas.target", first=1, last=MAX_TARGET)
    tcc.never_fits(app.tenant, app.user.username, **{kind: getattr(app, kind) * max(least, 1) for kind in KINDS})
    app.replicas_min, app.replicas_max, app.fewer_since = least, most, None
    app.target = TARGET if target is None and (least, most) != (most, most) else target
