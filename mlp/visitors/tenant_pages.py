"""The pages of tenants: those that the user is in, and one with its members and, for its administrators, the work."""

from __future__ import annotations

from functools import partial

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.models import Membership, Role
from accounts.sharing.kinds import KINDS as READABLE
from accounts.tenancy import members
from apps import approvals, canaries
from kernel.locking import Missing
from kernel.pages import Problems, attempt, number_in, page_of, problems_of, read_form, why_not
from resources import limits, work
from resources.pages import bars, users_of
from resources.serializers import LimitIn

WORK_SHOWN = 200
CANCEL = (_("Cancel"), _("%(name)s of %(user)s is cancelled."))
VERBS = {  # what ending means of a kind of work
    "application": (_("Stop"), _("%(name)s of %(user)s is stopped.")),
    "schedule": (_("Pause"), _("%(name)s of %(user)s is paused.")),
}


@login_required
@never_cache
@require_GET
def tenants(request):
    """List the user's tenants, with the role in each; the user chooses the default one."""
    rows = Membership.objects.filter(user_id=request.user.member_id).select_related("tenant").order_by("tenant__name")
    return render(request, "tenants/tenants.html", {"rows": rows})


@login_required
@require_POST
def make_default(request):
    """Let what the user submits belong to that tenant by default."""
    tenant, user = request.POST.get("tenant", "").replace("\x00", ""), request.user
    problem = attempt(lambda: members.make_default(user=user, tenant=tenant, by=user.username))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, gettext("%(tenant)s is now your default tenant.") % {"tenant": tenant})
    return redirect("tenants")


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def tenant(request, name):
    """Show a tenant; a POST of its administrator adds a member, changes a role or sets a limit."""
    row, problems = _visible(request, name), Problems()
    manages = request.user.administers(row.pk)
    if request.method == "POST":
        if not manages:
            raise Http404
        action = _set_limit if request.POST.get("action") == "limit" else _put_member
        problems = problems_of(lambda: action(request, row), ("user", "role", *limits.KINDS))
        if not problems:
            return redirect("tenant", name=name)
    page = page_of(request, members.members_of(row, request.user))
    for membership in page.object_list:
        if manages or membership.user_id == request.user.pk:
            membership.unremovable = why_not(partial(members.require_other, membership))
    context = {
        "tenant": row,
        "bars": bars(row),
        "manages": manages,
        "role": Role(request.user.roles()[row.pk]).label if row.pk in request.user.roles() else "",
        "page": page,
        "roles": Role.choices,
        "users": users_of(request.user, row),
        "work": [_shown(item) for item in work.live(row, most=WORK_SHOWN)] if manages else [],
        "rollouts": approvals.waiting(row) if manages else [],
        "problems": problems,
        "form": request.POST if problems else {},
    }
    return render(request, "tenants/tenant.html", context, status=problems.status if problems else 200)


@login_required
@require_POST
def remove(request, name):
    """Take a member out of the tenant; its administrator may, and everybody may leave."""
    row, user = _visible(request, name), request.POST.get("user", "").replace("\x00", "")
    if user != request.user.username and not request.user.administers(row.pk):
        raise Http404
    problem = attempt(lambda: members.remove(tenant=name, user=user, by=request.user.username))
    if problem:
        messages.error(request, problem)
    elif user == request.user.username:
        messages.success(request, gettext("You have left the tenant %(tenant)s.") % {"tenant": name})
        return redirect("tenants")
    else:
        messages.success(request, gettext("%(user)s is no longer in this tenant.") % {"user": user})
    return redirect("tenant", name=name)


@login_required
@require_POST
def end_work(request, name):
    """Cancel a member's work, as the tenant's administrator."""
    row = _visible(request, name)
    if not request.user.administers(row.pk):
        raise Http404
    given = {field: request.POST.get(field, "").replace("\x00", "") for field in ("kind", "user", "name")}
    problem = attempt(lambda: work.end(row, by=request.user.username, **given))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, VERBS.get(given["kind"], CANCEL)[1] % given)
    return redirect("tenant", name=name)


@login_required
@require_POST
def approve(request, name):
    """Approve a step of a rollout, as the tenant's administrator."""
    row, given = _visible(request, name), request.POST
    if not request.user.administers(row.pk):
        raise Http404
    rollout = approvals.waiting(row).filter(pk=number_in(given.get("rollout", "")) or 0).first()
    percent, by = number_in(given.get("percent", "")) or 0, request.user.username
    problem = attempt(lambda: canaries.approve(rollout.pk if rollout else 0, given.get("run", ""), percent, by))
    if problem:
        messages.error(request, problem)
    else:
        messages.success(request, gettext("Approved: %(percent)s %% of the requests of %(app)s.")
                         % {"percent": percent, "app": rollout.app.name})  # fmt: skip
    return redirect("tenant", name=name)


def _visible(request, name: str):
    try:
        return members.visible(request.user, name.replace("\x00", ""))
    except Missing:
        raise Http404


def _put_member(request, row) -> None:
    user, role = request.POST.get("user", "").strip().replace("\x00", ""), request.POST.get("role", "")
    members.put(tenant=row.name, user=user, role=role, by=request.user.username)
    messages.success(
        request, gettext("%(user)s now has the role: %(role)s.") % {"user": user, "role": Role(role).label}
    )


def _set_limit(request, row) -> None:
    user = request.POST.get("user", "").strip().replace("\x00", "")
    given = read_form(request, LimitIn, cpu=float, gpu=int, ram=int, rom=int, database=int, outputs=int)
    values = {kind: given.get(kind) for kind in limits.LIMITED}
    if any(value is not None for value in values.values()):
        limits.set_limit(tenant=row.name, user=user, by=request.user.username, **values)
    else:
        limits.remove_limit(tenant=row.name, user=user, by=request.user.username)
    messages.success(request, gettext("The limit for %(user)s is set.") % {"user": user})


def _shown(item: work.Item) -> dict:
    verb = VERBS.get(item.kind, CANCEL)[0]
    return {"item": item, "url": _address(item), "verb": verb}


def _address(item: work.Item) -> str:
    """Return the address of the page of an item that administrators of its tenant may read, "" where it has none."""
    if item.kind not in READABLE or not READABLE[item.kind].of_tenant:
        return ""
    try:
        return reverse(work.KINDS[item.kind].page, args=[item.user, item.name])
    except NoReverseMatch:
        return ""
