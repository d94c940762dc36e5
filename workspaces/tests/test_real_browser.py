"""JupyterLab itself, in Chromium, on a platform of its own: a notebook's cell, a terminal, a file, and a failed job."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from client.tests.running import Client
from mlp.tests.attack.world import PASSWORD, Person
from mlp.tests.patience import LIMIT_S
from supervision.tests.running import Platform

pytestmark = [pytest.mark.e2e, pytest.mark.long]

INSTALLED_S = 600
# As JupyterLab's terminal does: a request with the XSRF token, then a websocket; the answer is what the shell has said.
TERMINAL = """async ([base, command]) => {
  const token = document.cookie.match(/_xsrf=([^;]*)/)[1];
  const options = {method: "POST", headers: {"X-XSRFToken": token}};
  const made = await (await fetch(base + "/api/terminals", options)).json();
  const refused = await fetch(base + "/api/terminals", {method: "POST"});
  if (refused.status !== 403) return "without the token: " + refused.status;
  const link = new WebSocket(base.replace("http", "ws") + "/terminals/websocket/" + made.name);
  let said = "";
  return await new Promise((done, failed) => {
    link.onerror = failed;
    link.onclose = () => done(said);
    link.onmessage = event => {
      const [kind, text] = JSON.parse(event.data);
      if (kind === "setup") link.send(JSON.stringify(["stdin", command]));
      if (kind === "stdout") said += text;
      if (kind === "disconnect") done(said);
    };
  });
}"""
# The websockets of Jupyter's events, of a terminal and of a kernel.
LINKS = """async base => {
  const token = document.cookie.match(/_xsrf=([^;]*)/)[1];
  const post = async path => (await fetch(base + path, {method: "POST", headers: {"X-XSRFToken": token}})).json();
  const terminal = await post("/api/terminals"), kernel = await post("/api/kernels");
  const paths = ["/api/events/subscribe", "/terminals/websocket/" + terminal.name,
                 "/api/kernels/" + kernel.id + "/channels"];
  window.links = paths.map(path => new WebSocket(base.replace("http", "ws") + path));
  await Promise.all(window.links.map(link => new Promise((done, failed) => {
    link.onopen = done;
    link.onerror = failed;
  })));
}"""
CLOSED = "window.links.every(link => link.readyState === WebSocket.CLOSED)"
BROKEN = """import sys
print("arguments", sys.argv[1:])
raise SystemExit("no such column")
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    platform = Platform(tmp_path_factory.mktemp("real") / "root")
    platform.start()
    yield platform
    platform.stop()
    platform.kill(*platform.everything())


@pytest.fixture(scope="module")
def alice(platform):
    return Person(platform, "alice")


def waited(person: Person, path: str, state: str, seconds: float = INSTALLED_S) -> dict:
    end = time.monotonic() + seconds
    while True:
        found = person.call("get", path).json()
        if found["state"] == state:
            return found
        assert found["state"] not in {"error", "stopped"} or state in {"error", "stopped"}, found
        assert time.monotonic() < end, found
        time.sleep(0.5)


def fetched(lab: Page, address: str) -> tuple[int, str]:
    """Return the status and the text that a page of the workspace gets: Jupyter asks for a referrer."""
    script = "address => fetch(address).then(async answer => [answer.status, await answer.text()])"
    return tuple(lab.evaluate(script, address))


def an_open_page_is_no_activity(platform, lab: Page) -> None:
    """Check that the layout which an open page saves again and again does not count."""
    activity = platform.root / "workspaces" / "alice" / "nb" / "activity.json"
    for _ in range(2):  # what was done before the first one is over then
        before = time.time()
        with lab.expect_response(lambda sent: "/lab/api/workspaces/" in sent.url and sent.request.method == "PUT"):
            pass
    after, end = time.time(), time.monotonic() + LIMIT_S
    while activity.stat().st_mtime < after:
        assert time.monotonic() < end
        lab.wait_for_timeout(200)
    assert json.loads(activity.read_text())["last"] < before


def a_log_out_closes_websockets(lab: Page, base: str, platform_url: str) -> None:
    lab.evaluate(LINKS, base)
    token = next(each["value"] for each in lab.context.cookies(platform_url) if each["name"].endswith("csrftoken"))
    headers = {"X-CSRFToken": token, "Referer": platform_url}
    assert lab.request.post(f"{platform_url}/logout", headers=headers).ok
    lab.wait_for_function(CLOSED, timeout=1000 * LIMIT_S)
    is_refused(lab, base)


