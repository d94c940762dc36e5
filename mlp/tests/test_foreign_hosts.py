"""A request for another host name is refused, and fills no log with tracebacks."""

from __future__ import annotations

import io
import logging

import pytest
from django.test import Client

PATHS = ["/", "/regist_login", "/admin/login/", "/api/v1/auth", "/api/v1/users"]


@pytest.fixture
def written():
    """Return what the platform's log has got, as the settings have it written."""
    (handler,) = [one for one in logging.getLogger().handlers if one.get_name() == "stderr"]
    text = io.StringIO()
    before = handler.setStream(text)
    yield text.getvalue
    handler.setStream(before)


@pytest.mark.parametrize("host", ["evil.example", "a b", "x" * 300, "[::1", "evil.example\r\nX: 1", ""])
@pytest.mark.parametrize("path", PATHS)
def test_it_is_refused_without_a_traceback(path, host, settings, written):
    settings.ALLOWED_HOSTS = ["mlp.example.org"]
    response = Client(raise_request_exception=False).get(path, HTTP_HOST=host)
    assert response.status_code == (403 if path.startswith("/api") else 400)
    if path.startswith("/api"):
        assert set(response.json()) == {"msg"}
    assert "Traceback" not in written()
    assert len(written().splitlines()) <= 1
