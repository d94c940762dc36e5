"""The approval of rollouts: where a tenant wants that, its administrators approve each step by which more requests go
to another model.

A step is `proposed` until then (apps.canaries), and the share of the requests stays as it is. An approval names the run
and the share that were looked at, so it counts for nothing that has taken their place. An application that is down
cannot move meanwhile, and without room for two runs it does not restart with the other model, but waits.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts import notices
from accounts.models import Membership, Notice, Role
from kernel import after_commit
from kernel.messages import Message
from kernel.models import record_change
from resources.models import Tenant

from .models import Application, Rollout

AGAIN = timedelta(minutes=10)  # until an administrator who has not read the last notice gets another one


def waiting(tenant: Tenant) -> QuerySet:
    """Return the rollouts of the tenant's applications that wait for an approval, the longest wait first."""
    rows = Rollout.objects.filter(app__tenant=tenant, phase=Rollout.Phase.CANARY, proposed__isnull=False)
    return rows.select_related("app__user", "app__model", "model").order_by("pk")


def ask(app: Application, rollout: Rollout, by: str) -> None:
    """Record that a locked rollout waits for the approval of its proposed share, and notify who may give it."""
    given = {"percent": rollout.proposed, "name": rollout.model.name}
    record(app, by, Message("%(percent)s %% of the requests to the model %(name)s: needs approval", **given))
    what = Message(
        "%(app)s of %(user)s needs your approval: %(percent)s %% of the requests to the model %(name)s.",
        app=app.name, user=app.user.username, **given,
    )  # fmt: skip
    link = f"/tenants/in/{app.tenant.name}"
    recently = Notice.objects.filter(read=False, link=link, at__gt=timezone.now() - AGAIN).values("user")
    rows = Membership.objects.filter(tenant=app.tenant_id, role=Role.ADMIN).exclude(user__in=recently)
    for membership in rows.select_related("user").order_by("pk"):
        notices.notify(user=membership.user, kind="user", name=membership.user.username,
                       event=gettext_noop("changed"), reason=what, link=link)  # fmt: skip


def record(app: Application, by: str, reason: Message) -> None:
    """Write what has become of a share to the application's history."""
    record_change(app, transition="canary", source=app.state, target=app.state, by=by, reason=reason)
    after_commit.changed(app.user.username, "application", app.name)
