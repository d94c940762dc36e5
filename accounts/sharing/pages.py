"""The pages of sharing: the shares of one object with the form for a new one, and the lists of shares."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from accounts.models import Share
from kernel.locking import Missing
from kernel.pages import Problems, page_of, problems_of, safe_next, why_not
from kernel.pages import address as platform_address

from . import access, grants, links
from .kinds import KINDS


@login_required
@never_cache
@require_http_methods(["GET", "POST"])
def share(request, kind, name):
    """Show the shares of an object of the user; a POST adds one. A new link is shown only in that response."""
    try:
        row = grants.own(request.user, kind, name)
    except Missing:
        raise Http404
    problems, created = Problems(), []
    if request.method == "POST":
        problems = problems_of(
            lambda: created.append(_create_share(request, row)), ("user", "tenant", "expires", "right", "audience")
        )
    token = created[0][1] if created else ""
    tenants = grants.tenants_to_share_with(request.user, row)
    if created and not token:
        return redirect("share", kind=kind, name=name)
    own_address = access.address(row, own=True)
    context = {
        "row": row,
        "kind": KINDS[kind],
        "back": own_address,
        "canonical": platform_address(request) + access.address(row, own=False),
        "shares": [{"share": share} for share in grants.shares_of(row)],
        "known": grants.known_to(request.user),
        "tenants": tenants,
        "tenant": tenants[0],
        "link": f"{platform_address(request)}{links.address_of(token)}" if token else "",
        "links": settings.SHARE_LINKS,
        "full": why_not(lambda: grants.require_room(request.user)),
        "problems": problems,
        "form": request.POST if problems else {},
        "usual": timezone.now() + grants.USUAL,
        "least": timezone.now(),
        "most": timezone.now() + grants.LONGEST,
    }
    response = render(request, "sharing/share.html", context, status=problems.status if problems else 200)
    response["Referrer-Policy"] = "same-origin"
    return response


def _create_share(request, row) -> tuple[Share, str]:
    given = {name: request.POST.get(name, "").strip() for name in ("audience", "user", "tenant", "right", "expires")}
    return grants.make(
        row=row,
        audience=given["audience"],
        right=given["right"] or Share.Right.READ,
        user=given["user"],
        tenant=given["tenant"] or None,
        expires=grants.moment(given["expires"]),
        by=request.user.username,
    )


@login_required
@require_POST
def revoke(request, share):
    """Revoke one of the user's shares."""
    row = grants.numbered(request.user, share)
    if row is None:
        raise Http404
    grants.revoke(row, by=request.user.username)
    messages.success(request, _("The share of %(name)s was revoked.") % {"name": row.name})
    return redirect(safe_next(request, "/shared/mine"))


@login_required
@require_GET
def with_me(request):
    """List what others share with the user."""
    return _list(request, grants.made_for(request.user), "shared")


@login_required
@require_GET
def by_me(request):
    """List what the user shares."""
    return _list(request, grants.made_by(request.user), "shared_mine")


def _list(request, shares, tab: str):
    shares = shares.filter(kind__in=list(KINDS))
    there = set(shares.order_by().values_list("kind", flat=True).distinct())
    kind = request.GET.get("kind", "") if request.GET.get("kind") in KINDS else ""
    page = page_of(request, shares.filter(kind=kind) if kind else shares)
    rows = [
        {"share": row, "url": access.address_of(_owner(request, row), KINDS[row.kind].page, row.name)}
        for row in page.object_list
    ]
    kinds = [each for each in KINDS if each in there or each == kind]
    return render(
        request, "sharing/shared.html", {"page": page, "rows": rows, "tab": tab, "kind": kind, "kinds": kinds}
    )


def _owner(request, row: Share) -> str | None:
    return None if row.owner_id == request.user.pk else row.owner.username
