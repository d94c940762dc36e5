"""Fixtures of the tests in a real browser, and of a world with files that is made once for a file of tests.

A bare machine has no Chromium: there the tests in a browser are left out, and say so. CI installs it, and fails
without it.
"""

from __future__ import annotations

import copy
import os
import shutil
from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect

from kernel import storage

from .browser_world import LIVE_MS, Site, log_in
from .chromium import MISSING, program


@pytest.fixture(scope="module")
def keep_files(keep, tmp_path_factory):
    """Return a function that makes a world as `keep` does. It returns what each test calls: that puts the world's files
    into the storage, which is emptied before each test, and returns a copy of the objects that were made.
    """

    def make(world):
        root, kept = storage.root(), tmp_path_factory.mktemp("kept")
        places = [root / name for name in ("datasets", "code", "jobs", "models", "apps", "workspaces")]
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
        objects = keep(world)
        for place in places:
            if place.exists():
                shutil.move(place, kept / place.name)

        def put_back():
            shutil.copytree(kept, root, symlinks=True, dirs_exist_ok=True)
            return copy.deepcopy(objects)

        return put_back

    return make


@pytest.fixture(scope="session")
def chromium():
    if program() is None:
        pytest.fail(MISSING) if os.environ.get("CI") else pytest.skip(MISSING)


@pytest.fixture(scope="session")
def server(chromium, tmp_path_factory, django_db_setup, django_db_blocker):
    with django_db_blocker.unblock():
        site = Site(tmp_path_factory.mktemp("browser"))
        site.start()
    yield site
    site.close()


@pytest.fixture
def site(server, transactional_db, default_tenant):
    if not server.runs():
        server.start()
    return server


@pytest.fixture
def browser_errors(page):
    """Record errors and warnings of the browser, and failed responses."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "response", lambda answer: problems.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None
    )
    return problems


@pytest.fixture(scope="session")
def browser_context_args(browser_context_args, server):
    """Ask for still pages: a dot that breathes is drawn sixty times a second, by the processor."""
    return {**browser_context_args, "base_url": server.url, "reduced_motion": "reduce"}


@pytest.fixture
def context(context):
    """Use long time-outs: a busy machine is slow to draw a page, and other tests measure the speed."""
    expect.set_options(timeout=LIVE_MS)
    context.set_default_timeout(LIVE_MS)
    context.set_default_navigation_timeout(2 * LIVE_MS)
    return context


@pytest.fixture
def alice_page(page, context, site, alice, home, browser_errors):
    """Yield a page of a browser in which alice is logged in."""
    log_in(context, site, alice)
    yield page
    # A context that is closed while its page still loads has been seen to hang.
    with suppress(Error):  # a form that has just been sent may interrupt the first try
        page.goto("about:blank")
    page.goto("about:blank")
