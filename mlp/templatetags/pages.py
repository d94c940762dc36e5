"""The templates' own filters: `{% load pages %}`."""

from __future__ import annotations

import json

from django import template
from django.conf import settings
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as noop

from kernel import admin_display, ansi, messages
from kernel import markdown as kernel_markdown
from kernel.models import StateChange
from kernel.units import memory, size
from tracking.metrics.series import TITLES

register = template.Library()


@register.simple_tag
def most(kind: str) -> int:
    """Return the most that one worker, or an application, may request: of cpu, gpu, or ram in MiB."""
    return {"cpu": settings.MAX_CPU, "gpu": settings.MAX_GPU, "ram": settings.MAX_RAM_MIB}[kind]


register.filter(memory)
register.filter(size)

# Actors that are no users (`by` of a state change), and the metrics that every job has: for the translation catalogue.
ACTORS = {
    noop("runner"), noop("check"), noop("copy"), noop("reconcile"), noop("platform"), noop("training controller"),
}  # fmt: skip


# The stages of a training of the log model, as it reports them.
STAGES = {
    "fetching data": noop("Fetching log lines"),
    "read": noop("Reading log lines"),
    "train": noop("Training"),
    "done": noop("Done"),
}


@register.filter
def stage(reported: str) -> str:
    """Return what a training is doing, in the reader's language; a stage that is not known as it is reported."""
    return _(STAGES[reported]) if reported in STAGES else reported


@register.filter
def say(message: str) -> str:
    """Return a reason or refusal in the reader's language."""
    return messages.translate(message or "")


@register.filter
def actor(by: str) -> str:
    """Return who made a change, translated where it is a component of the platform and not a user."""
    return _(by) if by in ACTORS else by


@register.filter
def metric(name: str) -> str:
    """Return a metric's title, translated for those that every job has."""
    return str(TITLES.get(name, name))


@register.filter
def target_word(row: StateChange) -> str:
    """Return the translated target state of a row of the history."""
    return admin_display.word_of_state(row.kind, row.shown_target)


@register.filter
def event_word(event: str) -> str:
    """Return a notification's event, translated."""
    return _("failed") if event == "error" else _(event)


@register.filter
def needs(row) -> str:
    """Return the requested resources of a job or application, such as `1 CPU, 512 MiB`; GPUs only where requested."""
    amounts = [f"{plain(row.cpu)} CPU", f"{row.gpu} GPU" if row.gpu else "", memory(row.ram)]
    return ", ".join(amount for amount in amounts if amount)


@register.filter
def markdown(text: str) -> str:
    """Render a user's Markdown as sanitized HTML."""
    return kernel_markdown.render(text or "")


@register.filter
def terminal(text: str, most: int = 0) -> str:
    """Return lines of a log as a terminal shows them, in colour; at most so many characters of each."""
    return ansi.html(text or "", most)


@register.filter
def drawn(row: dict) -> str:
    """Return a row of kernel.textlog as HTML."""
    return ansi.markup(row["text"], row.get("styles", ()))


@register.filter
def brief(reason: str) -> str:
    """Return a reason's first line, which says what happened, and its last, which usually says why."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    return "\n".join([lines[0], lines[-1]] if len(lines) > 1 else lines)


@register.filter
def first_line(reason: str) -> str:
    """Return the first line of a reason, without the lines of the log below it."""
    return reason.partition("\n")[0]


@register.filter
def plain(number) -> str:
    """Format a number without trailing zeros, with at most three decimals."""
    rounded = round(float(number), 3)
    digits = len(f"{rounded:.3f}".rstrip("0").partition(".")[2])
    return number_format(rounded, digits)


@register.filter
def measured(value) -> SafeString | str:
    """Return a number of a table with about four significant digits, and the whole of it on hover; a dash for none. A
    text stays as it is.
    """
    if isinstance(value, str):
        return value or "–"
    return admin_display.measured(value)


@register.simple_tag
def ticking(words: str, seconds: float, step: int = 1) -> SafeString:
    """Return words with a duration for their {}, which the page's script counts on, or down to 0 (`step` -1)."""
    return format_html(
        '<span data-ticking="{}" data-step="{}" data-words="{}">{}</span>',
        int(seconds), step, words, words.replace("{}", duration(seconds)),
    )  # fmt: skip


@register.simple_tag
def durations() -> str:
    """Return the forms of `duration` as JSON, for durations that the page's script counts on (page.js)."""
    return json.dumps([_("%(s)d s"), _("%(m)d min %(s)d s"), _("%(h)d h %(m)d min"), _("%(d)d d %(h)d h")])


@register.filter
def duration(seconds) -> str:
    """Return a duration, such as `12 s`, `3 min 12 s` or `2 h 5 min`; "" for None."""
    if seconds is None:
        return ""
    seconds = max(0, int(seconds))
    if seconds < 60:
        return _("%(s)d s") % {"s": seconds}
    if seconds < 3600:
        return _("%(m)d min %(s)d s") % {"m": seconds // 60, "s": seconds % 60}
    if seconds < 172800:
        return _("%(h)d h %(m)d min") % {"h": seconds // 3600, "m": seconds // 60 % 60}
    return _("%(d)d d %(h)d h") % {"d": seconds // 86400, "h": seconds // 3600 % 24}
