"""Links that open an object without an account. The token is moved from the address into the session at once.

The token is in the query of the address, which the platform does not log, and only until the redirect. The response
forbids browsers to send the address as a referrer.
"""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from accounts.auth import LINKS, links_of

from . import access, grants
from .kinds import KINDS

MAX_LINKS = 50  # that one session remembers; the oldest is forgotten
PARAMETER = "key"


def address_of(token: str) -> str:
    return f"{reverse('shared_link')}?{urlencode({PARAMETER: token})}"


@never_cache
@require_GET
def open_link(request: HttpRequest) -> HttpResponse:
    """Store the link in the session and redirect to its object. All errors get the same response."""
    share = grants.by_token(request.GET.get(PARAMETER, ""))
    if share is None or share.kind not in KINDS:
        response = render(request, "sharing/no_link.html", status=404)
    else:
        request.session[LINKS] = [*[key for key in links_of(request.session) if key != share.pk], share.pk][-MAX_LINKS:]
        response = redirect(access.address_of(share.owner.username, KINDS[share.kind].page, share.name))
    response["Referrer-Policy"] = "no-referrer"
    return response
