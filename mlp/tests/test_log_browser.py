"""The page of a log of a million lines in a real browser: scrolling, search, links, wrapping, new lines."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from aiops import logstore
from aiops.intake import accept, follow
from aiops.models import WatchedWorkload
from jobs.models import Job
from kernel import storage
from kernel.after_commit import changed
from kernel.textlog.times import BEGIN, PACKED
from mlp.operators.tests.admin_world import put

from .browser_world import in_another_thread

pytestmark = pytest.mark.django_db(transaction=True)

MILLION = 1_000_000
IN_VIEW = """() => {
  const frame = document.querySelector("[data-view]").getBoundingClientRect();
  return [...document.querySelectorAll(".log-row")].filter((row) => {
    const box = row.getBoundingClientRect();
    return box.bottom > frame.top + 1 && box.top < frame.bottom - 1;
  }).map((row) => Number(row.dataset.line));
}"""
PICTURES = os.environ.get("MLP_PICTURES", "")


def picture(page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=Path(PICTURES) / f"{name}.png")


@pytest.fixture
def log(alice) -> Path:
    """The log of a running job: a million lines, an error in each thousand, a long line, a second attempt."""
    put(Job, alice, "fit", "running")
    path = storage.job_dir("alice", "fit") / "log" / "job.log"
    path.parent.mkdir(parents=True)
    thousand = [b"epoch 1 step %%06d%03d loss=0.25 acc=0.5\n" % n for n in range(1000)]
    thousand[500] = b"\x1b[31;1mERROR\x1b[0m disk 500 is \x1b[48;5;208mfull\x1b[0m\n"
    thousand[700] = b"long " + b"and longer " * 60 + b"\xe2\x80\xae<b>\n"
    some = b"".join(thousand)
    data = b"".join(some.replace(b"%06d", b"%06d" % number) for number in range(MILLION // 1000))
    path.write_bytes(data)
    second = 600 * (len(data) // 1000)
    marks = [(0, 1_700_000_000_000 | BEGIN), (second, 1_700_003_600_000 | BEGIN)]
    path.with_suffix(".times").write_bytes(b"".join(PACKED.pack(*mark) for mark in marks))
    return path


def lines_in_view(page) -> list[int]:
    """Return the numbers of the lines that are in view, and check that they follow one another."""
    numbers = page.evaluate(IN_VIEW)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers


def row(page, line: int):
    return page.locator(f".log-row[data-line='{line}']")


def sees(page, line: int, text: str | re.Pattern) -> None:
    expect(row(page, line).locator("code")).to_have_text(text)
    expect(row(page, line)).to_be_in_viewport()
    page.wait_for_function(f"(line) => ({IN_VIEW})().includes(line)", arg=line)


def search(page, log: Path) -> None:
    """Hits are counted, marked and gone through, and go on with new lines."""
    counter = page.locator("[data-found]")
    page.fill("[data-log-search] input", r"disk \d+ is")
    expect(counter).to_have_text("No matches")
    page.click("[data-regex]")
    expect(counter).to_have_text("– of 1,000")
    page.press("[data-log-search] input", "Enter")
    expect(counter).to_have_text("1 of 1,000")
    expect(row(page, 501).locator("mark")).to_have_text(["disk 500 is"])
    page.press("[data-log-search] input", "Shift+Enter")
    sees(page, 999_501, "ERROR disk 500 is full")
    with log.open("ab") as file:
        file.write(b"disk 7 is back\n")
    expect(counter).to_have_text("1,000 of 1,001")
    page.press("[data-log-search] input", "Enter")
    sees(page, MILLION + 1002, "disk 7 is back")
    picture(page, "log-search")
    page.fill("[data-log-search] input", "(")
    expect(counter).to_contain_text("invalid regular expression: missing )")


def test_a_log_of_a_million_lines_is_read_searched_and_linked_to(log, alice_page, browser_errors):
    page = alice_page
    page.goto("/jobs/fit/log")
    view = page.locator("[data-view]")
    sees(page, MILLION, "epoch 1 step 000999999 loss=0.25 acc=0.5")  # an active log is followed
    expect(page.locator("[data-length]")).to_have_text("1,000,000 lines")
    picture(page, "log-end")

    # new lines come; a reader who has scrolled away stays where they are
    with log.open("ab") as file:
        file.write(b"<b>new</b>\n")
    sees(page, MILLION + 1, "<b>new</b>")
    view.hover()
    page.mouse.wheel(0, -400)
    expect(page.locator("[data-follow]")).to_have_attribute("aria-pressed", "false")
    top = lines_in_view(page)[0]
    with log.open("ab") as file:
        file.write(b"more\n" * 1000)
    expect(page.locator("[data-length]")).to_have_text("1,001,001 lines")
    assert lines_in_view(page)[0] == top

    # scrolling: by the wheel a pixel is a pixel, by the scroll bar anywhere at once
    view.press("Home")
    sees(page, 1, "epoch 1 step 000000000 loss=0.25 acc=0.5")
    expect(row(page, 1).locator(".begins")).to_contain_text("Attempt 1")
    page.mouse.wheel(0, 2000)
    sees(page, 101, "epoch 1 step 000000100 loss=0.25 acc=0.5")
    view.evaluate("(view) => { view.scrollTop = view.scrollHeight / 2; }")
    expect(page.locator(".log-row").first).to_have_attribute("data-line", re.compile(r"^(49|50)\d{4}$"))
    middle = lines_in_view(page)[3]
    expect(row(page, middle).locator("code")).to_have_text(re.compile("step|ERROR|long"))
    assert abs(middle - 500_000) < 5000

    # the attempts, a line by its number, the first error
    page.click(".log-runs a:nth-child(2)")
    expect(row(page, 600_001).locator(".begins")).to_contain_text("Attempt 2")
    page.fill("[data-goto] input", "777,701")
    page.press("[data-goto] input", "Enter")
    sees(page, 777_701, re.compile(r"^long (and longer )+\[U\+202E\]<b>$"))
    wrapped = row(page, 777_701).bounding_box()["height"]
    page.click("[data-wrap]")
    expect(row(page, 777_701)).to_have_css("height", "20px")
    assert wrapped > 40
    page.click("[data-wrap]")
    page.click("[data-times]")
    expect(row(page, 777_701).locator("time")).to_have_attribute("datetime", "2023-11-14T23:13:20.000Z")
    page.click("[data-error]")
    sees(page, 501, "ERROR disk 500 is full")
    expect(row(page, 501).locator("code span").first).to_have_class("t-bold t-f1")
    assert page.url.endswith("#L501")
    picture(page, "log-error")
    search(page, log)
    assert [problem for problem in browser_errors if "/log/search" not in problem and "403" not in problem] == []


@pytest.mark.long
def test_a_match_that_the_view_does_not_know_yet_is_gone_to_once_it_comes(alice, alice_page, browser_errors):
    put(Job, alice, "fit", "running")
    log = storage.job_dir("alice", "fit") / "log" / "job.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"before\n" * 300)
    held, asked = [], []
    alice_page.route("**/log/lines?*follow=1*", lambda route: held.append(route))
    alice_page.goto("/jobs/fit/log")
    sees(alice_page, 300, "before")
    alice_page.route("**/log/lines?first=*", lambda route: asked.append(route))
    with log.open("ab") as file:
        file.write(b"disk 7 is back\n")
    with alice_page.expect_request("**/log/lines?first=*"):  # for the marks of what is in view
        alice_page.fill("[data-log-search] input", "is back")
    alice_page.press("[data-log-search] input", "Enter")
    expect(alice_page.locator("[data-found]")).to_have_text("1 of 1")
    asked[0].continue_()
    sees(alice_page, 301, "disk 7 is back")
    assert browser_errors == []


@pytest.mark.long
def test_one_line_is_counted_as_one(alice, alice_page, browser_errors):
    put(Job, alice, "fit", "running")
    log = storage.job_dir("alice", "fit") / "log" / "job.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"")
    alice_page.goto("/jobs/fit/log")
    length = alice_page.locator("[data-length]")
    expect(length).to_have_text("0 lines")
    for text, counted in (("first", "1 line"), ("second", "2 lines")):
        with log.open("ab") as file:
            file.write(f"{text}\n".encode())
        expect(length).to_have_text(counted)
    assert browser_errors == []


@pytest.mark.long
def test_an_answer_that_comes_late_takes_no_new_line_away(alice, alice_page, browser_errors):
    put(Job, alice, "fit", "running")
    log = storage.job_dir("alice", "fit") / "log" / "job.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"before\n" * 300)
    late = []
    alice_page.route("**/log/lines?first=1&*", lambda route: late.append((route, route.fetch())))
    alice_page.goto("/jobs/fit/log")
    sees(alice_page, 300, "before")
    with alice_page.expect_request("**/log/lines?first=1&*"):
        alice_page.locator("[data-view]").press("Home")
    while not late:
        alice_page.wait_for_timeout(10)
    with log.open("ab") as file:
        file.write(b"after\n")
    expect(alice_page.locator("[data-length]")).to_have_text("301 lines")
    alice_page.locator("[data-view]").press("End")
    sees(alice_page, 301, "after")
    route, answer = late[0]
    with alice_page.expect_response("**/log/lines?first=1&*"):
        route.fulfill(response=answer)
    alice_page.locator("[data-view]").press("Home")
    sees(alice_page, 1, "before")  # the late answer has been taken
    expect(alice_page.locator("[data-length]")).to_have_text("301 lines")
    assert browser_errors == []


@pytest.mark.long
def test_links_to_lines_and_anomalies_on_a_phone(log, alice_page, browser_errors):
    page = alice_page
    taken: list[dict] = []
    reader = follow.Follower(storage.root(), taken.extend)
    reader.poll()
    odd = [line for line in taken if "disk 500" in line["log"]][:3]
    logstore.get().append(
        [accept.line(line["log"], id=line["_id"], namespace="alice", deployment="fit") for line in odd]
    )
    logstore.get().update_many([(line["_id"], {"anomaly_level": "Anomaly"}) for line in odd])
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.goto("/jobs/fit/log#L2499-L2502")
    sees(page, 2501, "ERROR disk 500 is full")
    expect(page.locator(".log-row.is-chosen")).to_have_count(4)
    expect(page.locator("[data-chosen-lines]")).to_have_text("L2499–L2502")
    expect(row(page, 2501).locator("a.odd")).to_have_attribute("href", re.compile(r"^/aiops/line\?id="))
    picture(page, "log-phone")
    for line in (2501, 501):
        page.click("[data-anomaly]")
        sees(page, line, "ERROR disk 500 is full")
    row(page, 503).locator("a.no").click()
    row(page, 505).locator("a.no").click(modifiers=["Shift"])
    assert page.url.endswith("#L503-L505")
    page.locator("[data-view]").press("n")  # nothing is searched
    page.locator("[data-view]").press("End")
    sees(page, MILLION, "epoch 1 step 000999999 loss=0.25 acc=0.5")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert browser_errors == []


@pytest.mark.long
def test_a_page_that_was_asked_for_before_a_line_came_does_not_remove_it(alice, alice_page, browser_errors):
    WatchedWorkload.objects.create(namespace="alice", deployment="fit")
    logstore.get().append([accept.line("epoch one", namespace="alice", deployment="fit")])
    late = []

    def hold(route):
        if route.request.is_navigation_request():
            route.continue_()
        else:
            late.append((route, route.fetch()))

    alice_page.route("**/aiops", hold)
    alice_page.goto("/aiops")
    rows = alice_page.locator("[data-tail] tbody tr")
    expect(rows).to_have_count(1)
    in_another_thread(lambda: changed("alice", "job", "fit"))  # so the page is read again
    while not late:
        alice_page.wait_for_timeout(10)
    in_another_thread(lambda: accept.store([accept.line("disk gone", namespace="alice", deployment="fit")]))
    expect(rows).to_have_count(2)
    route, answer = late[0]
    route.fulfill(response=answer, body=re.sub(r"(?s)<title>.*?</title>", "<title>late</title>", answer.text()))
    expect(alice_page).to_have_title("late")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("disk gone")
    alice_page.unroute_all(behavior="ignoreErrors")
    assert browser_errors == []
