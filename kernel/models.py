"""StateChange: which object moved from which state to which, by whom, when and why.

Written by a receiver of django-fsm's signal, hence in the transaction of the change itself: never one without the
other. Rows are keyed by kind, owner and name, so they outlive the object. Read by the admin and the pages; each row
also notifies the open pages of its owner and of the operators.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _
from django_fsm.signals import post_transition

from . import after_commit
from .messages import ReasonField
from .telemetry import meters

STOPPED = ("cancelled", "pruned")  # outcomes of objects that were ended on purpose; see kernel.outcomes


class StateChanges(models.QuerySet):
    def failures(self) -> StateChanges:
        """Return the failures: what was cancelled, pruned or stopped on purpose is none."""
        return self.filter(target="error").exclude(outcome__in=STOPPED).exclude(transition="stop")


class StateChange(models.Model):
    at = models.DateTimeField(_("at"), auto_now_add=True)
    kind = models.CharField(_("kind"), max_length=32)
    owner = models.CharField(_("owner"), max_length=64)
    name = models.CharField(_("name"), max_length=256)
    object_id = models.BigIntegerField(_("object"))
    transition = models.CharField(_("transition"), max_length=32)
    source = models.CharField(_("from"), max_length=16)
    target = models.CharField(_("to"), max_length=16)
    by = models.CharField(_("who"), max_length=80)
    reason = ReasonField(_("reason"), blank=True)
    # How the object has ended, where the transition says so: a cancel is not a failure (kernel.outcomes).
    outcome = models.CharField(max_length=10, blank=True, default="", db_default="", editable=False)
    title = ""  # the current title, for notifications

    objects = StateChanges.as_manager()

    class Meta:
        db_table = "state_change"
        verbose_name = _("state change")
        verbose_name_plural = _("state changes")
        ordering = ["-id"]
        indexes = [
            models.Index(fields=["kind", "object_id"], name="state_change_object"),
            models.Index(fields=["owner", "-id"], name="state_change_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.owner}/{self.name}: {self.source} > {self.target}"

    @property
    def shown_target(self) -> str:
        """Return the new state as pages show it: a cancelled or stopped object is not an error."""
        if self.transition == "stop":
            return "stopped"
        return self.outcome if self.target == "error" and self.outcome in STOPPED else self.target


class StoredBytes(models.Model):
    """A change of what the rows of a user take in the database, negative for rows that were deleted: kernel.stored."""

    user_id = models.BigIntegerField(db_index=True)
    size = models.BigIntegerField()

    class Meta:
        db_table = "stored_bytes"

    def __str__(self) -> str:
        return f"{self.size} bytes of user {self.user_id}"


class RequestKey(models.Model):
    """The Idempotency-Key of a request that has created an object, and that request's digest: kernel.request_keys."""

    user_id = models.BigIntegerField()  # who has sent it
    key = models.CharField(max_length=100)
    digest = models.CharField(max_length=64)
    object_id = models.BigIntegerField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        db_table = "request_key"
        constraints = [models.UniqueConstraint(fields=["user_id", "key"], name="request_key_once")]

    def __str__(self) -> str:
        return f"{self.key} of user {self.user_id}"


class Lifecycle(models.Model):
    """The base of every object with a lifecycle; `history_owner` and `history_name` key its StateChange rows."""

    reading = None  # how a visitor reads another user's object: see accounts.sharing.access

    class Meta:
        abstract = True

    @property
    def history_owner(self) -> str:
        return self.user.username

    @property
    def history_name(self) -> str:
        return self.name

    @property
    def shown_state(self) -> str:
        """Return the state that pages show; a model overrides it where pages tell apart more than REST does."""
        return self.state

    @property
    def shown_state_word(self) -> str:
        """Return the word for `shown_state`, in the reader's language."""
        return self.get_state_display()


def refused(template: str) -> dict:
    """Return the `custom` of a transition: what a caller is answered in a state that it does not start from.

    The sentence speaks of what the caller asked for; `%(state)s` in it is the state of the object.
    """
    return {"refused": template}


def record_created(instance: models.Model, *, by: str, reason: str = "") -> StateChange:
    """Write the first row of an object's history. Called by its `create_…` verb in the same transaction."""
    return _write(instance, "create", "", instance.state, by, reason)


def record_change(
    instance: models.Model, *, transition: str, source: str, target: str, by: str, reason: str = ""
) -> None:
    """Write a row for a change of something that has no lifecycle, in the transaction of the change."""
    _write(instance, transition, source, target, by, reason)


def history_of(instance: models.Model):
    """Return the object's rows, newest first."""
    return StateChange.objects.filter(kind=instance._meta.model_name, object_id=instance.pk)


def _write(instance, transition: str, source: str, target: str, by: str, reason: str, outcome: str = "") -> StateChange:
    after_commit.changed(instance.history_owner, instance._meta.model_name, instance.history_name)
    counter = meters.STATE_CHANGES.labels(instance._meta.model_name, target)
    after_commit.run("count a change of state", counter.inc)
    change = StateChange(
        kind=instance._meta.model_name,
        owner=instance.history_owner,
        name=instance.history_name,
        object_id=instance.pk,
        transition=transition,
        source=source,
        target=target,
        by=by,
        reason=reason,
        outcome=outcome,
    )
    change.title = getattr(instance, "title", "")
    change.save()
    return change


def _after_transition(sender, instance, name, source, target, method_kwargs=None, **_others):
    if getattr(instance, "keeps_own_history", False):
        return
    given = method_kwargs or {}
    _write(instance, name, source, target, given["by"], given.get("reason", ""), given.get("outcome", ""))


def listen() -> None:
    post_transition.connect(_after_transition, dispatch_uid="kernel.state_change")
