"""What docs/security.md says of settings and of Django's own work: logs, the deployment's checks, keys of sessions."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time

import pytest
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from conftest import PASSWORD
from supervision import nginx

LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING kernel\.test: words$")


def test_every_process_logs_in_one_format_and_in_utc():
    config = settings.LOGGING
    assert {handler["formatter"] for handler in config["handlers"].values()} == {"line"}
    given = config["formatters"]["line"]
    formatter = logging.Formatter(given["format"], style=given["style"])
    record = logging.LogRecord("kernel.test", logging.WARNING, "x.py", 1, "words", None, None)
    assert LINE.match(formatter.format(record))
    assert settings.TIME_ZONE == "UTC"
    assert (time.timezone, time.tzname[0]) == (0, "UTC")
    assert formatter.formatTime(record, "%H") == time.strftime("%H", time.gmtime(record.created))
    formats = re.findall(r"log_format (\w+) '\$time_iso8601 ", nginx.fill("gateway.conf.tmpl", nginx.variables()))
    assert formats == ["platform"]


@pytest.mark.django_db
def test_a_key_of_a_session_cannot_be_guessed():
    keys = set()
    for _ in range(100):
        session = SessionStore()
        session.create()
        keys.add(session.session_key)
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}
    assert len(set("".join(keys))) == 36, "each character occurs, so a key has 32 times 5 bits"


@pytest.mark.long
def test_the_check_of_a_deployment_finds_nothing():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DJANGO"))}
    command = [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"]
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.django_db
@pytest.mark.usefixtures("alice")
def test_users_see_what_is_kept_of_their_sessions():
    agent = "Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0"
    client = Client(HTTP_USER_AGENT=agent)
    client.post("/regist_login", {"username": "alice", "password": PASSWORD, "action": "login"})
    page = client.get("/account").content.decode()
    assert "Firefox" in page
    assert "127.0.0.1" in page
