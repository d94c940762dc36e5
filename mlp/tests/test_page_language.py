"""The language of pages: it is chosen by the visitor, and every page has it."""

from __future__ import annotations

import pytest

from .page_world import PAGES, fill, markup, visitor

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice_client(alice):
    return visitor(alice)


def test_the_language_is_remembered(alice_client):
    response = alice_client.post("/set_language", {"language": "zh-hans", "next": "/jobs"})
    assert response["Location"] == "/jobs"
    assert 'lang="zh-hans"' in alice_client.get("/index").content.decode()


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "javascript:alert(1)", "/\\evil.example"])
def test_changing_the_language_never_redirects_to_another_site(alice_client, target):
    assert "evil" not in alice_client.post("/set_language", {"language": "en", "next": target})["Location"]


@pytest.mark.long
def test_every_page_renders_in_chinese(alice, alice_client):
    fill(alice)
    alice_client.cookies["django_language"] = "zh-hans"
    for address in PAGES:
        response = alice_client.get(address)
        assert response.status_code == 200, address
        assert 'lang="zh-hans"' in response.content.decode(), address
        assert markup(response).inline == [], address
