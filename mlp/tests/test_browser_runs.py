"""The table of runs in a real browser: filter, columns, many runs tagged, deleted and restored."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from jobs.models import Job, Project, RunMetric, RunParam

pytestmark = pytest.mark.django_db(transaction=True)
ROWS = "form[data-runs] tbody tr"


@pytest.fixture
def runs(alice):
    """Six finished runs, a to f, with a learning rate and a loss."""
    for place, name in enumerate("abcdef"):
        job = Job.objects.create(
            user=alice, tenant=alice.tenant, name=name, entry="train.py", state="finished", progress=100
        )
        RunParam.objects.create(job=job, user=alice, name="lr", text=f"0.{place}", number=place / 10)
        RunMetric.objects.create(job=job, user=alice, name="loss", last=place, min=place, max=place, count=1, step=1)


def test_runs_are_filtered_tagged_deleted_and_restored(alice_page, runs):
    page = alice_page
    page.goto("/jobs")
    expect(page.locator(ROWS)).to_have_count(6)

    page.fill("#filter", "loss < ")
    page.keyboard.press("Enter")
    expect(page.locator(".filter-problem")).to_contain_text("column 7")
    page.fill("#filter", "loss < 3 and lr > 0")
    page.keyboard.press("Enter")
    expect(page.locator(ROWS)).to_have_count(2)

    page.locator("#columns > summary").click()
    page.locator("#columns input[value='min:loss']").check()
    page.locator("#columns button").click()
    page.get_by_role("link", name="loss minimum").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("loss")
    expect(page.locator(f"{ROWS} th.name")).to_have_text([re.compile("b"), re.compile("c")])

    page.locator("[data-all]").check()
    page.locator(".bulk summary", has_text="Tag").click()
    page.fill("#bulk-tags", "good, team=vision")
    page.get_by_role("button", name="Add tags").click()
    expect(page.get_by_text("2 runs changed.")).to_be_visible()
    page.fill("#filter", "tag.team = vision")
    page.keyboard.press("Enter")
    expect(page.locator(ROWS)).to_have_count(2)

    page.locator("#pick-all").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#confirm")).to_contain_text("Selected: 2 (b, c)")
    page.locator("#confirm-yes").click()
    expect(page.get_by_text("2 runs moved to the trash.")).to_be_visible()
    expect(page.locator(ROWS)).to_have_count(0)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(ROWS)).to_have_count(2)
    page.goto("/jobs")
    expect(page.locator(ROWS)).to_have_count(6)


@pytest.mark.long
def test_what_is_done_to_runs_keeps_the_place_and_the_selection(alice_page, alice):
    """The bar with the buttons is in sight beside a selected run, however long the table is; Enter adds the tags."""
    page = alice_page
    Job.objects.bulk_create(
        Job(user=alice, tenant=alice.tenant, name=f"run{chr(97 + place // 26)}{chr(97 + place % 26)}", entry="train.py",
            state="finished", progress=100)
        for place in range(45)
    )  # fmt: skip
    Job.objects.create(user=alice, tenant=alice.tenant, name="goeson", entry="train.py", state="running")
    page.goto("/jobs")
    expect(page.locator(ROWS)).to_have_count(46)
    expect(page.locator(".bulk [data-selected]")).to_have_text("Select at least one run.")
    expect(page.locator(".bulk button[value=compare]")).to_be_disabled()
    expect(page.locator(".bulk .check").first).to_have_text("Select all 46 matching runs")
    tick = page.locator(f"{ROWS} input[value=runam]")
    tick.scroll_into_view_if_needed()
    tick.check()
    expect(page.locator(".bulk")).to_be_in_viewport(ratio=1)
    cancel, delete = (page.locator(f".bulk button[value={verb}]") for verb in ("cancel", "trash"))
    expect(cancel).to_be_disabled()  # it has ended
    page.check(f"{ROWS} input[value=goeson]")
    expect(cancel).to_be_enabled()
    tick.uncheck()
    expect(delete).to_be_disabled()
    page.uncheck(f"{ROWS} input[value=goeson]")
    tick.check()
    page.locator(".bulk summary", has_text="Tag").click()
    expect(page.locator("#bulk-tags")).to_be_in_viewport(ratio=1)
    page.fill("#bulk-tags", "good")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 run changed.")).to_be_attached()
    expect(tick).to_be_checked()
    expect(tick).to_be_in_viewport()
    expect(page.locator(".bulk [data-selected]")).to_have_text("Selected: 1 · All selected runs have ended.")
    page.fill("#filter", "state = finished")
    page.locator("#filter").press("Enter")
    page.wait_for_url("**/jobs?*filter=*")
    expect(tick).to_be_checked()
    page.locator("thead a", has_text="Name").click()
    page.wait_for_url("**/jobs?*sort=*")
    expect(tick).to_be_checked()


@pytest.mark.long
def test_columns_are_moved_and_tags_and_notes_edited_in_the_table(alice_page, alice, runs, browser_errors):
    page = alice_page
    project = Project.objects.create(user=alice, name="vision")
    Job.objects.update(project=project)
    page.goto("/projects/vision?col=tags&col=param:lr&col=best:loss")
    heads = page.locator("th[data-column] a")
    expect(heads).to_have_text(["Name", "Tags", "lr", "loss best"])

    heads.nth(2).focus()
    page.keyboard.press("Shift+ArrowRight")
    expect(heads).to_have_text(["Name", "Tags", "loss best", "lr"])
    expect(heads.nth(3)).to_be_focused()
    edge = {"x": 3, "y": 3}
    heads.nth(3).drag_to(heads.nth(1), source_position=edge, target_position=edge)
    expect(heads).to_have_text(["Name", "lr", "Tags", "loss best"])
    assert "col=name&col=param%3Alr&col=tags&col=best%3Aloss" in page.url

    page.locator("[data-column='best:loss'] [data-head-menu]").click()
    expect(page.get_by_role("menuitemradio", name="Lower is better")).to_have_attribute("aria-checked", "true")
    page.get_by_role("menuitemradio", name="Higher is better").click()
    expect(page.locator("[data-column='best:loss']")).to_have_attribute("data-goal", "max")

    page.get_by_role("button", name="Edit the tags of f").click()
    page.keyboard.type("a'b")
    page.keyboard.press("Enter")
    expect(page.locator(".editor + .problem")).to_contain_text("quotation marks")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    expect(page.locator("td[data-edit=tags]").first).to_contain_text("a")
    expect(page.locator(".editor")).to_have_count(0)
    expect(page.locator("td[data-edit=tags] .tag")).to_have_text(["a"])
    assert not [error for error in browser_errors if "409" not in error]
