"""The guests of workspaces: invites, accepts and removes them. The only writer of Guest. Called by api and pages.

A guest who has accepted enters a workspace in the browser as its owner does, and may do there whatever the owner may.
Each change is a row of the workspace's history. An invitation ends when the owner removes the guest, when the guest
declines or leaves, and when they leave the workspace's tenant, may only look at it from then on, or are deactivated.
"""

from __future__ import annotations

from django.db import transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts import notices
from accounts.models import SUBMITTING, User
from kernel import after_commit, names, trash
from kernel.errors import Refused
from kernel.locking import DELETING, Missing, WrongState, lock_row, locked
from kernel.messages import Message, word
from kernel.models import record_change

from . import entering, policy
from .models import Guest, State, Workspace

MOST = 20  # guests of a workspace
INVITED, REMOVED = gettext_noop("invited"), gettext_noop("removed")


def invite(*, user, name: str, guest: str, by: str) -> Guest:
    """Invite another user who may submit to the workspace's tenant; one who is invited already is not changed.

    Raises Missing; Refused: nobody of that name may submit to the tenant, which may allow no workspaces, or there are
    too many guests; WrongState for a workspace in the trash or being deleted.
    """
    names.name(guest, "guest")
    with transaction.atomic():
        person = lock_row(User, username=guest)  # before the workspace: what ends a membership waits, or has been
        with locked(Workspace, user=user, name=name) as workspace:
            require_open(workspace)
            if guest == user.username:
                raise Refused("must be another user", field="guest")
            if person is None or not _may_enter(person, workspace):
                raise Refused("no active user of this name can submit to the tenant %(tenant)s", field="guest",
                              tenant=workspace.tenant.name)  # fmt: skip
            invited = workspace.guests.filter(user=person).first()
            if invited is not None:
                return invited
            if workspace.guests.count() >= MOST:
                raise Refused("a workspace has at most %(most)s guests", field="guest", most=MOST)
            invited = Guest.objects.create(workspace=workspace, user=person)
            _record(workspace, "invite", by, Message("%(user)s is invited", user=guest))
            words = Message("%(owner)s invites you to this workspace.", owner=user.username)
            _tell(person, workspace, INVITED, words, reverse("guest_workspace", args=[user.username, name]))
    return invited


def require_open(workspace: Workspace) -> None:
    """Raise unless guests can be invited to a workspace: Refused by the tenant's policy, WrongState in the trash."""
    if workspace.state == DELETING:
        raise WrongState("the %(kind)s is already being deleted", kind=word("workspace"))
    trash.require_kept(workspace)
    policy.require_allowed(workspace.tenant)


def _may_enter(person: User, workspace: Workspace) -> bool:
    """Return whether a user can be invited: a service account has no browser."""
    submits = person.roles().get(workspace.tenant_id) in SUBMITTING
    return person.is_active and person.owner_id is None and submits


def accept(*, owner: str, name: str, user, by: str) -> Guest:
    """Accept an invitation. Raises Missing where it has ended."""
    with locked(Workspace, user__username=owner, name=name) as workspace:
        invited = workspace.guests.standing().filter(user=user).first()
        if invited is None:
            raise Missing("workspace")
        if invited.accepted is None:
            invited.accepted = timezone.now()
            invited.save(update_fields=["accepted"])
            _record(workspace, "accept", by, Message("%(user)s has accepted the invitation", user=user.username))
    return invited


def remove(*, owner: str, name: str, guest: str, by: str) -> None:
    """End an invitation: the owner removes the guest, or the guest declines or leaves. Their websockets are closed.

    Raises Missing.
    """
    with locked(Workspace, user__username=owner, name=name) as workspace:
        invited = workspace.guests.filter(user__username=guest).select_related("user").first()
        if invited is None:
            raise Missing("guest")
        _end(invited, by)
        if notices.name_of(by) != guest:
            words = Message("You are no longer a guest of this workspace of %(owner)s.", owner=owner)
            _tell(invited.user, workspace, REMOVED, words, reverse("workspaces"))


def end_all(user_id: int, by: str, tenant_id: int | None = None) -> None:
    """End all invitations of a user, or those to workspaces of a tenant, in the transaction of what ends them."""
    condition = Q(user=user_id) if tenant_id is None else Q(user=user_id, workspace__tenant=tenant_id)
    for invited in Guest.objects.filter(condition).select_related("user", "workspace__user").order_by("pk"):
        _end(invited, by)


def _end(invited: Guest, by: str) -> None:
    workspace = invited.workspace
    invited.delete()
    _record(workspace, "uninvite", by, Message("%(user)s is no longer a guest", user=invited.user.username))
    close_later(workspace.user_id)


def close_later(owner: int) -> None:
    """Close the websockets to the owner's workspaces whose log-ins have ended, after the commit.

    Later than the gateway remembers a login: else a page would connect again in between.
    """
    after_commit.enqueue("workspaces.close_ended", owner, delay_ms=int(2000 * entering.PLACE_S))


def close_links(**whose) -> None:
    """Have the websockets of a user's ended log-ins closed, in their own workspaces and where they are a guest.

    `whose` are conditions on the user.
    """
    own = Q(**{f"user__{key}": value for key, value in whose.items()})
    invited = Q(**{f"guests__user__{key}": value for key, value in whose.items()})
    for owner in Workspace.objects.filter(own | invited, state=State.READY).values_list("user", flat=True).distinct():
        close_later(owner)


def _record(workspace: Workspace, transition: str, by: str, reason: Message) -> None:
    record_change(workspace, transition=transition, source=workspace.state, target=workspace.state, by=by,
                  reason=reason)  # fmt: skip


def _tell(person: User, workspace: Workspace, event: str, words: Message, link: str) -> None:
    notices.notify(user=person, kind="workspace", name=workspace.name, event=event, reason=words, link=link,
                   title=workspace.title)  # fmt: skip
    after_commit.changed(person.username, "workspace", workspace.name)
