"""A new user and an operator on the real platform, from registration to a job with live metrics.

In both languages, both themes, on a desk and on a phone. Pictures of the last pages: test-artifacts/screenshots; with
MLP_PICTURES=FOLDER, one of each step there.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Browser, Locator, Page, expect

from conftest import PASSWORD
from mlp.tests.patience import LIMIT_S
from mlp.tests.tiers import later
from supervision.tests.running import PARTS, Platform

pytestmark = [pytest.mark.e2e]

PICTURES = settings.BASE_DIR / "test-artifacts" / "screenshots"
PICTURES_OF_STEPS = os.environ.get("MLP_PICTURES", "")
EXAMPLE = settings.BASE_DIR / "examples" / "plain_python" / "train.py"
OPERATOR_PASSWORD = "quite a long one for tests"
LIMIT_MS = 1000 * LIMIT_S


@dataclass(frozen=True)
class Look:
    name: str  # of the user as well
    locale: str
    language: str
    theme: str
    width: int
    height: int


LOOKS = [Look("ada", "en-GB", "en", "light", 1280, 860), Look("li", "zh-CN", "zh-hans", "dark", 360, 780)]


@pytest.fixture(scope="module")
def platform(chromium, tmp_path_factory):
    given = {"MLP_ADMIN_PASSWORD": OPERATOR_PASSWORD, "MLP_REGISTRATION_NEEDS_APPROVAL": "true"}
    platform = Platform(tmp_path_factory.mktemp("journey") / "root", **given)
    platform.start()
    yield platform
    platform.stop()


class Walk:
    """One user's browser: collects its errors, takes screenshots, checks that pages fit the window."""

    def __init__(self, browser: Browser, platform: Platform, look: Look, who: str):
        self.poll, self.who, self.errors = look, who, []
        self.context = browser.new_context(
            base_url=f"http://127.0.0.1:{platform.base + 1}",
            locale=look.locale,
            color_scheme=look.theme,
            viewport={"width": look.width, "height": look.height},
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(LIMIT_MS)
        expect.set_options(timeout=LIMIT_MS)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("response", self._answered)

    def _heard(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.errors.append(message.text)

    def _answered(self, answer) -> None:
        if answer.status >= 400:
            self.errors.append(f"{answer.status} {answer.url}")

    def __getitem__(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def shows(self, step: str) -> None:
        """Check that the page is in the user's language, fits the window and has reported no error."""
        expect(self["html"]).to_have_attribute("lang", self.poll.language)
        too_wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if PICTURES_OF_STEPS:
            self.picture(Path(PICTURES_OF_STEPS), step)
        assert too_wide <= 0, f"{step} is {too_wide} px too wide"
        assert self.errors == [], step

    def picture(self, folder: Path, step: str) -> None:
        file = f"{self.who}-{step}-{self.poll.language}-{self.poll.theme}-{self.poll.width}.png"
        self.page.screenshot(path=folder / file)

    def enter(self, username: str, password: str, action: str = "login") -> None:
        self.page.fill("#username", username)
        self.page.fill("#password", password)
        self.page.click(f"button[value={action}]")


@pytest.fixture
def walks(browser, platform):
    """Return a function that opens a browser for a user."""
    all_walks: list[Walk] = []

    def opened(look: Look, who: str) -> Walk:
        all_walks.append(Walk(browser, platform, look, who))
        return all_walks[-1]

    yield opened
    for walk in all_walks:
        walk.picture(PICTURES, "last")
        walk.context.close()


@pytest.mark.long
@pytest.mark.parametrize("look", [later(LOOKS[0], id="desk in English"), pytest.param(LOOKS[1], id="phone in Chinese")])
def test_from_registration_to_live_metrics(walks, look, tmp_path):
    user, operator = walks(look, "user"), walks(look, "operator")
    register(user)
    let_in(operator, look.name)
    upload(user, tmp_path)
    bring_a_script(user)
    train(user)
    look_around(operator, look.name)


def register(user: Walk) -> None:
    user.page.goto("/")
    user.shows("regist_login")
    user.enter(user.poll.name, PASSWORD, "register")
    expect(user[".messages"]).to_be_visible()
    user.shows("registered")


def let_in(operator: Walk, username: str) -> None:
    operator.page.goto("/admin/")
    operator.page.fill("#id_username", "admin")
    operator.page.fill("#id_password", OPERATOR_PASSWORD)
    operator.page.click("button[type=submit]")
    waiting = operator[f".mlp-people li:has-text('{username}')"]
    waiting.wait_for()
    operator.shows("waiting")
    waiting.locator("button").click()
    expect(waiting).to_have_count(0)


def upload(user: Walk, folder: Path) -> None:
    files = folder / "points"
    (files / "sub").mkdir(parents=True)
    (files / "one.csv").write_text("1,2\n" * 1000)
    (files / "sub" / "two.csv").write_text("3,4\n")
    user.page.goto("/datasets")  # leads to the log-in, and from there back
    user.enter(user.poll.name, PASSWORD)
    user.page.wait_for_url("**/datasets")
    user.shows("no-datasets")
    user["input[webkitdirectory]"].set_input_files(files)
    expect(user["form[data-upload] #name"]).to_have_value("points")
    user["[data-upload-button]"].click()
    user.page.wait_for_url("**/datasets/points")
    expect(user[".state-ready"].first).to_be_visible()
    user.shows("dataset")


def bring_a_script(user: Walk) -> None:
    user.page.goto("/scripts/new?example=1")
    user.page.fill("[name=path]", "first.py")
    user.shows("script")
    user["main form[method=post] button.primary"].first.click()
    user.page.wait_for_url("**/scripts/edit/first.py")


def train(user: Walk) -> None:
    user.page.goto("/index")
    user.shows("index-at-first")
    user.page.goto("/jobs?new=1")
    form = user["form[data-draft=job]"]
    form.locator("[name=name]").fill("fit")
    form.locator("[name=entry]").fill("first.py")
    form.locator("[name=args]").fill("--epochs 6 --slow 0.5")
    form.locator("[name=datasets][value=points]").check()
    user.shows("new-job")
    form.locator("button.primary").dblclick()
    user.page.wait_for_url("**/jobs/fit")
    card = user["[data-live]"]
    expect(card.locator("[data-value=epoch]")).to_have_text(re.compile("[2-6]"), timeout=LIMIT_MS)
    user.shows("job-running")
    expect(user["h1 .state-finished"]).to_be_visible(timeout=LIMIT_MS)
    expect(card.locator("[data-progress-words]")).to_have_text("100 %")
    expect(card.locator("figure [role=img]").first).to_have_attribute("aria-label", re.compile(r" at 6,|位于 6）"))
    user.shows("job-finished")
    for place in ("index", "jobs", "usage", "notifications", "account", "settings", "start"):
        user.page.goto(f"/{place}")
        user.shows(place)


def look_around(operator: Walk, username: str) -> None:
    operator.page.goto("/admin/")
    expect(operator["#parts .mlp-parts .mlp-well"]).to_have_count(len(PARTS) + 1)
    expect(operator["#isolation-title"]).to_be_visible()
    operator.shows("overview")
    operator.page.goto("/admin/resources/tenant/")
    operator["#result_list a:has-text('default')"].first.click()
    expect(operator["#content"]).to_contain_text("default")
    operator.shows("tenant")
    operator.page.goto("/admin/logs/?part=worker")
    expect(operator[".mlp-log"]).to_be_visible()
    operator.shows("logs")
    operator.page.goto(f"/admin/audit/?q={username}")
    expect(operator[".mlp-table"]).to_contain_text("operator:admin")
    operator.shows("record")


@pytest.mark.long
def test_input_survives_a_restart_of_the_servers(walks, platform, browser):
    """The web servers are killed after a form is opened; it is submitted while they are unavailable."""
    user = walks(LOOKS[0], "restart")
    user.page.goto("/regist_login")
    user.enter("admin", OPERATOR_PASSWORD)
    user.page.wait_for_url("**/index")
    user.page.goto("/scripts/new?example=1")
    user.page.fill("[name=path]", "kept.py")
    user["main form[method=post] button.primary"].first.click()
    user.page.wait_for_url("**/scripts/edit/kept.py")
    user.page.goto("/jobs?new=1")
    form = user["form[data-draft=job]"]
    form.locator("[name=name]").fill("kept")
    form.locator("[name=entry]").fill("kept.py")
    form.locator("[name=args]").fill("--epochs 3")
    killed = platform.kill_part("web")
    form.locator("button.primary").click()
    platform.healed("web", killed)
    end = time.monotonic() + LIMIT_MS / 1000
    while not user.page.url.endswith("/jobs/kept"):
        assert time.monotonic() < end
        if form.count() == 0:  # what the gateway says meanwhile
            expect(user["body"]).to_contain_text("what you have typed is kept")
            user.page.go_back()
        expect(form.locator("[name=name]")).to_have_value("kept")
        expect(form.locator("[name=args]")).to_have_value("--epochs 3")
        form.locator("button.primary").click()
        user.page.wait_for_load_state()
    expect(user["main"]).to_contain_text("kept.py")