def is_refused(lab, base: str) -> None:
    """Wait until the gateway has forgotten the login: another round may have closed the websockets before that."""
    end = time.monotonic() + LIMIT_S
    while lab.request.get(f"{base}/api/status").status != 401:
        assert time.monotonic() < end, "the login is still remembered"


def a_command_by_ssh(mlp: Client) -> None:
    """Run one with this machine's OpenSSH, and copy a file by a program that starts it."""
    done = mlp.run("ssh", "nb", "--", "echo $((6*7)) $MLP_WORKSPACE_NAME; exit 3", code=3)
    assert done.stdout == "42 nb\n"
    mlp.run("ssh", "--setup")
    (mlp.here / "notes.txt").write_text("by scp")
    config = str(mlp.home / ".ssh" / "config")
    subprocess.run(["scp", "-F", config, "notes.txt", "nb.mlp:"], cwd=mlp.here, env=mlp.environment, check=True)
    assert mlp.run("ssh", "nb", "--", "cat notes.txt").stdout == "by scp"


def answers(lab: Page, base: str) -> dict:
    """Return what Jupyter says of itself, once it can be reached."""
    end = time.monotonic() + LIMIT_S
    while (answer := lab.request.get(f"{base}/api/status")).status != 200:
        assert time.monotonic() < end, answer.text()
        lab.wait_for_timeout(200)
    return answer.json()


def logged_in(page: Page, person: Person) -> None:
    """Log in by the form."""
    page.goto(f"{person.url}/regist_login")
    login = page.locator("form", has=page.locator("[name=password]")).first
    login.locator("[name=username]").fill(person.name)
    login.locator("[name=password]").fill(PASSWORD)
    login.locator("button").first.click()
    page.wait_for_url(re.compile("/index"))


@pytest.fixture
def opened(platform, alice, page: Page):
    """Return a function that opens a workspace from its page, as its user does."""
    logged_in(page, alice)

    def go(name: str) -> Page:
        page.goto(f"{alice.url}/workspaces/{name}")
        with page.expect_popup() as popup:
            page.get_by_role("link", name="Open JupyterLab").click()
        lab = popup.value
        expect(lab.locator(".jp-DirListing").first).to_be_visible(timeout=1000 * LIMIT_S)
        return lab

    return go


def test_a_cell_a_terminal_and_a_download_work_and_outlive_a_restart(platform, alice, opened, tmp_path):
    began = time.monotonic()
    made = alice.call("post", "workspaces", {"name": "nb", "cpu": 1, "ram": 2048})
    assert made.status_code == 201, made.text
    waited(alice, "workspaces/nb", "ready")
    print(f"\nwith its installation ready after {time.monotonic() - began:.1f} s")
    lab = opened("nb")
    said = []
    lab.on("response", lambda answer: said.append((answer.status, answer.url)) if answer.status >= 400 else None)
    sockets = []
    lab.on("websocket", lambda link: sockets.append(link.url))
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    cell = lab.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    expect(cell).to_be_visible(timeout=1000 * LIMIT_S)
    expect(lab.get_by_text("| Idle")).to_be_visible(timeout=1000 * LIMIT_S)
    cell.click()
    lab.keyboard.type("import os; print(6 * 7, os.environ['MLP_USER'], sorted(os.environ.get('MLP_API_URL', ''))[:1])")
    lab.keyboard.press("Shift+Enter")
    expect(lab.locator(".jp-OutputArea-output").first).to_contain_text("42 alice", timeout=1000 * LIMIT_S)
    lab.keyboard.press("Control+s")
    lab.locator(".jp-Dialog .jp-mod-accept").click()  # its first save asks for a name
    assert any("/api/kernels/" in url for url in sockets)
    an_open_page_is_no_activity(platform, lab)
    if shutil.which("ssh"):
        a_command_by_ssh(Client(tmp_path, alice.url, alice.token))
    # A terminal, and a file with a name as users have them.
    base = f"http://127.0.0.1:{platform.base + 13}/alice/nb"
    command = "echo $((40+2)) > 'a file (1)+%.txt'; cp 'a file (1)+%.txt' output/; exit\r"
    assert "exit" in lab.evaluate(TERMINAL, [base, command])
    file = f"{base}/files/a%20file%20(1)%2B%25.txt?download=1"
    assert fetched(lab, file) == (200, "42\n")
    assert fetched(lab, f"{base}/files/output/a%20file%20(1)%2B%25.txt") == (200, "42\n")
    assert fetched(lab, f"{base}/files/..%2factivity.json")[0] in (403, 404)
    with lab.expect_download() as download:
        lab.evaluate(
            "address => { const link = document.createElement('a'); link.href = address; link.click(); }", file
        )
    assert download.value.suggested_filename == "a file (1)+%.txt"
    assert {address for _status, address in said} == {f"{base}/api/terminals", f"{base}/files/..%2factivity.json"}
    # Stopped and started again, it has its files, and starts in seconds.
    assert alice.call("put", "workspaces/nb:stop").status_code == 200
    waited(alice, "workspaces/nb", "stopped")
    began = time.monotonic()
    assert alice.call("put", "workspaces/nb:start").status_code == 200
    waited(alice, "workspaces/nb", "ready")
    print(f"started again after {time.monotonic() - began:.1f} s")
    again = opened("nb")
    expect(again.get_by_text("a file (1)+%.txt").first).to_be_visible(timeout=1000 * LIMIT_S)
    # It goes on while the platform is upgraded, and is started again after an orderly stop.
    status = again.request.get(f"{base}/api/status").json()
    assert platform.call("--down", "--keep-runs").returncode == 0
    platform.process.wait(LIMIT_S)
    platform.start()
    assert answers(again, base)["started"] == status["started"]
    platform.stop()
    platform.start()
    assert answers(again, base)["started"] != status["started"]
    a_log_out_closes_websockets(again, base, alice.url)
    stranger = requests.get(f"{base}/api/status", timeout=LIMIT_S)
    assert stranger.status_code == 401


