"""Shared by all pages: forms with the REST interface's names, their errors, paging, safe redirects.

Used by every app's pages.py.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import Manager, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from rest_framework import exceptions as drf

from . import names
from .errors import Fault, Refused, TooMany, flatten
from .fields import StrictSerializer
from .messages import joined, sentences, translate, under
from .titles import Titled, TitleIn, set_title
from .trash import purged_at

ROWS = 50
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
FORMS_REMEMBERED = 20
STATE = "state"  # of an object in REST: no field of a form, and what is refused for it names the object
MADE = "forms"  # in the session: {form mark: name of what it created, and its title in a second line}


@dataclass
class Problems:
    """The errors of a form in the reader's language: of the form as a whole, and of single fields."""

    general: str = ""
    fields: dict[str, str] = field(default_factory=dict)
    status: int = 403
    retry_after_s: int = 0

    def __bool__(self) -> bool:
        return bool(self.general or self.fields)


@dataclass(frozen=True)
class Listing:
    """The words of a page that lists a user's objects of one kind (templates/list_frame.html), as lazy translations.

    `none` and `hint` stand where there is no object at all, `no_match` where the filter leaves none.
    """

    heading: str
    new: str
    none: str
    hint: str
    icon: str = ""
    about: str = ""
    no_match: str = ""


def read_form(request: HttpRequest, serializer: type[StrictSerializer], **convert: Callable[[str], object]) -> dict:
    """Return the posted fields that the serializer knows, validated; empty ones are left out. Raises as the serializer
    does.

    `convert` turns a field's text into what REST would have sent; text that does not convert is left for the serializer
    to refuse, so both interfaces give the same message.
    """
    values: dict = {}
    for name in serializer().fields:
        text = request.POST.get(name, "").strip()
        if name not in request.POST or text == "":
            continue
        try:
            values[name] = convert[name](request.POST[name]) if name in convert else text
        except (ValueError, OverflowError):
            values[name] = text
    return serializer.read(values)


def problems_of(action: Callable[[], object], fields: Iterable[str] = ()) -> Problems:
    """Run what a form asks for and return its errors, none on success. `fields` are those that the form shows."""
    try:
        action()
    except drf.ValidationError as refusal:
        detail = refusal.detail if isinstance(refusal.detail, dict) else {"": refusal.detail}
        return _sorted({name: flatten(problem) for name, problem in detail.items()}, fields)
    except Refused as refusal:
        problems = _sorted({refusal.field: refusal.problem}, fields)
        problems.retry_after_s = refusal.retry_after_s if isinstance(refusal, TooMany) else 0
        return problems
    except Fault as fault:
        return Problems(general=translate(fault.msg), status=503)
    return Problems()


def _sorted(messages: dict[str, str], fields: Iterable[str]) -> Problems:
    shown = {name: translate(problem) for name, problem in messages.items() if name in fields}
    others = {name: problem for name, problem in messages.items() if name not in fields}
    if set(others) in ({STATE}, {""}):
        return Problems(general=sentences(*others.values()), fields=shown)
    joint = joined(problem if name == STATE else under(name, problem) for name, problem in others.items())
    return Problems(general=translate(joint), fields=shown)


def why_not(check: Callable[[], object]) -> str:
    """Return why a button is not offered: what `check` refuses, in the reader's language; "" where it may be done."""
    try:
        check()
    except Refused as refusal:
        return sentences(refusal.problem)
    return ""


def attempt(action: Callable[[], object]) -> str:
    """Run the verb of a button; return "" on success, else the message for the user."""
    return problems_of(action).general


def act(request: HttpRequest, actions: Mapping[str, Callable], row, shown: HttpResponse) -> HttpResponse:
    """Do with an object what the form's `do` says. Return what the action answers; `shown` if that is nothing, or if it
    is refused, with a message that says why. Raises Http404 for a word that is none of the actions.
    """
    action, answers = actions.get(request.POST.get("do", "")), []
    if action is None:
        raise Http404
    problem = attempt(lambda: answers.append(action(request, row)))
    if problem:
        messages.error(request, problem)
    return shown if problem else answers[0] or shown


