"""JupyterLab itself behind the platform's own TLS: in Chromium with the websockets of a kernel and a terminal, and by
OpenSSH through the client; what its users do with a kernel; and all of it after every process was killed.
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

PATIENTLY = {"timeout": 1000 * LIMIT_S}
PICTURE = "from PIL import Image; Image.new('RGB', (8, 8), 'red')"


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    """An authority that has signed the platform's certificate, and that its users trust."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    authority.write()
    return authority


@pytest.fixture(scope="module")
def platform(authority, tmp_path_factory):
    platform = Platform(tmp_path_factory.mktemp("secure") / "root", **authority.environment())
    platform.start()
    yield platform
    platform.stop()
    platform.kill(*platform.everything())


@pytest.fixture(scope="module")
def alice(platform, authority) -> Person:
    """The owner of a workspace that runs."""
    alice = Person(platform, "alice", ca=str(authority.path))
    made = alice.done("post", "workspaces", {"name": "nb", "cpu": 1, "ram": 2048})
    assert made["url"] == f"{base_of(platform)}/lab"
    waited(alice, "workspaces/nb", "ready")
    return alice


def base_of(platform: Platform) -> str:
    return f"https://127.0.0.1:{platform.base + 13}/alice/nb"


@pytest.fixture
def lab(alice, browser: Browser):
    """Return the workspace's page, opened from the platform's, in a browser that does not know the authority."""
    context = browser.new_context(ignore_https_errors=True)
    page = context.new_page()
    logged_in(page, alice)
    page.goto(f"{alice.url}/workspaces/nb")
    with page.expect_popup() as popup:
        page.get_by_role("link", name="Open JupyterLab").click()
    yield popup.value
    context.close()


def notebook(lab: Page) -> None:
    """Open a new notebook, with its first cell to type in, whatever another page has left open."""
    lab.goto(f"{lab.url.partition('?')[0]}?reset")
    lab.locator(".jp-LauncherCard[data-category=Notebook]").first.click(**PATIENTLY)
    expect(lab.get_by_text("| Idle")).to_be_visible(**PATIENTLY)
    lab.locator(".jp-Notebook .jp-CodeCell .cm-content").first.click()


def run(lab: Page, code: str) -> None:
    """Type into the cell that has the focus and run it; the next one has the focus then."""
    lab.keyboard.type(code)
    lab.keyboard.press("Shift+Enter")


def shows(lab: Page, text: str) -> None:
    """Wait until the last output has this text."""
    expect(lab.locator(".jp-Notebook .jp-OutputArea-output").last).to_contain_text(text, **PATIENTLY)


def test_everything_of_it_goes_through_tls(platform, alice, authority, lab, tmp_path):
    base, sockets = base_of(platform), []
    lab.on("websocket", lambda link: sockets.append(link.url))
    notebook(lab)
    run(lab, "import os; print(6 * 7, os.environ['MLP_USER'])")
    shows(lab, "42 alice")
    assert any("/api/kernels/" in url for url in sockets)
    assert {url.partition(":")[0] for url in sockets} == {"wss"}
    assert "exit" in lab.evaluate(TERMINAL, [base, "echo $((40+2)) > said.txt; exit\r"])
    assert fetched(lab, f"{base}/files/said.txt") == (200, "42\n")
    cookies = [each for each in lab.context.cookies(f"{base}/lab") if "workspace" in each["name"]]
    assert [(each["name"], each["secure"], each["httpOnly"], each["path"]) for each in cookies] == [
        ("__Secure-workspace", True, True, "/alice/nb/")
    ]
    plain = requests.get(base.replace("https", "http", 1), allow_redirects=False, timeout=LIMIT_S)
    assert plain.headers["Location"].startswith(base)
    stranger = requests.get(f"{base}/api/status", verify=str(authority.path), timeout=LIMIT_S)
    assert stranger.status_code == 401
    if shutil.which("ssh"):
        mlp = Client(tmp_path, alice.url, alice.token, MLP_CACERT=str(authority.path))
        assert mlp.run("ssh", "nb", "--", "cat said.txt; exit 3", code=3).stdout == "42\n"


def test_a_picture_an_interrupt_a_restart_and_an_upload(platform, lab, tmp_path):
    notebook(lab)
    run(lab, PICTURE)
    expect(lab.locator(".jp-Notebook .jp-RenderedImage img")).to_be_visible(**PATIENTLY)
    run(lab, "known = 1; print('busy'); import time; time.sleep(3600)")
    shows(lab, "busy")
    lab.keyboard.press("Escape")
    lab.keyboard.press("i")
    lab.keyboard.press("i")
    shows(lab, "KeyboardInterrupt")
    lab.keyboard.press("0")
    lab.keyboard.press("0")
    lab.locator(".jp-Dialog .jp-mod-accept").click(**PATIENTLY)
    expect(lab.locator(".jp-Dialog")).to_have_count(0, **PATIENTLY)
    expect(lab.get_by_text("| Idle")).to_be_visible(**PATIENTLY)
    lab.keyboard.press("Enter")
    run(lab, "print('known' in globals())")
    shows(lab, "False")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    with lab.expect_file_chooser() as chooser:
        lab.locator("[data-jp-item-name=uploader] jp-button, [data-jp-item-name=upload] jp-button").first.click()
    chooser.value.set_files(tmp_path / "table.csv")
    expect(lab.locator(".jp-DirListing-item", has_text="table.csv")).to_be_visible(**PATIENTLY)
    assert fetched(lab, f"{base_of(platform)}/files/table.csv") == (200, "a,b\n1,2\n")


def test_it_comes_back_with_its_files_after_every_process_was_killed(platform, alice, lab):
    base = base_of(platform)
    expect(lab.locator(".jp-DirListing").first).to_be_visible(**PATIENTLY)
    assert "exit" in lab.evaluate(TERMINAL, [base, "echo kept > kept.txt; exit\r"])
    platform.kill(platform.process.pid, *platform.everything())
    platform.process.wait(LIMIT_S)
    platform.start()
    waited(alice, "workspaces/nb", "ready")
    end = time.monotonic() + LIMIT_S
    while not (answer := lab.goto(f"{base}/lab")) or answer.status != 200:
        assert time.monotonic() < end, answer and answer.status
        lab.wait_for_timeout(500)
    assert fetched(lab, f"{base}/files/kept.txt") == (200, "kept\n")
