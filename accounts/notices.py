"""Notices: what a user is told of, in the page and, if they wish, by e-mail or webhook. Listens to the history.

A notice is written in the transaction of the change it tells of, and so are its deliveries: never one without the
other. What is no change of state (an alert, say) is told by `tell`.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models.signals import post_save
from django.utils import timezone

from kernel import after_commit
from kernel.messages import clip
from kernel.models import StateChange

from .models import Delivery, Notice, Preference, State, User

REASON_LENGTH = 2000
GOOD_ENDS = {("job", "finished")}
DOWN = ("application", "lose")  # was up, and is being brought back
DOWN_AGAIN = timedelta(minutes=10)  # one that falls again and again is told of once in so long


def tell(*, user: User, kind: str, name: str, event: str, reason: str = "") -> Notice:
    """Writes the notice and what is to be sent of it. Called inside the transaction of what it tells of."""
    notice = Notice.objects.create(
        user=user, kind=kind, name=name[:64], event=event[:16], reason=clip(reason, REASON_LENGTH)
    )
    chosen = Preference.objects.filter(user=user).first()
    if chosen is not None:
        for channel, address in ((Delivery.Channel.MAIL, chosen.email), (Delivery.Channel.WEBHOOK, chosen.webhook)):
            if address:
                row = Delivery.objects.create(notice=notice, channel=channel, not_before=timezone.now())
                after_commit.enqueue("accounts.deliver", row.pk)
    after_commit.changed(user.username, "notice", "")
    return notice


def unread(user: User) -> int:
    return Notice.objects.filter(user=user, read=False).count()


def mark_read(user: User, up_to: int) -> None:
    """Up to the newest that the person has seen, so that none that came meanwhile is missed."""
    Notice.objects.filter(user=user, read=False, pk__lte=up_to).update(read=True)
    after_commit.changed(user.username, "notice", "")


def _of_change(sender, instance: StateChange, created: bool, **_others) -> None:
    if not created or not _matters(instance):
        return
    user = User.objects.filter(username=instance.owner, state=State.ACTIVED).first()
    if user is not None:
        down = (instance.kind, instance.transition) == DOWN
        if down and _told_lately(user, instance):
            return
        event = "down" if down else instance.target
        tell(user=user, kind=instance.kind, name=instance.name, event=event, reason=instance.reason)


def _told_lately(user: User, change: StateChange) -> bool:
    since = timezone.now() - DOWN_AGAIN
    return Notice.objects.filter(user=user, kind=change.kind, name=change.name, event="down", at__gt=since).exists()


def _matters(change: StateChange) -> bool:
    """What ended well after a while, and what went wrong, unless the owner has ended it."""
    if (change.kind, change.target) in GOOD_ENDS or (change.kind, change.transition) == DOWN:
        return True
    return change.target == "error" and not (change.by == change.owner and change.reason.startswith("cancelled"))


def listen() -> None:
    post_save.connect(_of_change, sender=StateChange, dispatch_uid="accounts.notices")
