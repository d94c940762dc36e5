"""What the page says of a form that is refused."""

from __future__ import annotations

import pytest

from .page_world import visible_text, visitor

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("origin", "signed_in", "why"),
    [
        (None, True, "The form has expired"),
        (None, False, "The browser sent no cookie"),
        ("https://elsewhere.example", True, "from another site than testserver"),
    ],
)
def test_a_refused_form_is_told_why(alice, origin, signed_in, why):
    client = visitor(alice if signed_in else None, enforce_csrf_checks=True)
    if signed_in:
        client.get("/datasets")  # gives the cookie
    headers = {"origin": origin} if origin else {}
    refused = client.post("/regist_login", {"username": "alice"}, headers=headers)
    assert (refused.status_code, why in visible_text(refused)) == (403, True)
