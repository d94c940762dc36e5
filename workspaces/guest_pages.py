"""The pages of the guests of workspaces: the owner's form, and what a guest sees of a workspace."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_GET, require_POST

from kernel.pages import attempt

from . import addresses, guests, pages
from .models import Guest


@login_required
@require_POST
def change(request, name):
    """Invite a guest, or remove one: `do` is invite or remove."""
    row, who = pages.own(request, name), request.POST.get("guest", "").strip()
    by = request.user.username
    verbs = {
        "invite": lambda: guests.invite(user=request.user, name=row.name, guest=who, by=by),
        "remove": lambda: guests.remove(owner=by, name=row.name, guest=who, by=by),
    }
    do = request.POST.get("do", "")
    verb = verbs.get(do)
    problem = attempt(verb) if verb else _("Choose what to do.")
    if problem:
        messages.error(request, problem)
    elif do == "invite":
        messages.success(request, _("%(name)s is invited.") % {"name": who})
    return redirect("workspace", name=name)


def _standing(request, owner: str, name: str) -> Guest:
    """Return the invitation of the request's user. Raises Http404 where there is none in force."""
    if "\x00" in owner + name:
        raise Http404
    mine = Guest.objects.filter(user=request.user, workspace__user__username=owner, workspace__name=name)
    return get_object_or_404(mine.standing().select_related("workspace__user", "workspace__tenant"))


@login_required
@require_GET
def invitation(request, owner, name):
    """Show a workspace to a guest; its owner gets their own page."""
    if owner == request.user.username:
        return redirect("workspace", name=name)
    guest = _standing(request, owner, name)
    row = guest.workspace
    context = {
        "guest": guest,
        "workspace": row,
        "address": addresses.address_of(request, row),
        "shares_origin": addresses.ANY not in settings.WORKSPACE_URL,
        "unsteady": row.state in pages.UNSTEADY,
    }
    return render(request, "workspaces/invitation.html", context)


@login_required
@require_POST
def answer(request, owner, name):
    """Accept an invitation, or end it: `do` is accept or remove."""
    _standing(request, owner, name)
    by = request.user.username
    if request.POST.get("do") == "accept":
        problem = attempt(lambda: guests.accept(owner=owner, name=name, user=request.user, by=by))
        there = redirect("guest_workspace", owner=owner, name=name)
    else:
        problem = attempt(lambda: guests.remove(owner=owner, name=name, guest=by, by=by))
        there = redirect("workspaces")
    if problem:
        messages.error(request, problem)
    return there


@login_required
@require_GET
def enter(request, owner, name):
    """Let the browser of the owner in, or of a guest who has accepted."""
    if owner == request.user.username:
        return pages.enter(request, name)
    guest = _standing(request, owner, name)
    if guest.accepted is None:
        return redirect("guest_workspace", owner=owner, name=name)
    return pages.let_in(request, guest.workspace)
