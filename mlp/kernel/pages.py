"""What all pages share: reading forms in the REST interface's own terms, and paging. Used by every app's pages.py."""

from __future__ import annotations

from collections.abc import Callable

from django.core.paginator import Page, Paginator
from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from .errors import Fault, Refused
from .fields import StrictSerializer

ROWS = 50


def read_form(request: HttpRequest, serializer: type[StrictSerializer], **convert: Callable[[str], object]) -> dict:
    """The posted fields the serializer knows, judged by it; empty ones are left out. Raises Refused naming the field.

    `convert` turns a field's text into what REST would have sent; text that does not convert is left for the
    serializer to refuse, so both interfaces give the same words.
    """
    values: dict = {}
    for name in serializer().fields:
        text = request.POST.get(name, "").strip()
        if name not in request.POST or text == "":
            continue
        try:
            values[name] = convert[name](request.POST[name]) if name in convert else text
        except ValueError:
            values[name] = text
    return serializer.read(values)


def attempt(action: Callable[[], object]) -> str:
    """Runs a verb for a form; "" when it went well, else what to tell the person."""
    try:
        action()
    except (Refused, Fault) as problem:
        return problem.msg
    return ""


def page_of(request: HttpRequest, rows) -> Page:
    """The page of a list that `?page=` asks for; out of range gives the nearest."""
    return Paginator(rows, ROWS).get_page(request.GET.get("page"))


def safe_next(request: HttpRequest, default: str) -> str:
    """Where a form leads to: `next` when it stays on this host, else the default."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    safe = url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure())
    return wanted if wanted and safe else default
