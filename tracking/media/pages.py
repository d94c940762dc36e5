"""The Media tab of a job: each media item with a slider over its steps; one item at one step; one file of it.

The selection is in the address, so that a page that refreshes itself shows it again: `at=kind:name:step` for each item
that does not show its last step, and `sort=kind:name:column:page` for tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_GET

from accounts.sharing.access import shareable
from jobs.file_pages import output_address
from jobs.frame import frame, own
from kernel import downloads

from . import shown
from .index import FILE, KINDS, Item, of_job, path_of

CARDS = 12  # on one page
SLIDER_STEPS = 1000  # a slider has at most so many
CHOICE = re.compile(rf"({'|'.join(KINDS)}):(.+):(\d{{1,16}})", re.DOTALL)
SORT = re.compile(rf"({'|'.join(KINDS)}):(.+):(-?\d{{0,6}}):(\d{{1,6}})", re.DOTALL)


@dataclass
class Chosen:
    """The selection in the address: steps, and the order and page of tables, by (kind, name)."""

    steps: dict[tuple[str, str], int] = field(default_factory=dict)
    sorts: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, query: QueryDict) -> Chosen:
        """Parse the selection in the address; invalid parts are ignored."""
        chosen = cls()
        for text in query.getlist("at")[:500]:
            if match := CHOICE.fullmatch(text):
                chosen.steps[match[1], match[2]] = int(match[3])
        for text in query.getlist("sort")[:500]:
            if match := SORT.fullmatch(text):
                chosen.sorts[match[1], match[2]] = (match[3], int(match[4]))
        return chosen


@shareable
@require_GET
def media(request: HttpRequest, name: str) -> HttpResponse:
    """Show the job's media."""
    row = own(request, name)
    index = of_job(row)
    query, kind = request.GET.get("q", "").strip()[:100], request.GET.get("kind", "")
    every = index.media()
    context_media = {
        key: steps
        for key, steps in every.items()
        if query.lower() in key[1].lower() and (kind not in KINDS or key[0] == kind)
    }
    page = Paginator(list(context_media.items()), CARDS).get_page(request.GET.get("page"))
    chosen = Chosen.read(request.GET)
    context = {
        **frame(row, "job_media"),
        "page": page,
        "cards": [card(row, key, steps, chosen) for key, steps in page.object_list],
        "any": bool(every),
        "kinds": [kind for kind in KINDS if any(key[0] == kind for key in every)],
        "kind": kind if kind in KINDS else "",
        "q": query,
        "invalid": index.invalid,
    }
    return render(request, "tracking/media/media.html", context)


@shareable
@require_GET
def part(request: HttpRequest, name: str) -> HttpResponse:
    """Return one media item as a fragment of a page: `?at=kind:name:step`, at the nearest step that is not later."""
    row, chosen = own(request, name), Chosen.read(request.GET)
    every = of_job(row).media()
    key = next(iter(chosen.steps), None)
    if key not in every:
        raise Http404
    return render(request, "tracking/media/_item.html", {"job": row, **card(row, key, every[key], chosen)})


@shareable
@require_GET
def file(request: HttpRequest, name: str, path: str) -> HttpResponse:
    """Send one file: an image or a sound to be shown, any other as a download."""
    row = own(request, name)
    opened = shown.open_item(row, path) if FILE.fullmatch(path) else None
    if opened is None:
        raise Http404
    kind = "" if "download" in request.GET else shown.kind_of(opened)
    return downloads.send(request, opened, path.rpartition("/")[2], output_address(row, path_of(path)), kind)


def card(row, key: tuple[str, str], steps: dict[int, list[Item]], chosen: Chosen) -> dict:
    """Return the context of an item at the selected step: the nearest that is not later, by default the last."""
    kind, name = key
    numbers = list(steps)
    wanted = chosen.steps.get(key, numbers[-1])
    step = max((number for number in numbers if number <= wanted), default=numbers[0])
    sort, page = chosen.sorts.get(key, ("", 1))
    stride = -(-len(numbers) // SLIDER_STEPS)
    on_slider = sorted({*numbers[::-stride], step})
    place = on_slider.index(step)
    return {
        "id": f"{kind}:{name}",
        "kind": kind,
        "name": name,
        "steps": on_slider,
        "count": len(numbers),
        "place": place,
        "latest": step == numbers[-1],
        "back": on_slider[place - 1] if place else None,
        "forward": on_slider[place + 1] if place + 1 < len(on_slider) else None,
        "shown": shown.at_step(row, kind, steps, step, sort, page),
    }
