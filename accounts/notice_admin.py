"""The admin's notifications, deliveries and browser sessions. Imported by accounts.admin."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from kernel.admin import LifecycleAdmin, Verb
from kernel.admin_display import badge, link, moment, short, url_of, word_of_kind, word_of_state
from kernel.messages import translate

from . import delivery, sessions
from .models import Delivery, Notice, Visit


@admin.register(Notice)
class NoticeAdmin(LifecycleAdmin):
    icon = "notifications"
    list_display = ("at_text", "user_link", "what", "event_text", "read", "why")
    list_display_links = ("at_text",)
    list_filter = ("kind", "event", "read")
    search_fields = ("user__username", "name", "title", "reason")
    search_help_text = _("Username, name, title or reason")
    date_hierarchy = "at"
    ordering = ("-id",)
    list_select_related = ("user",)
    show_full_result_count = False
    fieldsets = ((None, {"fields": (("at_text", "user_link"), ("what", "event_text", "read"), "reason_text", "sent")}),)

    @display(description=_("at"), ordering="at")
    def at_text(self, row: Notice) -> str:
        return moment(row.at)

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Notice) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("object"), ordering="name")
    def what(self, row: Notice) -> str:
        return f"{word_of_kind(row.kind)} {row.shown_name}"

    @display(description=_("event"), ordering="event")
    def event_text(self, row: Notice) -> str:
        return word_of_state(row.kind, row.event)

    @display(description=_("why"))
    def why(self, row: Notice) -> str:
        return short(translate(row.reason))

    @display(description=_("deliveries"))
    def sent(self, row: Notice) -> str:
        deliveries = [
            f"{delivery.get_channel_display()}: {how(delivery)}" for delivery in row.deliveries.order_by("id")
        ]
        return ", ".join(deliveries) or gettext("not sent out")


def how(row: Delivery) -> str:
    """Return the delivery's status."""
    if row.open:
        return gettext("queued") if not row.attempts else gettext("retrying")
    return gettext("failed") if row.error else gettext("delivered")


def again(row: Delivery, *, by: str) -> None:
    delivery.again(row)


@admin.register(Delivery)
class DeliveryAdmin(LifecycleAdmin):
    icon = "outgoing_mail"
    list_display = ("notice_link", "user_link", "channel", "state", "attempts", "next_try", "why")
    list_display_links = None
    list_filter = ("channel", "open")
    search_fields = ("notice__user__username", "notice__name", "error")
    search_help_text = _("Username, name or error")
    ordering = ("-id",)
    list_select_related = ("notice__user",)
    show_full_result_count = False
    fieldsets = (
        (
            None,
            {"fields": (("notice_link", "user_link"), ("channel", "state"), ("attempts", "next_try"), "error_text")},
        ),
    )
    verbs = {
        "again": Verb(
            label=_("Try again now"),
            run=again,
            when=lambda row: row.open or bool(row.error),
            icon="refresh",
        ),
    }

    def get_queryset(self, request):
        return super().get_queryset(request).select_related("notice__user")

    @display(description=_("notification"))
    def notice_link(self, row: Delivery) -> str:
        return link(url_of(row), str(row.notice))

    @display(description=_("user"), ordering="notice__user__username")
    def user_link(self, row: Delivery) -> str:
        return link(url_of(row.notice.user), row.notice.user)

    @display(description=_("state"), ordering="open")
    def state(self, row: Delivery) -> str:
        tone = "error" if row.error and not row.open else "deleting" if row.error else "ready"
        return badge("creating" if row.open and not row.error else tone, how(row))

    @display(description=_("next attempt"), ordering="not_before")
    def next_try(self, row: Delivery) -> str:
        return moment(row.not_before) if row.open else "-"

    @display(description=_("what went wrong"))
    def why(self, row: Delivery) -> str:
        return short(translate(row.error))

    @display(description=_("error"))
    def error_text(self, row: Delivery) -> str:
        return translate(row.error)


def end(visit: Visit, *, by: str) -> None:
    sessions.end(visit)


@admin.register(Visit)
class VisitAdmin(LifecycleAdmin):
    """The users' browser sessions; each can be logged out."""

    icon = "devices"
    list_display = ("at_text", "user_link", "browser", "address")
    list_display_links = ("at_text",)
    search_fields = ("user__username", "address", "agent")
    search_help_text = _("Username, address or browser")
    date_hierarchy = "at"
    ordering = ("-id",)
    list_select_related = ("user",)
    fieldsets = ((None, {"fields": (("at_text", "user_link"), "address", "agent")}),)
    verbs = {
        "delete": Verb(
            label=_("Log out"),
            run=end,
            question=_("This browser is logged out immediately."),
            icon="logout",
            tone="danger",
        ),
    }

    @display(description=_("since"), ordering="at")
    def at_text(self, row: Visit) -> str:
        return moment(row.at)

    @display(description=_("user"), ordering="user__username")
    def user_link(self, row: Visit) -> str:
        return link(url_of(row.user), row.user)

    @display(description=_("browser"), ordering="agent")
    def browser(self, row: Visit) -> str:
        return short(row.agent, 60)
