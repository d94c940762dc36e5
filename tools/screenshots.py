"""Makes the pictures in docs/images from a running platform: `python tools/screenshots.py [--url URL] [--out FOLDER]`.

It registers a user, trains the digits as `make demo` does, and photographs the pages in Chromium while it trains.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))

import demo  # noqa: E402 (found beside the examples)

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SIZES = {"wide": (1280, 860), "phone": (390, 844)}


def prepare(platform: demo.Platform, username: str, password: str) -> None:
    """A user with a dataset, a script, and a job that trains."""
    demo.register(platform, username, password)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        subprocess.run([sys.executable, ROOT / "examples/digits/make_dataset.py", folder / "digits"], check=True)
        demo.client(platform, username, folder, "upload", str(folder / "digits"), "--name", "digits", "--quiet")
        demo.client(platform, username, folder, "script", "put", str(ROOT / "examples/digits/train.py"), "train.py")
    broken = {"name": "oops", "entry": "train.py", "args": ["--epochs", "many"]}
    platform.must("POST", f"users/{username}/jobs", broken)
    demo.submit(platform, username, slow=3)


def log_in(page: Page, url: str, username: str, password: str) -> None:
    page.goto(f"{url}/regist_login")
    page.fill("#username", username)
    page.fill("#password", password)
    page.click("button.primary")
    page.wait_for_url("**/index")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:30001")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--all", action="store_true", help="every page, theme, width and language")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    username = "ada" + "".join(random.choices(string.ascii_lowercase, k=3))
    password = "".join(random.choices(string.ascii_letters, k=16))
    prepare(demo.Platform(options.url), username, password)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        for theme in ("light", "dark") if options.all else ("light",):
            for name, (width, height) in SIZES.items() if options.all else [("wide", SIZES["wide"])]:
                for language in ("en", "zh-hans") if options.all else ("en",):
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=theme, locale=language
                    )
                    page = context.new_page()
                    page.on("console", lambda message: print("console:", message.type, message.text))
                    page.on("pageerror", lambda problem: print("page error:", problem))
                    if options.all:
                        page.goto(f"{options.url}/regist_login?action=register")
                        page.screenshot(path=options.out / f"register-{name}-{theme}-{language}.png")
                    log_in(page, options.url, username, password)
                    page.locator("[data-value=epoch]", has_text=re.compile("[3-9]|1[0-9]")).wait_for()
                    page.wait_for_timeout(200)
                    file = f"index-{name}-{theme}-{language}.png" if options.all else "index.png"
                    page.screenshot(path=options.out / file)
                    for path in (
                        "start", "jobs", "jobs/digits", "datasets", "datasets/digits", "usage", "account", "settings",
                        "notifications",
                    ):  # fmt: skip
                        if options.all:
                            page.goto(f"{options.url}/{path}")
                            page.wait_for_timeout(400)
                            file = f"{path.replace('/', '-')}-{name}-{theme}-{language}.png"
                            page.screenshot(path=options.out / file, full_page=True)
                    context.close()
        browser.close()


if __name__ == "__main__":
    main()
