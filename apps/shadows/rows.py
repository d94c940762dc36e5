"""The row of a shadow as its rollout begins and ends. Called by the verbs of rollouts, under the application's lock."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from kernel import after_commit
from kernel.messages import Message
from kernel.models import record_change

from ..models import Application, Rollout, Shadow, State

KEPT = 5  # of an application: the present one, and the latest that have ended
Outcome = Shadow.Outcome


def come_up(app: Application, rollout: Rollout) -> None:
    """Record that requests are copied from now on; after a restart of its run its time goes on."""
    shadow = Shadow.objects.get(pk=rollout.shadow_id)
    if shadow.began is None or shadow.ended is not None:
        shadow.began = timezone.now()
    shadow.ended, shadow.outcome, shadow.reason = None, "", ""
    shadow.save(update_fields=["began", "ended", "outcome", "reason"])
    _record(app, rollout.by, Message("%(percent)s %% of the requests are copied to the model %(name)s",
                                     percent=shadow.percent, name=shadow.model_name))  # fmt: skip


def close(app: Application, rollout: Rollout, outcome: str, by: str, reason: str = "") -> None:
    """Record how a shadow has ended; nothing for a rollout that is none. The first answer stays."""
    if rollout.shadow_id is None:
        return
    rows = Shadow.objects.filter(pk=rollout.shadow_id, ended=None)
    if rows.update(ended=timezone.now(), outcome=outcome, reason=reason):
        name = rollout.shadow.model_name
        words = {
            Outcome.PROMOTED: Message("the shadow is promoted: the model %(name)s", name=name),
            Outcome.OVER: Message("the time of the shadow is over: the model %(name)s", name=name),
            Outcome.FAILED: Message("the shadow has failed: the model %(name)s", name=name),
        }
        _record(app, by, words.get(outcome, Message("the shadow is ended: the model %(name)s", name=name)))


def is_over(shadow: Shadow) -> bool:
    """Return whether the time of a shadow is over."""
    if not shadow.minutes or shadow.began is None:
        return False
    return timezone.now() >= shadow.began + timedelta(minutes=shadow.minutes)


def percent_of(app: Application) -> int:
    """Return the share of the requests that is copied now; 0 without a shadow that is up."""
    rollout = getattr(app, "rollout", None)
    if app.state != State.READY or rollout is None or rollout.phase != Rollout.Phase.SHADOW or rollout.shadow is None:
        return 0
    return rollout.shadow.percent


def latest(app: Application) -> Shadow | None:
    """Return the present shadow of an application, or the last that it had."""
    return Shadow.objects.filter(app=app).order_by("-pk").first()


def _record(app: Application, by: str, reason: Message) -> None:
    record_change(app, transition="shadow", source=app.state, target=app.state, by=by, reason=reason)
    after_commit.changed(app.user.username, "application", app.name)
