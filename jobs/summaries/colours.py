"""The colours of runs in charts: a run has the same one on all pages, and the next run of its user another one."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.models import COLOURS, Job


def following(user) -> int:
    """Return the colour of the user's next run. The user's row is locked, so two new runs do not get the same one."""
    # As values: a row without its state would read it once more, for what follows its changes.
    newest = Job.objects.filter(user=user).order_by("-pk").values("pk", "colour").first()
    return (Job(**newest).shown_colour + 1) % COLOURS if newest else 0


def distinct(jobs: Sequence[Job]) -> list[int]:
    """Return the colours of runs that are compared: where two have the same, the later one gets one that is free."""
    wanted = {job.shown_colour for job in jobs}
    free = [colour for colour in range(COLOURS) if colour not in wanted]
    colours: list[int] = []
    for job in jobs:
        colours.append(free.pop(0) if job.shown_colour in colours and free else job.shown_colour)
    return colours
