"""The verbs of workspaces, each with a row that it acts on, and their effects: for test_row_locks.py and
verb_effects.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from types import ModuleType

from django.utils import timezone

from accounts.models import User
from workspaces import guests, lifecycle, trash
from workspaces.models import Guest, Workspace

from .stepping_verbs import Effect
from .trash_verbs import of_trash

LOCKLESS = {
    lifecycle: {"request_id", "create_workspace", "waiting", "admit", "reserve", "note_stop", "require_startable"}
    | {"held_gpus"},
    trash: set(),
    guests: {"require_open", "end_all", "close_later", "close_links"},
}


def make(user: Callable[[], User], hold: Callable[..., Workspace], **fields) -> Workspace:
    """Return a workspace of a new user with its resource request."""
    owner = user()
    row = Workspace.objects.create(user=owner, tenant=owner.tenant, name="lab", cpu=0, ram=1, **fields)
    return hold(row, lifecycle, ram=1)


def cases(user: Callable[[], User], hold: Callable[..., Workspace]) -> dict[ModuleType, Callable[[], Iterator]]:
    """Return the verbs of each module."""
    return {
        lifecycle: lambda: of_workspaces(user, hold),
        trash: lambda: of_trash(trash, lambda **fields: make(user, hold, **fields)),
        guests: lambda: of_guests(user, hold),
    }


def of_guests(
    user: Callable[[], User], hold: Callable[..., Workspace]
) -> Iterator[tuple[str, Workspace, Callable[[], object]]]:
    """Yield each verb about a guest with the workspace that it locks, and a call of it."""
    for verb in ("invite", "accept", "remove"):
        row, person = make(user, hold, state="stopped"), user()
        if verb != "invite":
            Guest.objects.create(workspace=row, user=person)
        whose = {"owner": row.user.username, "name": "lab", "by": "test"}
        yield (
            verb,
            row,
            {
                "invite": partial(guests.invite, user=row.user, name="lab", guest=person.username, by="test"),
                "accept": partial(guests.accept, user=person, **whose),
                "remove": partial(guests.remove, guest=person.username, **whose),
            }[verb],
        )


def of_workspaces(
    user: Callable[[], User], hold: Callable[..., Workspace]
) -> Iterator[tuple[str, Workspace, Callable[[], object]]]:
    """Yield each verb with a workspace that it acts on, and a call of it."""
    now = timezone.now()
    served = {"state": "ready", "address": "127.0.0.1:1", "ready_since": now, "active": now}
    idle = {**served, "active": now - timedelta(days=2), "idle_minutes": 60}
    warned = {**idle, "stops": now}
    ended = {"state": "stopped", "reserved": False, "run_name": "", "reason": "stopped"}
    resting, waits = {"state": "stopping"}, {"run_name": ""}

    def key(row: Workspace) -> dict:
        return {"user": row.user, "name": "lab", "by": "test"}

    for verb, fields, call in [
        ("note_order", {}, lambda row: lifecycle.note_order(row.pk)),
        ("note_order: first", waits, lambda row: lifecycle.note_order(row.pk)),
        ("note_order: once ready", served, lambda row: lifecycle.note_order(row.pk)),
        ("note_wait", {}, lambda row: lifecycle.note_wait(row, "x")),
        ("note_wait: once ready", served, lambda row: lifecycle.note_wait(row, "x")),
        ("up", {}, lambda row: lifecycle.up(row.pk, "run", "127.0.0.1:1", by="test")),
        ("up: another run", {}, lambda row: lifecycle.up(row.pk, "another", "127.0.0.1:1", by="test")),
        ("up: once failed", {"state": "error"}, lambda row: lifecycle.up(row.pk, "run", "127.0.0.1:1", by="test")),
        ("end_run", served, lambda row: lifecycle.end_run(row.pk, "run", "x", by="test")),
        ("end_run: another run", served, lambda row: lifecycle.end_run(row.pk, "another", "x", by="test")),
        ("end_run: once stopping", resting, lambda row: lifecycle.end_run(row.pk, "run", "x", by="test")),
        ("fail", {}, lambda row: lifecycle.fail(row.pk, "x", by="test")),
        ("fail: once ready", served, lambda row: lifecycle.fail(row.pk, "x", by="test")),
        ("renew", served, lambda row: lifecycle.renew(row.pk, "run", "x", by="test")),
        ("renew: another run", served, lambda row: lifecycle.renew(row.pk, "another", "x", by="test")),
        ("stop_workspace", served, lambda row: lifecycle.stop_workspace(**key(row))),
        ("stop_workspace: without a run", waits, lambda row: lifecycle.stop_workspace(**key(row))),
        ("start_workspace", ended, lambda row: lifecycle.start_workspace(**key(row))),
        ("note_activity", served, lambda row: lifecycle.note_activity(row.pk, "run", now, True)),
        ("note_activity: once warned", warned, lambda row: lifecycle.note_activity(row.pk, "run", now, False)),
        ("note_activity: another run", warned, lambda row: lifecycle.note_activity(row.pk, "another", now, False)),
        ("warn", idle, lambda row: lifecycle.warn(row.pk, "run", "x", now)),
        ("warn: again", warned, lambda row: lifecycle.warn(row.pk, "run", "x", now)),
        ("stop_due", warned, lambda row: lifecycle.stop_due(row.pk, "run", "x", now)),
        ("stop_due: not yet", warned, lambda row: lifecycle.stop_due(row.pk, "run", "x", now - timedelta(minutes=1))),
        ("stop_due: warning withdrawn", idle, lambda row: lifecycle.stop_due(row.pk, "run", "x", now)),
        ("stop_over_limit", served, lambda row: lifecycle.stop_over_limit(row.pk, "run", "x")),
        ("stop_over_limit: another run", served, lambda row: lifecycle.stop_over_limit(row.pk, "another", "x")),
        ("keep", warned, lambda row: lifecycle.keep(**key(row))),
        ("delete_workspace", ended, lambda row: lifecycle.delete_workspace(**key(row))),
        ("delete_all_of", served, lambda row: lifecycle.delete_all_of(row.user, by="test")),
        ("forget", {"state": "deleting"}, lambda row: lifecycle.forget(row.pk)),
        ("forget: once ready", served, lambda row: lifecycle.forget(row.pk)),
    ]:
        row = make(user, hold, **{"run_name": "run", "reserved": True, **fields})
        yield verb, row, lambda call=call, row=row: call(row)


GONE = "reason, reserved, run_name, ready_since, address"
EFFECTS = {
    "note_order": Effect("creating", "tried"),
    "note_order: first": Effect("creating", "tried", fields="attempt, run_name, ordered"),
    "note_order: once ready": Effect("ready", "tried"),
    "note_wait": Effect("creating", "tried", groups="pages", fields="reason"),
    "note_wait: once ready": Effect("ready", "tried"),
    "up": Effect("ready", "confirmed", groups="pages", fields="ready_since, address, active", history="up by test"),
    "up: another run": Effect("creating", "tried"),
    "up: once failed": Effect("error", "tried"),
    "end_run": Effect("error", "cancelled", groups="pages", fields=GONE, history="fail by test: x"),
    "end_run: another run": Effect("ready", "tried"),
    "end_run: once stopping": Effect("stopping", "tried"),
    "fail": Effect("error", "cancelled", "", "pages", "reason, reserved, run_name", "fail by test: x"),
    "fail: once ready": Effect("ready", "tried"),
    "renew": Effect(
        "creating", "tried", "workspaces.launch@default", "pages", "reason, run_name, address", "renew by test: x"
    ),
    "renew: another run": Effect("ready", "tried"),
    "stop_workspace": Effect(
        "stopping", "tried", "workspaces.stop@default", "pages", "reason, ready_since, address", "stop by test: stopped"
    ),
    "stop_workspace: without a run": Effect(
        "stopped", "cancelled", groups="pages", fields="reason, reserved", history="stop by test: stopped, rest by test"
    ),
    "start_workspace": Effect(
        "creating", "tried", "workspaces.launch@default", "pages", "reason, reserved, queued", "start by test"
    ),
    "note_activity": Effect("ready", "tried", fields="busy"),
    "note_activity: once warned": Effect(
        "ready", "tried", groups="pages", fields="active, stops", history="warn by reconcile: no longer idle"
    ),
    "note_activity: another run": Effect("ready", "tried"),
    "warn": Effect("ready", "tried", groups="pages", fields="stops", history="warn by reconcile: x"),
    "warn: again": Effect("ready", "tried"),
    "stop_due": Effect(
        "stopping", "tried", "workspaces.stop@default", "pages", "reason, ready_since, address, stops",
        "stop by reconcile: x",
    ),
    "stop_due: not yet": Effect("ready", "tried"),
    "stop_due: warning withdrawn": Effect("ready", "tried"),
    "stop_over_limit": Effect(
        "stopping", "tried", "workspaces.stop@default", "pages", "reason, ready_since, address", "stop by reconcile: x"
    ),
    "stop_over_limit: another run": Effect("ready", "tried"),
    "keep": Effect("ready", "tried", groups="pages", fields="active, stops"),
    "delete_workspace": Effect(
        "deleting", "tried", "workspaces.erase@default", "pages", history="erase by test"
    ),
    "delete_all_of": Effect(
        "deleting", "cancelled", "workspaces.erase@default", "pages", "reason, reserved, ready_since, address",
        "fail by test: cancelled: the account was deactivated, erase by test",
    ),
    "forget": Effect("gone", "cancelled", groups="pages"),
    "forget: once ready": Effect("ready", "tried"),
}  # fmt: skip
