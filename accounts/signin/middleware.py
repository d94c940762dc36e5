"""Ends sessions that were opened without a second factor where the operator has come to demand one."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import logout as close_session
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from . import entering, factors


class RequireSecondFactor:
    """Logs out whose session lacks the second factor that is required of them; costs nothing where none is."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SECOND_FACTOR != "none" and self.is_weak(request):
            close_session(request)
            messages.info(request, _("A second factor is required now. Log in again to give or to set up yours."))
        return self.get_response(request)

    @staticmethod
    def is_weak(request: HttpRequest) -> bool:
        user = request.user
        return user.is_authenticated and factors.required(user) and not request.session.get(entering.PROVEN)