@pytest.fixture
def guest_page(platform, browser: Browser):
    """Return a page in a browser of another user's, who is logged in, and that user."""
    bob = Person(platform, "bob")
    context = browser.new_context()
    page = context.new_page()
    logged_in(page, bob)
    yield page, bob
    context.close()


def test_a_guest_runs_a_cell_and_is_out_when_removed(platform, alice, guest_page):
    assert alice.call("put", "workspaces/nb:stop").status_code in (200, 403)
    made = alice.call("post", "workspaces", {"name": "shared", "cpu": 0.5, "ram": 1024})
    assert made.status_code == 201, made.text
    waited(alice, "workspaces/shared", "ready")
    page, bob = guest_page
    assert alice.call("put", "workspaces/shared/guests/bob").status_code == 200
    base = f"http://127.0.0.1:{platform.base + 13}/alice/shared"
    page.goto(f"{base}/lab")  # a link alone leads to the invitation
    page.get_by_role("button", name="Accept").click()
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Open JupyterLab").click()
    lab = popup.value
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=1000 * LIMIT_S)
    cell = lab.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    expect(lab.get_by_text("| Idle")).to_be_visible(timeout=1000 * LIMIT_S)
    cell.click()
    lab.keyboard.type("import os; print(6 * 7, os.environ['MLP_USER'])")
    lab.keyboard.press("Shift+Enter")
    expect(lab.locator(".jp-OutputArea-output").first).to_contain_text("42 alice", timeout=1000 * LIMIT_S)
    lab.evaluate(LINKS, base)
    assert alice.call("delete", "workspaces/shared/guests/bob").status_code == 200
    lab.wait_for_function(CLOSED, timeout=1000 * LIMIT_S)
    is_refused(lab, base)
    assert bob.call("get", "workspace_invitations").json() == []
    page.goto(f"{base}/lab")
    expect(page.get_by_role("button", name="Accept")).to_have_count(0)
    assert alice.call("put", "workspaces/shared:stop").status_code == 200
    assert waited(alice, "workspaces/shared", "stopped")["user"] == "alice"


def test_a_failed_job_opens_with_its_code_arguments_and_output(platform, alice, opened):
    alice.upload("train.py", BROKEN.encode())
    script = {"entry": "train.py", "name": "fit", "args": ["--column", "a b"], "cpu": 0.5}
    made = alice.call("post", "jobs", {**script, "ram": 400, "env": {"SHAPE": "wide"}})
    assert made.status_code == 201, made.text
    waited(alice, "jobs/fit", "error")
    assert alice.call("put", "workspaces/nb:stop").status_code in (200, 403)
    debug = {"name": "fit", "job": "fit", "cpu": 0.5, "ram": 1024}
    made = alice.call("post", "workspaces", debug)
    assert made.status_code == 201, made.text
    waited(alice, "workspaces/fit", "ready")
    lab = opened("fit")
    base = f"http://127.0.0.1:{platform.base + 13}/alice/fit"
    assert "code/train.py --column 'a b'" in fetched(lab, f"{base}/files/job-fit/run.sh")[1]
    assert fetched(lab, f"{base}/files/job-fit/code/train.py")[1] == BROKEN
    assert "no such column" in fetched(lab, f"{base}/files/job-fit/output/log/job.log")[1]
