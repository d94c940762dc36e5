"""Signs of life for the probes of a container: a part without a port touches a file, which the probe looks at."""

from __future__ import annotations

import time

from django.conf import settings

EVERY_S = 5.0

_touched: dict[str, float] = {}  # by part


def alive(part: str) -> None:
    """Show that this process lives, also while another replica does the work. Without MLP_INSTANCE_DIR there is no
    probe, and nothing is done.
    """
    now = time.monotonic()
    if settings.INSTANCE_DIR is None or now - _touched.get(part, float("-inf")) < EVERY_S:
        return
    folder = settings.INSTANCE_DIR / "alive"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / part).touch()
    _touched[part] = now
