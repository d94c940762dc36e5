"""Displays shared by the admin's pages: badges, links, bars, and the history of an object as a timeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.formats import date_format, localize
from django.utils.html import format_html
from django.utils.translation import gettext

from . import units
from .messages import translate
from .models import StateChange, history_of

TONES = {
    "creating": "info",
    "starting": "info",
    "running": "primary",
    "ready": "success",
    "finished": "success",
    "error": "danger",
    "deleting": "warning",
    "Actived": "success",
    "NotActive": "warning",
    "tried": "info",
    "confirmed": "success",
    "training": "primary",
    "completed": "success",
}
HISTORY_ROWS = 50


@dataclass(frozen=True)
class HistoryLine:
    """One line of a history: who did what to which object, when and why."""

    at: datetime
    who: str
    kind: str
    subject: str
    url: str
    source: str
    target: str
    what: str
    why: str

    @property
    def kind_word(self) -> str:
        return word_of_kind(self.kind)

    @property
    def source_word(self) -> str:
        return word_of_state(self.kind, self.source)

    @property
    def target_word(self) -> str:
        return word_of_state(self.kind, self.target)

    @property
    def tone(self) -> str:
        return TONES.get(self.target, "plain")

    @property
    def brief(self) -> str:
        return short(self.why, 200)


def badge(state: str, text: str) -> str:
    return format_html('<span class="mlp-badge mlp-{}">{}</span>', TONES.get(state, "plain"), text)


def link(url: str, text: object) -> str:
    return format_html('<a class="mlp-link" href="{}">{}</a>', url, text) if url else str(text)


def short(text: str, limit: int = 90) -> str:
    """Return a reason on one line: the first and the last of several lines, with the whole reason as tooltip."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = lines[0] if lines else ""
    if len(lines) > 1:
        line = f"{line.partition(': ')[0][:30]}: … {lines[-1]}"
    return line if line == text and len(line) <= limit else _cut(text, line, limit)


def _cut(text: str, line: str, limit: int) -> str:
    return format_html('<span title="{}">{}{}</span>', text, line[:limit], "…" if len(line) > limit else "")


def moment(at: datetime | None) -> str:
    """Return the date and time as other pages show them (templates/_time.html)."""
    if at is None:
        return "-"
    local = timezone.localtime(at)
    return format_html(
        '<time datetime="{}" data-time="whole" class="mlp-moment">{} UTC</time>',
        local.isoformat(), date_format(local, "DATETIME_FORMAT"),
    )  # fmt: skip


def measured(value: float | None) -> str:
    """Return a number with about four significant digits, and the whole of it on hover; a dash for None."""
    if value is None:
        return "–"
    return format_html('<span title="{}">{}</span>', localize(value), units.short(value))


def bar(part: float, whole: float, text: str, *, plain: bool = False) -> str:
    """Return a bar with its text; unless `plain`, the colour warns when it is nearly full."""
    share = 0 if whole <= 0 else min(1.0, float(part) / float(whole))
    tone = "primary" if plain or share < 0.75 else "warning" if share < 0.9 else "danger"
    return format_html(
        '<span class="mlp-meter"><progress class="mlp-{}" max="100" value="{}" aria-label="{}"></progress>'
        "<span>{}</span></span>",
        tone,
        round(share * 100),
        text,
        text,
    )


def url_of(obj: Model) -> str:
    return reverse(f"admin:{obj._meta.app_label}_{obj._meta.model_name}_change", args=[quote(obj.pk)])


def list_address(name: str, **query) -> str:
    """Return the address of the filtered list of `app_model`; "" where there is no such list."""
    try:
        address = reverse(f"admin:{name}_changelist")
    except NoReverseMatch:
        return ""
    return f"{address}?{urlencode(query)}" if query else address


def object_url(kind: str, pk: object) -> str:
    """Return the admin page of an object by its model's name; "" where there is no such model."""
    model = _model_of(kind)
    if model is None:
        return ""
    try:
        return reverse(f"admin:{model._meta.app_label}_{kind}_change", args=[quote(pk)])
    except NoReverseMatch:
        return ""


def _model_of(kind: str) -> type[Model] | None:
    return next((model for model in admin.site._registry if model._meta.model_name == kind), None)


def word_of_kind(kind: str) -> str:
    """Return the model's name of a kind of object in the reader's language."""
    model = _model_of(kind)
    return str(model._meta.verbose_name) if model else kind


def word_of_state(kind: str, state: str) -> str:
    """Return the name of a state or event of that kind of object in the reader's language."""
    model = _model_of(kind)
    has_state = any(field.name == "state" for field in model._meta.fields) if model else False
    choices = dict(model._meta.get_field("state").choices or ()) if has_state else {}
    return str(choices.get(state) or (gettext(state) if state else ""))


def timeline_of(obj: Model, limit: int = HISTORY_ROWS) -> list[HistoryLine]:
    """Return the history of the object, newest first: its state changes and administrators' other actions."""
    rows = []
    if hasattr(obj, "history_owner"):
        rows += [changed(change) for change in history_of(obj).order_by("-id")[:limit]]
    kind = ContentType.objects.get_for_model(obj)
    acts = LogEntry.objects.filter(content_type=kind, object_id=str(obj.pk)).select_related("user", "content_type")
    rows += [acted(entry) for entry in acts.order_by("-id")[:limit]]
    return sorted(rows, key=lambda entry: entry.at, reverse=True)[:limit]


def changed(row: StateChange) -> HistoryLine:
    url = object_url(row.kind, row.object_id)
    return HistoryLine(
        row.at,
        row.by,
        row.kind,
        subject_of(row),
        url,
        row.source,
        row.shown_target,
        row.transition,
        translate(row.reason),
    )


def subject_of(row: StateChange) -> str:
    """Return owner/name; a user is their own owner."""
    return row.name if row.owner == row.name else f"{row.owner}/{row.name}"


def acted(row: LogEntry) -> HistoryLine:
    kind = row.content_type.model if row.content_type else ""
    url = object_url(kind, row.object_id)
    who = f"operator:{row.user.get_username()}"
    return HistoryLine(row.action_time, who, kind, row.object_repr, url, "", "", row.get_change_message(), "")


def state_name(obj: Model) -> str:
    """Return the translated state that pages show; "" where there is none."""
    if hasattr(obj, "shown_state_word"):
        return str(obj.shown_state_word)
    return str(obj.get_state_display()) if hasattr(obj, "get_state_display") else ""
