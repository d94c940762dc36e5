"""Attempts in a real browser to run code in the platform's pages, or to act for a visitor from another site's page.

What an application's page can try is in test_apart_browser.py.
"""

from __future__ import annotations

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from accounts import lifecycle as accounts
from jobs.models import Job
from kernel import storage
from models_app.models import Model

from .page_world import EVIL, EVIL_FILE, fill

pytestmark = pytest.mark.django_db(transaction=True)

SCRIPT = "<script>document.title = 'broken'; alert(1)</script>"
FILES = {
    "page.html": f"<!doctype html><body onload=alert(1)>{SCRIPT}<iframe src=javascript:alert(1)></iframe>",
    "picture.svg": f"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'>{SCRIPT}</svg>",
    "picture.png": f"\x89PNG\r\n\x1a\n{SCRIPT}",
    "table.csv": f'name,{SCRIPT}\n=HYPERLINK("javascript:alert(1)"),<img src=x onerror=alert(1)>\n',
    "notes.md": f"{SCRIPT} [a](javascript:alert(1)) <img src=x onerror=alert(1)>",
    "part.js": "alert(1)",
}
LOG = (
    f"\x1b[31m{SCRIPT}\x1b[0m\n\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07\n\x1b]0;broken\x07\n"
    f"{EVIL}\n\u202egnp.exe\n&lt;script&gt;alert(1)&lt;/script&gt;\n</pre>{SCRIPT}\n"
)
NOTES = "[one](javascript:alert(1)) [two](data:text/html,<script>alert(1)</script>) <a href='javascript:alert(1)'>x</a>"
PLACES = [
    "/jobs/fit", f"/jobs/fit/files/ckpt/{quote(EVIL_FILE)}", "/models/net", "/apps/calc", "/scripts",
    f"/search?q={quote(EVIL)}", "/notifications", "/aiops", "/compare?job=fit&job=done",
]  # fmt: skip


@pytest.fixture
def hostile(alice):
    """Objects of alice's whose every text, file and log line tries to run a script."""
    fill(alice, evil=True)
    workspace = storage.job_dir("alice", "fit")
    for name, text in FILES.items():
        (workspace / name).write_text(text, encoding="latin-1")
    (workspace / "log" / "job.log").write_text(LOG)
    Model.objects.filter(user=alice, name="net").update(notes=NOTES)


@pytest.fixture
def alarms(alice_page, site):
    """Record everything that shows that code has run, or that a page has asked another site for something."""
    seen: list[str] = []

    def on_dialog(dialog) -> None:
        seen.append(dialog.message)
        dialog.dismiss()

    alice_page.on("dialog", on_dialog)
    alice_page.on(
        "request", lambda request: None if request.url.startswith((site.url, "data:")) else seen.append(request.url)
    )
    return seen


def test_nothing_that_a_job_has_written_runs_in_a_page(alice_page, hostile, alarms):
    for place in [*PLACES, *(f"/jobs/fit/files/{name}" for name in FILES)]:
        alice_page.goto(place)
        alice_page.evaluate("alert('last')")  # comes after what has run, and is seen as that would be
        assert "broken" not in alice_page.title(), place
        links = alice_page.evaluate(
            "[...document.querySelectorAll('a, form, iframe')].map(one => one.href || one.action || one.src)"
        )
        assert not [link for link in links if str(link).startswith(("javascript:", "data:", "vbscript:"))], place
        assert alarms == ["last"], place
        alarms.clear()


@pytest.mark.long
def test_a_file_of_a_job_is_never_opened_as_a_page(alice_page, hostile, alarms):
    alice_page.goto("/jobs/fit")
    files = [f"/api/v1/users/alice/jobs/fit/artifacts/{name}" for name in FILES]
    for address in [*files, "/jobs/fit/log/download"]:
        with alice_page.expect_download():
            alice_page.evaluate("address => { location.href = address }", address)
    alice_page.goto("/jobs/fit/pictures/picture.png")  # begins like an image, and is sent as one
    assert "broken" not in alice_page.title()
    assert alarms == []


ELSEWHERE = """<!doctype html><meta charset=utf-8><title>working</title><script>
const site = %s, done = {};
async function attempt(name, work) { try { done[name] = String(await work()) } catch (problem) { done[name] = "" } }
const send = (path, body) => fetch(site + path, {method: "POST", mode: "no-cors", credentials: "include",
  headers: {"Content-Type": "text/plain"}, body});
const form = path => new Promise(resolve => {
  const frame = document.body.appendChild(document.createElement("iframe")); frame.name = "f" + Math.random();
  const made = document.body.appendChild(document.createElement("form"));
  Object.assign(made, {method: "post", action: site + path, target: frame.name}); frame.onload = resolve;
  for (const [key, value] of Object.entries({username: "bob", password: "x", name: "evil", entry: "train.py"})) {
    const field = made.appendChild(document.createElement("input")); field.name = key; field.value = value }
  made.submit(); setTimeout(resolve, 3000) });
const framed = path => new Promise((resolve, reject) => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  frame.onload = () => { try { resolve(frame.contentDocument.body.innerHTML) } catch (problem) { reject(problem) } };
  frame.src = site + path; setTimeout(reject, 3000) });
const socket = path => new Promise((resolve, reject) => {
  const made = new WebSocket(site.replace("http", "ws") + path);
  made.onmessage = event => resolve(event.data); made.onclose = made.onerror = reject; setTimeout(reject, 3000) });
onload = async () => {
  for (const path of ["/api/v1/users/alice/token", "/api/v1/auth", "/account", "/index"]) {
    await attempt("read " + path, async () => (await fetch(site + path, {credentials: "include"})).text());
    await attempt("frame " + path, () => framed(path)) }
  for (const path of ["/ws/live", "/api/v1/users/alice/job_metrics/fit"])
    await attempt("listen " + path, () => socket(path));
  await attempt("script", () => new Promise((resolve, reject) => {
    const made = document.head.appendChild(document.createElement("script"));
    made.onload = resolve; made.onerror = reject; made.src = site + "/api/v1/users/alice/token" }));
  for (const path of ["/api/v1/users/alice/jobs", "/api/v1/users/alice/token:rotate"])
    await send(path, JSON.stringify({name: "evil", entry: "train.py"})).catch(() => {});
  const forms = ["/jobs", "/account/token", "/account/deregister", "/logout", "/regist_login"];
  await Promise.all(forms.map(form));
  new Image().src = site + "/logout";
  document.title = "done " + JSON.stringify(done) };
</script>"""


class Elsewhere(BaseHTTPRequestHandler):
    """Another site: the same host at another port, which browsers take for the same site."""

    def __init__(self, target: str, *args):
        self.target = target
        super().__init__(*args)

    def do_GET(self):
        page = (ELSEWHERE % json.dumps(self.target)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture
def elsewhere(site):
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Elsewhere, site.url))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_sites_page_cannot_read_or_act_for_the_visitor(alice_page, alice, home, elsewhere):
    token = accounts.token_of(alice)
    alice_page.goto(elsewhere)
    expect(alice_page).not_to_have_title("working")
    done = json.loads(alice_page.title().removeprefix("done "))
    assert {name: outcome for name, outcome in done.items() if outcome} == {}
    assert not Job.objects.exists()
    alice.refresh_from_db()
    assert alice.is_active
    assert accounts.token_of(alice) == token
    alice_page.goto("/account")  # still logged in, as alice
    expect(alice_page.locator("body")).to_contain_text("alice")
    assert "/regist_login" not in alice_page.url
