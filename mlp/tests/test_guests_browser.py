"""Guests and the trash of workspaces in a real browser: the forms of the owner's page and the invitation."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from mlp.operators.tests.admin_world import put
from workspaces import guests
from workspaces.models import Guest, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.long
def test_an_owner_invites_and_removes_a_guest(alice_page, alice, bob):
    put(Workspace, alice, "desk", "error")
    alice_page.goto("/workspaces/desk")
    card = alice_page.locator("[data-region=guests]")
    card.locator("#guest").fill("bob")
    card.get_by_role("button", name="Invite").click()
    expect(alice_page.get_by_text("bob is invited.", exact=True)).to_be_visible()
    expect(card.locator("li")).to_contain_text("bob")
    Guest.objects.get(user=bob)
    for width in (390, 1280):
        alice_page.set_viewport_size({"width": width, "height": 900})
        assert alice_page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
    card.get_by_role("button", name="Remove").click()
    dialog = alice_page.get_by_role("dialog")
    expect(dialog).to_contain_text("Remove the guest bob?")
    dialog.get_by_role("button", name="Remove").click()
    expect(card.locator("li")).to_have_count(0)
    assert not Guest.objects.exists()


def test_a_guest_accepts_and_leaves(alice_page, alice, bob):
    put(Workspace, bob, "desk", "error")
    guests.invite(user=bob, name="desk", guest="alice", by="bob")
    alice_page.goto("/workspaces")
    alice_page.locator("[data-region=invitations] a").click()
    expect(alice_page.locator("main")).to_contain_text("In this workspace you act as bob")
    alice_page.get_by_role("button", name="Accept").click()
    expect(alice_page.locator("main")).to_contain_text("It does not run. Only bob can start it.")
    assert Guest.objects.get().accepted
    alice_page.get_by_role("button", name="Leave").click()
    alice_page.get_by_role("dialog").get_by_role("button", name="Leave").click()
    alice_page.wait_for_url("**/workspaces")
    expect(alice_page.locator("[data-region=invitations]")).to_have_count(0)
    assert not Guest.objects.exists()


@pytest.mark.long
def test_a_deleted_workspace_is_undone(alice_page, alice):
    put(Workspace, alice, "desk", "error")
    alice_page.goto("/workspaces/desk")
    alice_page.get_by_role("button", name="Delete").click()
    dialog = alice_page.get_by_role("dialog")
    expect(dialog).to_contain_text("It is moved to the trash and can be restored from there.")
    dialog.get_by_role("button", name="Delete").click()
    alice_page.get_by_role("button", name="Undo").click()
    expect(alice_page.locator("main")).to_contain_text("desk")
    assert Workspace.objects.get().trashed is None
