"""Media of several runs side by side, at one step for all of them."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing.access import shareable
from tracking.media.index import KINDS, of_job
from tracking.media.pages import Chosen, card

from .pages import selected

MAX_RUNS = 12  # shown at once: each may have 24 pictures
MAX_STEPS = 1000


@shareable
@require_GET
def compare_media(request):
    """Show `?medium=kind:name` of the jobs `?job=a&job=b`, each at `?step=` or at its nearest earlier step."""
    jobs = selected(request)[:MAX_RUNS]
    if not jobs:
        raise Http404
    media_of_jobs = [of_job(job).media() for job in jobs]
    media = sorted(
        {key for steps_of in media_of_jobs for key in steps_of}, key=lambda key: (KINDS.index(key[0]), key[1])
    )
    asked = tuple(request.GET.get("medium", "").split(":", 1))
    key = asked if asked in media else next(iter(media), None)
    steps = sorted({step for steps_of in media_of_jobs for step in steps_of.get(key, ())})
    steps = sorted(steps[:: -(-(-len(steps) // MAX_STEPS) or 1)])  # the last one is always among them
    place = _place(request.GET.get("place", ""), len(steps))
    context = {
        "jobs": jobs,
        "media": [(f"{kind}:{name}", kind, name) for kind, name in media],
        "medium": f"{key[0]}:{key[1]}" if key else "",
        "steps": steps,
        "place": place,
        "step": steps[place] if steps else None,
        "shown": [
            _shown(job, steps_of, key, steps[place]) for job, steps_of in zip(jobs, media_of_jobs, strict=True) if key
        ],
        "most": MAX_RUNS,
    }
    return render(request, "tracking/compare_media.html", context)


def _place(text: str, count: int) -> int:
    """Return the index of the selected step; by default the last."""
    last = max(0, count - 1)
    return min(int(text), last) if text.isascii() and text.isdigit() and len(text) < 10 else last


def _shown(job, media: dict, key: tuple[str, str], step: int) -> dict:
    """Return the context of one run's medium; `card` is None where the run has logged none by then."""
    steps = media.get(key)
    if not steps or min(steps) > step:
        return {"job": job, "card": None}
    return {"job": job, "card": card(job, key, steps, Chosen(steps={key: step}))}
