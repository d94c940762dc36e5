"""Middleware: the API's one error form, and the pages' Content-Security-Policy."""

from __future__ import annotations

import json
import logging
import secrets
import time

from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from .errors import FAULT, REFUSED, describe, error_response

log = logging.getLogger(__name__)

API = "/api/v1"
ALLOWED = {200, 201, 304, REFUSED, FAULT}  # 304: to a client that has asked whether its copy is current
WORDS = {
    400: "the request is not valid",
    401: "not authenticated: send Authorization: Bearer {token}",
    403: "not allowed",
    404: "no such address",
    405: "method: not allowed here",
    413: "body: too large",
}


def is_api(path: str) -> bool:
    return path == API or path.startswith(API + "/")


class ApiErrors:
    """Ensures that `/api/v1` answers 200, 201, 304, 403 or 503 only, each refusal with a `msg`.

    DRF's handler covers what its views raise; this covers the rest: middleware, URL resolving, bad hosts, bodies that
    are too large, bugs outside of a view.
    """

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if not is_api(request.path_info):
            # The database cannot store a null character, so no such object exists; querying it would be a fault.
            request.path_info = request.path_info.replace("\0", "\ufffd")
            request.begun = time.time()  # a page sends it, to be notified of changes since (mlp.visitors.live)
            return self.get_response(request)
        if "\0" in request.path_info:
            return error_response(REFUSED, "path: must not hold a null character")
        response = self.get_response(request)
        if response.status_code in ALLOWED and (response.status_code < 400 or self.has_msg(response)):
            return response
        if response.status_code >= 500:
            return error_response(FAULT, "internal error of the platform; try again later")
        return error_response(REFUSED, WORDS.get(response.status_code, "the request is not valid"))

    def process_exception(self, request: HttpRequest, exc: Exception) -> HttpResponse | None:
        if not is_api(request.path_info):
            return None
        status, msg = describe(exc)
        if status == FAULT:
            log.error("fault in %s %s", request.method, request.path, exc_info=exc)
        return error_response(status, msg)

    @staticmethod
    def has_msg(response: HttpResponse) -> bool:
        if response.streaming or not response.get("Content-Type", "").startswith("application/json"):
            return False
        try:
            body = json.loads(response.content)
        except ValueError:
            return False
        return isinstance(body, dict) and set(body) == {"msg"} and bool(body["msg"])


class ContentSecurityPolicy(MiddlewareMixin):
    """Lets only our own files run in our pages, and keeps answers out of shared caches and of other sites' pages.

    The admin's theme evaluates expressions (Alpine), so it needs a wider policy.
    """

    STRICT = (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    ADMIN = (
        "default-src 'self'; script-src 'self' 'unsafe-eval' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self' ws: wss:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    )
    # The reference page's start-up script is inline, and allowed by its nonce.
    REFERENCE = (
        "default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )

    def process_request(self, request: HttpRequest) -> None:
        request.csp_nonce = secrets.token_urlsafe(16)

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        if "Cache-Control" not in response:
            response["Cache-Control"] = "no-store" if is_api(request.path_info) else "private, no-cache"
        response.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if "Content-Security-Policy" in response:
            return response
        if request.path_info.startswith("/admin"):
            policy = self.ADMIN
        elif request.path_info.startswith("/api/v1/docs"):
            policy = self.REFERENCE.format(nonce=request.csp_nonce)
        else:
            policy = self.STRICT
        response["Content-Security-Policy"] = policy
        return response