def number_in(text: str) -> int | None:
    """Return the number in a form or an address, of at most 17 digits 0 to 9; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 18 else None


def form_mark(request: HttpRequest) -> str:
    """Return a hidden value for a form that creates something, so that a form sent twice creates one object."""
    return request.POST.get("mark") or secrets.token_urlsafe(12)


def made_by(request: HttpRequest) -> str:
    """Return the name of what this form has created before, or "". With another name filled in it is another form."""
    name, _title = _made(request)
    return name if name == request.POST.get("name", "").strip() else ""


def _made(request: HttpRequest) -> tuple[str, str]:
    """Return the name of what a form with this mark has created, and the title that was filled in."""
    remembered = request.session.get(MADE, {}).get(request.POST.get("mark", "")[:40], "")
    return remembered.partition("\n")[::2]


def fill_name(request: HttpRequest, model: type[Titled]) -> None:
    """Add the name that the form leaves empty: a free one of the user's, made from the title."""
    title = request.POST.get("title", "").strip()
    if request.POST.get("name", "").strip() or not title:
        return
    earlier, of_title = _made(request)
    name = (
        earlier
        if earlier and of_title == title
        else free_name(model.objects.filter(user=request.user), title, model.untitled)
    )
    if not name:
        raise Refused("no free name was found; enter one", field="name")
    request.POST = request.POST.copy()
    request.POST["name"] = name


def retitle(request: HttpRequest, model: type[Titled], name: str) -> HttpResponse:
    """Save the title that the owner has entered on the object's page, and show that page again."""
    if not model.objects.filter(user=request.user, name=name).exists():
        raise Http404
    given = {"title": request.POST.get("title", "")}
    problem = attempt(lambda: set_title(model, user=request.user, name=name, **TitleIn.read(given)))
    if problem:
        messages.error(request, problem)
    return redirect(model._meta.model_name, name=name)


def remember_made(request: HttpRequest, name: str) -> None:
    mark = request.POST.get("mark", "")[:40]
    if mark:
        remembered = {**request.session.get(MADE, {}), mark: f"{name}\n{request.POST.get('title', '').strip()}"}
        request.session[MADE] = dict(list(remembered.items())[-FORMS_REMEMBERED:])


def create_once(
    request: HttpRequest, model: type[Titled], create: Callable[[HttpRequest], Titled], fields: Iterable[str]
) -> tuple[Problems, HttpResponse | None]:
    """Create what a posted form asks for, once. Return its problems, or the redirect to what it has created."""
    if request.method != "POST":
        return Problems(), None
    made: list[Titled] = []

    def submit() -> None:
        fill_name(request, model)
        made.append(create(request))
        remember_made(request, made[0].name)

    problems = problems_of(submit, fields)
    name = made_by(request) if problems else made[0].name
    return problems, redirect(model._meta.model_name, name=name) if name else None


def list_and_create(
    request: HttpRequest, rows: QuerySet | Manager, listing: Listing, template: str, *, states: Iterable[tuple],
    create: Callable[[HttpRequest], Titled], fields: Iterable[str], context: Callable[[HttpRequest], dict],
    opened_by: set[str], complete: Callable[[list], object] = lambda _: None, shown_field: Callable[[str], str] = str,
) -> HttpResponse:  # fmt: skip
    """Show the user's objects of a kind with the form of a new one, which a POST creates.

    `context` is what the template needs beside the list; `complete` adds to the rows what the table shows of them;
    `opened_by` are the parameters of the address that open the form; `shown_field` names the form's field for one of
    `fields`, where these are the REST interface's.
    """
    problems, made = create_once(request, rows.model, create, fields)
    if made is not None:
        return made
    problems.fields = {shown_field(name): text for name, text in problems.fields.items()}
    mine = rows.filter(user=request.user)
    matching, chosen = filtered(request, mine.order_by("-pk"), [state for state, _word in states])
    page = page_of(request, matching)
    complete(list(page.object_list))
    any_row = bool(page.object_list) or mine.exists()
    shown = {
        "listing": listing, "page": page, "states": states, "any": any_row, "problems": problems,
        "open": bool(problems or not any_row or opened_by & set(request.GET)), "mark": form_mark(request), **chosen,
    }  # fmt: skip
    return render(request, template, context(request) | shown, status=problems.status if problems else 200)


