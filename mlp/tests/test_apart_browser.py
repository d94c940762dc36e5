"""An application's page, in a real browser whose visitor is logged in to the platform at the same host, gets nowhere.

Both share the host name, and with it everything that browsers keep for a host and not for one of its ports.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from django.test import Client
from playwright.sync_api import Error, expect

from accounts import lifecycle as accounts
from apps.models import Application
from apps.tests.conftest import NAMES, adder
from datasets.tests.live import servers, service

from .browser_world import LIVE_MS

__all__ = ["adder", "servers", "service"]
pytestmark = pytest.mark.django_db(transaction=True)

PAGE = """<!doctype html><meta charset="utf-8">
<meta http-equiv="set-cookie" content="sessionid=planted-by-meta">
<link rel="preload" as="fetch" href="{platform}/api/v1/users/alice/token" crossorigin="use-credentials">
<h1>A hostile application</h1>
<iframe name="inner" src="{platform}/index"></iframe>
<script>
const found = {{}};
async function attempt(name, action) {{
    try {{ found[name] = "DONE: " + await action(); }} catch (problem) {{ found[name] = problem.name; }}
}}
async function all() {{
    await attempt("read cookies", () => document.cookie);
    await attempt("set a cookie", () => {{ document.cookie = "sessionid=planted-by-script; path=/"; }});
    await attempt("cookie store", () => cookieStore.set("sessionid", "planted-by-store"));
    await attempt("storage", () => localStorage.length);
    await attempt("service worker", () => navigator.serviceWorker.register("worker.js"));
    const call = (path, options) => fetch("{platform}" + path, {{credentials: "include", ...options}});
    await attempt("read the token", async () => (await call("/api/v1/users/alice/token")).text());
    const rotate = "/api/v1/users/alice/token:rotate";
    await attempt("change the token", async () => (await call(rotate, {{method: "PUT"}})).status);
    await attempt("read a page", async () => (await call("/index")).text());
    await attempt("read the inner frame", () => frames.inner.document.body.innerText);
    await attempt("script the inner frame", () => frames.inner.eval("1"));
    await attempt("opener", () => window.opener === null ? Promise.reject(new TypeError()) : opener.document.title);
    await attempt("log out", async () => (await call("/logout", {{method: "POST", mode: "no-cors"}})).type);
    await attempt("socket", () => new Promise((opened, closed) => {{
        const socket = new WebSocket("{platform}/ws/live".replace("http", "ws"));
        socket.onopen = opened;
        socket.onerror = () => closed(new TypeError());
    }}));
    document.title = "over";
}}
all();
</script>"""
HEADERS = {
    "Content-Type": "text/html",
    "Set-Cookie": "sessionid=planted-by-header; Path=/",
    "Clear-Site-Data": '"cookies", "storage"',
    "Service-Worker-Allowed": "/",
    "Access-Control-Allow-Origin": "*",
    "Content-Security-Policy": "default-src * 'unsafe-inline' 'unsafe-eval'",
}


class Hostile(BaseHTTPRequestHandler):
    """An application that sends what its server holds, and the headers above."""

    def do_GET(self):
        self.send_response(200)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(self.server.page.encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def hostile(adder, service):
    """The address of a public application of alice's with the page above."""
    service.websockets or service.start_websockets()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hostile) as server:
        server.page = PAGE.format(platform=service.url)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        app = Application.objects.create(
            user=adder.user, tenant=adder.tenant, model=adder, name=next(NAMES), port=31000, state="ready",
            reserved=False, public=True, run_name="none", address=f"127.0.0.1:{server.server_port}",
        )  # fmt: skip
        yield f"http://127.0.0.1:{service.app_port}/alice/{app.name}/"
        server.shutdown()


@pytest.fixture
def visitor(chromium, browser, service, alice, hostile):
    """A browser in which alice is logged in to the platform."""
    client = Client()
    client.force_login(alice)
    context = browser.new_context(base_url=service.url)
    expect.set_options(timeout=LIVE_MS)
    context.set_default_timeout(LIVE_MS)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": service.url}])
    yield context
    context.close()


def kept(context) -> dict[str, str]:
    return {cookie["name"]: cookie["value"] for cookie in context.cookies()}


def test_an_applications_page_reaches_nothing_of_the_platform(visitor, hostile, service, alice):
    page = visitor.new_page()
    page.goto("/index")
    cookies, token = kept(visitor), accounts.token_of(alice)
    assert token in page.content(), "she is logged in"
    page.goto(hostile)
    expect(page).to_have_title("over")
    outcomes = page.evaluate("found")
    assert len(outcomes) == 13
    (logging_out,) = [outcomes.pop("log out")]
    assert {name: got for name, got in outcomes.items() if got.startswith("DONE")} == {}
    assert logging_out in {"DONE: opaque", "TypeError"}
    assert token not in json.dumps(outcomes)
    (inner,) = [frame for frame in page.frames if frame.name == "inner"]
    assert token not in inner.content(), "the platform's page is not shown in a frame"
    assert kept(visitor) == cookies
    assert accounts.token_of(alice) == token
    page.goto("/index")
    assert token in page.content(), "and she still is"


def test_neither_of_the_two_holds_the_others_window(visitor, hostile, service, alice):
    page = visitor.new_page()
    page.goto("/index")
    with visitor.expect_page() as opened:
        page.evaluate("address => { window.held = window.open(address) }", hostile)
    theirs = opened.value
    expect(theirs).to_have_title("over")
    assert theirs.evaluate("window.opener") is None
    assert page.evaluate("window.held.closed") is True, "the window that it holds is no longer that one"
    with visitor.expect_page() as opened:
        theirs.evaluate("address => { window.held = window.open(address) }", f"{service.url}/index")
    ours = opened.value
    ours.wait_for_load_state()
    assert accounts.token_of(alice) not in ours.content(), "the platform's page does not open in the sandbox"
    with pytest.raises(Error, match="SecurityError"):
        theirs.evaluate("window.held.document.title")


def test_the_platforms_page_shows_no_application_in_a_frame(visitor, hostile):
    page = visitor.new_page()
    page.goto("/index")
    violated = page.evaluate(
        """address => new Promise(resolve => {
        const frame = document.createElement("iframe");
        frame.name = "inner"; frame.src = address;
        document.addEventListener("securitypolicyviolation", event => resolve(event.effectiveDirective));
        document.body.append(frame);
    })""",
        hostile,
    )
    assert violated == "frame-src"
    assert all("hostile" not in frame.content() for frame in page.frames)
