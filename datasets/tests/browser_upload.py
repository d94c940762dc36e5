"""An upload in a real browser, interrupted by a reload; run by test_upload_browser.py in a separate process.

    browser_upload.py BROWSER URL SESSION FOLDER [SCREENSHOTS]
    browser_upload.py BROWSER URL SESSION FILE model
    browser_upload.py BROWSER URL SESSION FOLDER scripts

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
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, locale="en")
        page.set_default_timeout(PATIENCE_MS)
        page.on("dialog", lambda dialog: dialog.accept())
        page.context.add_cookies([{"name": "sessionid", "value": session, "url": url}])

        def hold(route):
            """Let the first part through; the second never arrives."""
            if span := part_in(route.request):
                if sent["before"]:
                    return
                sent["before"].append(span)
            route.continue_()

        def note(request):
            if span := part_in(request):
                sent["after"].append(span)

        page.route("**/data/**", hold)
        page.goto("/datasets?new=1")
        page.locator("input[webkitdirectory]").set_input_files(folder)
        name = page.locator("#name").input_value()
        with page.expect_request(lambda request: "bytes 16777216-" in request.headers.get("content-range", "")):
            page.locator("[data-upload-button]").click()
        _picture(page, pictures, "uploading")
        page.goto(f"/datasets/{name}")
        page.unroute_all(behavior="ignoreErrors")  # what a route sees goes through the driver, and all its bytes
        page.on("request", note)
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


def run_model(program: str, url: str, session: str, file: str) -> dict:
    """Upload a model's file by the form of models, with a reload after its first part."""
    sent: dict[str, list[str]] = {"before": [], "after": []}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, locale="en")
        page.set_default_timeout(PATIENCE_MS)
        page.on("dialog", lambda dialog: dialog.accept())
        page.context.add_cookies([{"name": "sessionid", "value": session, "url": url}])

        def hold(route):
            """Let the first part through; the second never arrives."""
            if span := part_in(route.request):
                if sent["before"]:
                    return
                sent["before"].append(span)
            route.continue_()

        def note(request):
            if span := part_in(request):
                sent["after"].append(span)

        def create():
            page.goto("/models?new=1")
            page.locator("#file").set_input_files(file)
            page.locator("[data-model-form] button.primary").click()

        page.route("**/data/**", hold)
        with page.expect_request(lambda request: "bytes 16777216-" in request.headers.get("content-range", "")):
            create()
        page.goto("/models")  # first: what is held while routes are removed goes on to the server
        page.unroute_all(behavior="ignoreErrors")
        page.on("request", note)
        with page.expect_request(lambda request: request.method == "POST" and request.url.endswith("/models")) as last:
            create()
        source = next(line for line in last.value.post_data.splitlines() if line.startswith("home/"))
        browser.close()
    return {"source": source, **sent}


def run_scripts(program: str, url: str, session: str, folder: str) -> dict:
    """Upload a folder of scripts, one of which is there already; then once more, allowed to overwrite it."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, locale="en")
        page.set_default_timeout(PATIENCE_MS)
        page.context.add_cookies([{"name": "sessionid", "value": session, "url": url}])
        page.goto("/scripts")
        page.locator("input[webkitdirectory]").set_input_files(folder)
        chosen = page.locator("[data-picked]").inner_text()
        page.fill("#path", "work")
        page.locator("[data-upload-button]").click()
        page.locator("[data-upload-error]").wait_for()
        state, error = (
            page.locator("[data-upload-words]").inner_text(),
            page.locator("[data-upload-error]").inner_text(),
        )
        puts: list[str] = []
        page.on("request", lambda request: puts.append(request.url) if request.method == "PUT" else None)
        page.check("[name=replace]")
        page.locator("[data-upload-button]").click()
        page.wait_for_selector("text=files are saved")
        browser.close()
    return {"chosen": chosen, "state": state, "error": error, "again": puts}


def part_in(request) -> str:
    """Return which part of the large file the request sends; empty if it sends none."""
    span = request.headers.get("content-range", "")
    return span if LARGE in request.url and "*" not in span else ""


def _picture(page, folder: str, name: str) -> None:
    if folder:
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)
        page.set_viewport_size({"width": 360, "height": 740})
        page.screenshot(path=str(Path(folder) / f"{name}-narrow.png"))
        page.set_viewport_size({"width": 1280, "height": 800})


if __name__ == "__main__":
    given = sys.argv[1:]
    other = {"model": run_model, "scripts": run_scripts}.get(given[-1])
    print(json.dumps(other(*given[:-1]) if other else run(*given)))
