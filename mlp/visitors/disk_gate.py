"""The gate of the pages: a form that stores something is refused while the disk is nearly full (kernel.disk), with 503,
and while the user's rows take all that they may (kernel.stored), with 403.

A form goes on when its page is listed here, or when its button says that it deletes, cancels or stops. Administrators'
pages always go on, since they are how room is made. REST, MLflow, the data service and log intakes have gates of their
own.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from rest_framework.permissions import SAFE_METHODS

from accounts.auth import has_all_rights
from kernel import disk, stored
from kernel.errors import FAULT, Refused, describe, unlogged
from kernel.messages import translate

PASSING = frozenset(
    (
        "application", "application_delete", "change_password", "choose_password", "dataset_delete", "dataset_end",
        "deregister", "end_service_account", "end_session", "end_sessions", "failures_seen", "forgotten", "job_cancel",
        "job_delete", "logout", "model_delete", "notifications_read", "regist_login", "remove_factor", "renew_codes",
        "revoke_named", "rotate_token", "script_delete", "second_factor", "set_language", "share_revoke",
        "signin_connect", "signin_disconnect", "signin_start", "tenant_end", "tenant_remove", "trash_move",
        "use_passkey", "workspace_delete",
    )
)  # fmt: skip


class DiskGate:
    """Refuses the forms that store something while there is no room for it."""

    def __init__(self, get_response: Callable):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Callable, arguments, named) -> HttpResponse | None:
        if request.method in SAFE_METHODS or not _is_page(request, view) or _goes_on(request):
            return None
        try:
            disk.require()
            if not has_all_rights(request.user):
                stored.require(request.user.pk)
        except (disk.DiskFull, Refused) as problem:
            return _refusal(request, *describe(problem))
        return None


def _refusal(request: HttpRequest, status: int, reason: str) -> HttpResponse:
    response = render(request, "error.html", {"code": status, "reason": translate(reason)}, status=status)
    if status == FAULT:
        response["Retry-After"] = str(disk.DiskFull.retry_after_s)
    return unlogged(response)


def _is_page(request: HttpRequest, view: Callable) -> bool:
    """Return whether it is a page of users: what is guarded against forged requests, except the administrators'."""
    return not getattr(view, "csrf_exempt", False) and not request.path_info.startswith("/admin/")


def _goes_on(request: HttpRequest) -> bool:
    if request.resolver_match.url_name in PASSING:
        return True
    wish = request.POST.get("do", "").partition(":")[0]
    return wish in disk.FREEING or (request.resolver_match.url_name == "dataset_versions" and "delete" in request.POST)
