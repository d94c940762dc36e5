"""Notices: a user's notifications, shown on pages and, if configured, sent by e-mail or webhook.

A receiver of StateChange writes a notice and its deliveries in the transaction of the change, so that neither exists
without the other. Events that are no change of state, such as an alert, are written by calling `notify`. Users choose
a level for each kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from django.db.models.signals import post_save
from django.utils import timezone
from django.utils.translation import gettext_noop

from kernel import after_commit
from kernel.messages import Message, clip
from kernel.models import StateChange

from .models import Delivery, Notice, Preference, State, User

log = logging.getLogger(__name__)

REASON_LENGTH = 2000
GOOD_ENDS = {("job", "finished"), ("sweep", "finished"), ("pipelinerun", "finished")}
DIGEST = timedelta(minutes=10)  # after an e-mail, the notices of so long are sent in one
DOWN = ("application", "lose")  # it was up, and is being restarted
ALL, FAILURES, NONE = "", "failures", "none"
# The levels that users choose from, for each kind. Notices about the account, its tenants and sharing have none.
LEVELS = dict.fromkeys(("job", "sweep", "pipelinerun"), (ALL, FAILURES, NONE))
LEVELS |= dict.fromkeys(("schedule", "dataset", "export", "model", "application", "alert"), (ALL, NONE))
DOWN_AGAIN = timedelta(minutes=10)  # the cooldown for an application that fails repeatedly
SILENT: list[Callable[[StateChange], bool]] = []  # return whether a change has no notice of its own


def notify(
    *, user: User, kind: str, name: str, event: str, reason: str = "", link: str = "", title: str = ""
) -> Notice:
    """Write a notice and its deliveries. Called inside the transaction of the event. What is below the
    user's level for its kind is listed as read, and is not sent.

    `link` is the path of the page that shows more, where it does not follow from kind and name.
    """
    preference = Preference.objects.filter(user=user).first() or Preference(user=user)
    wanted = _is_wanted(preference, kind, event)
    notice = Notice.objects.create(
        user=user, kind=kind, name=name[:64], event=event[:16], reason=clip(reason, REASON_LENGTH), link=link,
        read=not wanted, title=" ".join(title.split()),
    )  # fmt: skip
    if wanted and preference.email:
        _deliver(notice, Delivery.Channel.MAIL, _next_mail(user))
    if wanted and preference.webhook:
        _deliver(notice, Delivery.Channel.WEBHOOK, timezone.now())
    after_commit.changed(user.username, "notice", "")
    return notice


def _is_wanted(preference: Preference, kind: str, event: str) -> bool:
    level = preference.notification_levels.get(kind, ALL)
    return level == ALL or (level == FAILURES and (kind, event) not in GOOD_ENDS)


def _deliver(notice: Notice, channel: str, not_before: datetime) -> None:
    row = Delivery.objects.create(notice=notice, channel=channel, not_before=not_before)
    if not_before <= timezone.now():
        after_commit.enqueue("accounts.deliver", row.pk)  # others are found by reconcile


def _next_mail(user: User) -> datetime:
    """Return when an e-mail may go to the user: at once, or in the next digest."""
    now = timezone.now()
    mails = Delivery.objects.filter(notice__user=user, channel=Delivery.Channel.MAIL, not_before__gt=now - DIGEST)
    if waiting := mails.filter(open=True, attempts=0, not_before__gt=now).order_by("not_before").first():
        return waiting.not_before
    last = mails.order_by("-not_before").first()
    return min(last.not_before, now) + DIGEST if last else now


def tell(user: User, what: Message) -> None:
    """Notify the user, of a service account its owner, of a change of credentials, and log it."""
    log.info("%s: %s", user.username, what)
    notify(user=user.owner or user, kind="user", name=user.username, event=gettext_noop("changed"), reason=what)


def name_of(by: str) -> str:
    """Return the name of an actor as its user knows it."""
    return by.removeprefix("operator:")


def unread(user: User) -> int:
    return Notice.objects.filter(user=user, read=False).count()


def mark_read(user: User, up_to: int) -> None:
    """Mark the notices up to that key as read; those that arrived after the page was rendered stay unread."""
    Notice.objects.filter(user=user, read=False, pk__lte=up_to).update(read=True)
    after_commit.changed(user.username, "notice", "")


def _of_change(sender, instance: StateChange, created: bool, **_others) -> None:
    if not created or not _matters(instance) or any(check(instance) for check in SILENT):
        return
    user = User.objects.filter(username=instance.owner, state=State.ACTIVED).first()
    if user is not None:
        down = (instance.kind, instance.transition) == DOWN
        if down and _in_cooldown(user, instance):
            return
        event = "down" if down else instance.shown_target if instance.transition == "stop" else instance.target
        notify(user=user, kind=instance.kind, name=instance.name, event=event, reason=instance.reason,
               title=instance.title)  # fmt: skip


def silence(check: Callable[[StateChange], bool]) -> None:
    """Write no notices of changes for which `check` returns True: those of a sweep's trials, for example."""
    SILENT.append(check)


def _in_cooldown(user: User, change: StateChange) -> bool:
    since = timezone.now() - DOWN_AGAIN
    return Notice.objects.filter(user=user, kind=change.kind, name=change.name, event="down", at__gt=since).exists()


def _matters(change: StateChange) -> bool:
    """Return whether the change is worth a notice: a finished job, or a failure that its owner did not cause.

    A run that had ended when it was imported is not, nor is what leaves the state as it was: a move to the trash.
    """
    if change.transition == "create" or change.source == change.target:
        return False
    if (change.kind, change.target) in GOOD_ENDS or (change.kind, change.transition) == DOWN:
        return True
    return change.target == "error" and not (change.by == change.owner and change.shown_target != "error")


def listen() -> None:
    post_save.connect(_of_change, sender=StateChange, dispatch_uid="accounts.notices")
