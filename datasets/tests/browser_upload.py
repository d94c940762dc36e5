"""An upload in a real browser, interrupted by a reload; run by test_upload_browser.py in a separate process.

    browser_upload.py BROWSER URL SESSION FOLDER [SCREENSHOTS]

Prints as JSON which parts of the large file were sent before and after the reload.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

LARGE = "large.bin"
PATIENCE_MS = 240_000


def run(program: str, url: str, session: str, folder: str, pictures: str = "") -> dict:
    sent: dict[str, list[str]] = {"before": [], "after": []}
    ranges = sent["before"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, locale="en")
        page.set_default_timeout(PATIENCE_MS)
        page.on("dialog", lambda dialog: dialog.accept())
        page.context.add_cookies([{"name": "sessionid", "value": session, "url": url}])

        def watch(route):
            span = route.request.headers.get("content-range", "")
            if LARGE not in route.request.url or "*" in span or not span:
                return route.continue_()
            if ranges is sent["before"] and ranges:  # the first part has arrived: the second never does
                return None
            ranges.append(span)
            return route.continue_()

        page.route("**/data/**", watch)
        page.goto("/datasets?new=1")
        page.locator("input[webkitdirectory]").set_input_files(folder)
        name = page.locator("#name").input_value()
        with page.expect_request(lambda request: "bytes 16777216-" in request.headers.get("content-range", "")):
            page.locator("[data-upload-button]").click()
        _picture(page, pictures, "uploading")
        ranges = sent["after"]
        page.goto(f"/datasets/{name}")
        page.locator("input[webkitdirectory]").set_input_files(folder)
        page.locator("[data-upload-button]").click()
        page.wait_for_selector("text=Train on this dataset")
        _picture(page, pictures, "dataset")
        for place in ("table.csv", "notes.txt"):
            if page.locator(f"a:text-is('{place}')").count():
                page.goto(f"/datasets/{name}/view/{place}")
                _picture(page, pictures, place)
        browser.close()
    return {"name": name, **sent}


def _picture(page, folder: str, name: str) -> None:
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
        page.set_viewport_size({"width": 360, "height": 740})
        page.screenshot(path=str(Path(folder) / f"{name}-narrow.png"))
        page.set_viewport_size({"width": 1280, "height": 800})


if __name__ == "__main__":
    print(json.dumps(run(*sys.argv[1:])))
