"""An HTML file of a job's output in a real browser: its scripts run, and reach nothing."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import expect

from jobs.models import Job
from kernel import storage
from mlp.operators.tests.admin_world import put

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = """<!doctype html><meta charset=utf-8><title>report</title><body><p id=done></p><script>
const done = {};
const attempt = async (name, work) => { try { done[name] = String(await work()) } catch (problem) { done[name] = "" } };
(async () => {
  await attempt("cookie", () => document.cookie);
  await attempt("storage", () => localStorage.length + 1);
  await attempt("fetch", async () => (await fetch("/api/v1/users/alice")).status);
  await attempt("image", () => new Promise((good, bad) => {
    const one = new Image(); one.onload = good; one.onerror = () => bad(new Error("refused"));
    one.src = "/favicon.ico?here" }));
  await attempt("parent", () => parent.document.title);
  await attempt("top", () => { top.location = "/logout"; return "" });
  await attempt("window", () => window.open("/jobs") ? "open" : "");
  await attempt("origin", () => self.origin === "null" ? "" : self.origin);
  await attempt("eval", () => new Function("return 6 * 7")() === 42 ? "" : "wrong");
  document.getElementById("done").textContent = JSON.stringify(done);
})();
</script>"""


def test_scripts_of_a_page_run_without_cookies_and_network(alice_page, alice, site):
    put(Job, alice, "fit", "finished")
    folder = storage.job_dir("alice", "fit")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.html").write_text(PAGE)
    asked = []  # and answered: what the policy refuses is never sent
    alice_page.on("response", lambda response: asked.append(response.url.removeprefix(site.url)))
    alice_page.goto("/jobs/fit/files/report.html")
    result = alice_page.frame_locator("iframe.html-page").locator("#done")
    expect(result).to_contain_text("eval")
    outcomes = json.loads(result.text_content())
    assert len(outcomes) == 9
    assert {name: value for name, value in outcomes.items() if value} == {}
    frame = alice_page.locator("iframe.html-page").bounding_box()
    assert frame["width"] > 600  # of 1,280: without its style it would be as small as frames are by themselves
    assert frame["height"] > 300
    assert alice_page.url.endswith("/jobs/fit/files/report.html")
    assert not [path for path in asked if path.startswith(("/api/", "/favicon.ico?", "/logout"))]
    answer = alice_page.goto("/jobs/fit/html/report.html")
    assert answer.status == 404, "it does not take a tab of its own"
