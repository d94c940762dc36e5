"""JupyterLab itself behind the platform's own TLS: in Chromium with the websockets of a kernel and a terminal, and by
OpenSSH through the client.
"""

from __future__ import annotations

import shutil
import time

import pytest
import requests
from playwright.sync_api import Browser, Page, expect

from client.tests.running import Client
from mlp.tests.attack.world import Person
from mlp.tests.patience import LIMIT_S
from supervision.tests.certificates import Authority
from supervision.tests.running import Platform
from workspaces.tests.test_real_browser import TERMINAL, fetched, logged_in, waited

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def authority(tmp_path) -> Authority:
    """An authority that has signed the platform's certificate, and that its users trust."""
    (tmp_path / "tls").mkdir()
    authority = Authority(tmp_path / "tls")
    authority.write()
    return authority


@pytest.fixture
def platform(authority, tmp_path):
    platform = Platform(tmp_path / "root", **authority.environment())
    platform.start()
    yield platform
    platform.stop()
    platform.kill(*platform.everything())


@pytest.fixture
def page(browser: Browser):
    """Return a page of a browser that does not know the authority of the tests, and goes on."""
    context = browser.new_context(ignore_https_errors=True)
    yield context.new_page()
    context.close()


def it_comes_back_after_kills(platform, person: Person, lab: Page, base: str) -> None:
    """Kill all processes while the page is open; check that the workspace is started again, with its files."""
    platform.kill(platform.process.pid, *platform.everything())
    platform.process.wait(LIMIT_S)
    platform.start()
    waited(person, "workspaces/nb", "ready")
    end = time.monotonic() + LIMIT_S
    while not (answer := lab.goto(f"{base}/lab")) or answer.status != 200:
        assert time.monotonic() < end, answer and answer.status
        lab.wait_for_timeout(500)
    assert fetched(lab, f"{base}/files/said.txt") == (200, "42\n")


def test_everything_of_it_goes_through_tls(platform, authority, page: Page, tmp_path):
    alice = Person(platform, "alice", ca=str(authority.path))
    base = f"https://127.0.0.1:{platform.base + 13}/alice/nb"
    made = alice.done("post", "workspaces", {"name": "nb", "cpu": 1, "ram": 2048})
    assert made["url"] == f"{base}/lab"
    waited(alice, "workspaces/nb", "ready")
    logged_in(page, alice)
    page.goto(f"{alice.url}/workspaces/nb")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Open JupyterLab").click()
    lab, sockets = popup.value, []
    lab.on("websocket", lambda link: sockets.append(link.url))
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click(timeout=1000 * LIMIT_S)
    cell = lab.locator(".jp-Notebook .jp-CodeCell .cm-content").first
    expect(lab.get_by_text("| Idle")).to_be_visible(timeout=1000 * LIMIT_S)
    cell.click()
    lab.keyboard.type("import os; print(6 * 7, os.environ['MLP_USER'])")
    lab.keyboard.press("Shift+Enter")
    expect(lab.locator(".jp-OutputArea-output").first).to_contain_text("42 alice", timeout=1000 * LIMIT_S)
    assert any("/api/kernels/" in url for url in sockets)
    assert {url.partition(":")[0] for url in sockets} == {"wss"}
    assert "exit" in lab.evaluate(TERMINAL, [base, "echo $((40+2)) > said.txt; exit\r"])
    assert fetched(lab, f"{base}/files/said.txt") == (200, "42\n")
    cookies = [each for each in lab.context.cookies(f"{base}/lab") if "workspace" in each["name"]]
    assert [(each["name"], each["secure"], each["httpOnly"], each["path"]) for each in cookies] == [
        ("__Secure-workspace", True, True, "/alice/nb")
    ]
    plain = requests.get(base.replace("https", "http", 1), allow_redirects=False, timeout=LIMIT_S)
    assert plain.headers["Location"].startswith(f"{base}")
    stranger = requests.get(f"{base}/api/status", verify=str(authority.path), timeout=LIMIT_S)
    assert stranger.status_code == 401
    if shutil.which("ssh"):
        mlp = Client(tmp_path, alice.url, alice.token, MLP_CACERT=str(authority.path))
        assert mlp.run("ssh", "nb", "--", "cat said.txt; exit 3", code=3).stdout == "42\n"
    it_comes_back_after_kills(platform, alice, lab, base)