def page_of(request: HttpRequest, rows) -> Page:
    """Return the page of a list that `?page=` asks for; the nearest one when it is out of range."""
    return Paginator(rows, ROWS).get_page(request.GET.get("page"))


def filtered(request: HttpRequest, rows, states: list[str]) -> tuple[object, dict]:
    """Return the rows of `?state=` whose name contains `?q=`, and what the template shows of the filters."""
    state, query = request.GET.get("state", ""), request.GET.get("q", "").strip()[:50]
    if state in states:
        rows = rows.filter(state=state)
    if query and "\x00" not in query:
        matches = Q(name__contains=query.lower())
        rows = rows.filter(matches | Q(title__icontains=query) if issubclass(rows.model, Titled) else matches)
    return rows, {"state": state if state in states else "", "q": query}


def named(request: HttpRequest, rows: QuerySet, parameter: str):
    """Return the row that a parameter of the address names; None where there is none."""
    return rows.filter(name=request.GET.get(parameter, "").replace("\x00", "")).first()


def free_name(rows, name: str, otherwise: str = "") -> str:
    """Return the name if none of the rows has it, else the first free of trainb, trainc, …: names have letters only.

    `name` may be any text; characters that no name can have are dropped, and `otherwise` is taken where nothing is
    left. Returns "" when nothing is left or free.
    """
    stem = names.letters_of(name)[:48] or otherwise
    if not stem:
        return ""
    taken = set(rows.filter(name__startswith=stem).values_list("name", flat=True))
    letters = "bcdefghijklmnopqrstuvwxyz"
    more = (stem + first + second for first in ("", *letters) for second in letters)
    return next((free for free in (stem, *more) if free not in taken), "")


def address(request: HttpRequest) -> str:
    """Return the platform's address for who has sent the request: MLP_URL, else the host that the request names.

    What somebody else gets, such as an e-mail, has settings.GATEWAY_URL: a client may name any host.
    """
    if settings.GATEWAY_URL_GIVEN:
        return settings.GATEWAY_URL
    return f"{request.scheme}://{request.get_host()}"


def program_address(request: HttpRequest) -> str:
    """Return the address at which a program goes on: a run's own way to the platform, which may not reach MLP_URL."""
    host = request.get_host()
    if host == urlsplit(settings.RUN_GATEWAY_URL).netloc:
        return settings.RUN_GATEWAY_URL
    if urlsplit(f"//{host}").hostname in LOOPBACK:
        return f"http://{host}"
    return address(request)


def app_address(request: HttpRequest) -> str:
    """Return the application gateway's address: the setting, else another port of the platform's host."""
    if settings.APP_GATEWAY_URL:
        return settings.APP_GATEWAY_URL
    parts = urlsplit(address(request))
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{settings.APP_GATEWAY_PORT}"


def safe_next(request: HttpRequest, default: str) -> str:
    """Return where a form leads to: `next` when it is a path on this host, else the default."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    # Only paths: `redirect` takes anything else as the name of a page, and fails when there is no such page.
    safe = wanted.startswith("/") and url_has_allowed_host_and_scheme(wanted, None)
    return wanted if safe else default


def say_trashed(request: HttpRequest, row) -> None:
    """Add a message that an object was moved to the trash, with a button that restores it."""
    text = _("%(name)s moved to the trash.") % {"name": getattr(row, "shown_name", row.name)}
    messages.success(request, text, extra_tags=f"restore-{row._meta.model_name}/{row.name}")


def shown_in_trash(request: HttpRequest, row, *, unrestorable: str = "", undeletable: str = "") -> HttpResponse:
    """Return the page of an object that is in the trash. The last two say why it cannot be restored or deleted now."""
    context = {
        "row": row, "kind": row._meta.model_name, "purged": purged_at(row.trashed, row.tenant.trash_days),
        "unrestorable": unrestorable, "undeletable": undeletable,
    }  # fmt: skip
    return render(request, "in_trash.html", context)
