"""Takes the pictures in docs/images from a running platform: `python tools/screenshots.py [--url URL] [--out FOLDER]`.

It goes through the product as `make demo` does (a user, the digits, a model, an application, AIOps) and takes pictures
of the pages in Chromium. Set `MLP_ROOT` and `MLP_PORT_BASE` as for the platform. Without the operator's password the
operators' pages are left out, with `--quick` AIOps as well.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "examples"), str(ROOT)]

import demo  # noqa: E402 (found beside the examples)
import demo_aiops  # noqa: E402
import demo_serve  # noqa: E402

from mlp.tests import chromium  # noqa: E402

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SIZE = {"width": 1280, "height": 860}
LIMIT_MS = 120_000
REQUESTS = 40  # to the application, so that there is something to see of them
SLOW_S = 4  # after each epoch of the job that trains while the index is photographed


class World:
    """What there is to see: a user's dataset, a finished job, its model, an application; a job that failed."""

    def __init__(self, url: str):
        self.platform = demo.Platform(url)
        self.username = "ada" + "".join(random.choices(string.ascii_lowercase, k=3))
        self.password = "".join(random.choices(string.ascii_letters, k=16))
        self.folder = Path(tempfile.mkdtemp(prefix="mlp-pictures-"))

    def prepare(self) -> None:
        demo.register(self.platform, self.username, self.password)
        making = [sys.executable, ROOT / "examples/digits/make_dataset.py", self.folder / "digits"]
        subprocess.run(making, check=True)
        self.client("upload", str(self.folder / "digits"), "--name", "digits", "--quiet")
        self.client("script", "put", str(ROOT / "examples/digits/train.py"), "train.py")
        self.submit("oops", ["--epochs", "many"])
        job = demo.submit(self.platform, self.username, slow=0.3)
        demo.follow(self.platform, self.username, job)
        demo_serve.make_model(self.platform, self.username, job, print)
        base = demo_serve.deploy(self.platform, self.username, print)
        line = (self.folder / "digits" / "test" / "digits_x.csv").read_text().splitlines()[0]
        for _ in range(REQUESTS):
            demo_serve.ask(self.platform, base, [float(number) for number in line.split(",")], lambda words: None)

    def client(self, *arguments: str) -> None:
        demo.client(self.platform, self.username, self.folder, *arguments)

    def submit(self, name: str, arguments: list[str]) -> None:
        body = {"name": name, "entry": "train.py", "runtime": "torch", "datasets": ["digits"], "ram": 1000}
        self.platform.must("POST", f"users/{self.username}/jobs", {**body, "args": arguments})

    def watch_logs(self, operator_password: str) -> None:
        """Run a job that fails in a way its log never showed; it is judged by what was learned from the logs."""
        operator = demo.Platform(self.platform.url)
        operator.token = operator.must("GET", "users/admin/token", basic=("admin", operator_password))
        (self.folder / "watched.py").write_text(demo_aiops.SCRIPT)
        self.client("script", "put", str(self.folder / "watched.py"), "watched.py")
        demo_aiops.begin_job(self.platform, self.username)
        demo_aiops.watch(self.platform, operator, self.username, print)
        (self.folder / "break").write_text("now")
        self.client("script", "put", str(self.folder / "break"), "break")
        demo_aiops.provoke(self.platform, operator, self.username, print)


class Camera:
    def __init__(self, browser: Browser, url: str, out: Path):
        self.browser, self.url, self.out = browser, url, out

    def logged_in(self, username: str, password: str, theme: str = "light") -> Page:
        page = self.browser.new_context(viewport=SIZE, color_scheme=theme, locale="en").new_page()
        page.set_default_timeout(LIMIT_MS)
        page.on("console", lambda message: print("console:", message.type, message.text))
        page.on("pageerror", lambda problem: print("page error:", problem))
        page.goto(f"{self.url}/regist_login")
        page.fill("#username", username)
        page.fill("#password", password)
        page.click("button[value=login]")
        page.wait_for_url("**/index")
        return page

    def take(self, page: Page, address: str, name: str, wait_for: str = "main") -> None:
        page.goto(self.url + address)
        page.locator(wait_for).first.wait_for()
        page.wait_for_timeout(800)  # charts have drawn themselves
        page.screenshot(path=self.out / f"{name}.png")
        print(f"{name}.png: {(self.out / f'{name}.png').stat().st_size >> 10} KiB")


def photograph(camera: Camera, world: World, operator_password: str | None, quick: bool) -> None:
    hers = camera.logged_in(world.username, world.password)
    world.submit("longer", ["--dataset", "digits", "--epochs", "12", "--slow", str(SLOW_S)])
    hers.locator("[data-job=longer] [data-value=epoch]", has_text=re.compile("[4-9]")).wait_for()
    camera.take(hers, "/index", "index", "[data-job=longer] svg")
    camera.take(hers, "/jobs/digits", "job", "[data-used] svg, [data-usage] svg, [data-live] svg")
    camera.take(hers, f"/apps/{demo_serve.APP}", "application")
    if operator_password is None:
        return
    operator = camera.logged_in("admin", operator_password, "dark")
    camera.take(operator, "/admin/", "admin", "#isolation-title")
    if not quick:
        world.watch_logs(operator_password)
        camera.take(hers, "/aiops?hours=1", "aiops")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    base = int(os.environ.get("MLP_PORT_BASE") or 30000)
    parser.add_argument("--url", default=f"http://127.0.0.1:{base + 1}")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--quick", action="store_true", help="without AIOps, which learns for some minutes")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    world = World(options.url)
    try:
        world.prepare()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium.program(), args=FLAGS)
            password = demo_aiops.operator_password()
            photograph(Camera(browser, options.url, options.out), world, password, options.quick)
            browser.close()
    finally:
        shutil.rmtree(world.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
