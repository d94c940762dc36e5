"""Between a workspace's row and its runs: what is a workspace's own; runners.owned has the rest.

Called by actors and reconcile. No lock is held while a runner or the workspace is asked, and every step may be
repeated.
"""

from __future__ import annotations

import contextlib
import json
import time
from datetime import UTC, datetime
from http.client import HTTPException
from typing import NamedTuple

from django.conf import settings
from django.utils import timezone

import runners
from apps import proof
from datasets import sources
from jobs.packages import building
from kernel import after_commit, outbound, sockets, storage, trash
from kernel.locking import Missing
from kernel.messages import Message
from kernel.textlog.files import LogFile
from runners import STOPPED, RunStatus, owned

from . import entering, lifecycle, packages, place, policy
from .models import State, Workspace

INSTALLING = Message("its packages are being installed")
LOOK_AGAIN_MS = 200
PROBE_S = 2.0
STOP_GRACE_S = 10
MOST_ACTIVITY = 1 << 14  # bytes
LOGINS_EVERY_S = 60  # a log-in that ends by its age is noticed within it
LOGINS, MOST_LOGINS = "/-logins", 1 << 16  # bytes: see program/lab.py


_logins_looked: dict[int, float] = {}  # when those of a workspace were looked at, on the monotonic clock


class Activity(NamedTuple):
    """What the program of a workspace says: when it was used last, whether it computes, and whose websockets are open,
    by the digests of their log-ins.
    """

    last: datetime
    busy: bool
    logins: tuple[str, ...]


class WorkspaceRuns(owned.OwnedRuns[Workspace]):
    """One run after the other for each workspace, as long as it should be up."""

    model, prefix = Workspace, "workspace-"

    order = staticmethod(lifecycle.note_order)

    def prepare(self, workspace: Workspace) -> bool:
        """Return whether the packages of the workspace are installed and GPUs of its type are free; `poll` asks again
        while they are not.
        """
        if gone := sources.missing(workspace.user, workspace.datasets):
            self.fail(workspace.pk, Message("the dataset %(name)s is not there any more", name=gone[0]))
            return False
        try:
            ready = packages.ensure(workspace)
        except building.Failed as problem:
            self.fail(workspace.pk, problem.reason)
            return False
        waits_for = owned.lacking_gpus(workspace.gpu_type, workspace.gpu) if ready else INSTALLING
        if waits_for:
            lifecycle.note_wait(workspace, waits_for, again=True)
        return not waits_for

    def spec(self, workspace: Workspace) -> runners.RunSpec:
        return place.spec_of(workspace)

    def fail(self, pk: int, reason: str) -> None:
        with contextlib.suppress(Missing):
            lifecycle.fail(pk, reason, by="runner")

    def running(self, workspace: Workspace, status: RunStatus, follow: bool) -> None:
        if workspace.state == State.READY:
            judge(workspace)
            return
        if status.waits:
            lifecycle.note_wait(workspace, status.reason)
            if follow:
                after_commit.enqueue("workspaces.launch", workspace.pk,
                                     delay_ms=owned.look_again_ms(status, LOOK_AGAIN_MS))  # fmt: skip
            return
        runner = runners.get()
        address = runner.address(workspace.run_name)
        if address and proof.is_given(address, workspace.run_name, PROBE_S):
            lifecycle.up(workspace.pk, workspace.run_name, sockets.text(address), by="runner")
        elif owned.seconds_run(status, workspace.ordered) > settings.APP_START_S:
            runner.stop(workspace.run_name, 0)
            words = Message("did not answer within %(seconds)s s", seconds=settings.APP_START_S)
            _end(workspace, words)
        elif follow:
            after_commit.enqueue("workspaces.launch", workspace.pk, delay_ms=LOOK_AGAIN_MS)

    def unknown(self, workspace: Workspace, status: RunStatus, follow: bool) -> None:
        if workspace.state == State.CREATING and owned.seconds_since(workspace.ordered) <= settings.APP_START_S:
            after_commit.enqueue("workspaces.launch", workspace.pk, follow)
        else:
            self.ended(workspace, status)

    def release(self, row: Workspace) -> None:
        lifecycle.note_stop(row)

    def ended(self, workspace: Workspace, status: RunStatus) -> None:
        """Start it again where it was ended from outside: with the platform, by an administrator, with the machine."""
        reason = status.reason or Message("the run no longer exists")
        outside = status.state in ("lost", "unknown") or reason.startswith(STOPPED)
        if workspace.state == State.READY and outside:
            with contextlib.suppress(Missing):
                lifecycle.renew(workspace.pk, workspace.run_name, reason, by="runner")
        else:
            _end(workspace, owned.with_log(reason, place.log_path(workspace)))


RUNS = WorkspaceRuns()
sweep = RUNS.sweep


def launch(pk: int, follow: bool = True) -> None:
    """Start the next run of a workspace that waits for one, and look at it until it is up."""
    workspace = RUNS.launch(pk)
    if workspace is not None:
        poll(workspace, follow)


def poll(workspace: Workspace, follow: bool = False) -> None:
    """Poll the run, and the workspace itself while it is not up, and record what changed."""
    if workspace.run_name:
        RUNS.poll(workspace, follow)
    else:
        after_commit.enqueue("workspaces.launch", workspace.pk, follow)


def stop(pk: int, run_name: str, follow: bool = True) -> None:
    """Stop the run of a workspace that is being stopped, and release its resources."""
    workspace = Workspace.objects.filter(pk=pk, state=State.STOPPING, run_name=run_name).first()
    if workspace is not None and not RUNS.clean(workspace, STOP_GRACE_S) and follow:
        after_commit.enqueue("workspaces.stop", pk, run_name, delay_ms=LOOK_AGAIN_MS)


def erase(pk: int, follow: bool = True) -> None:
    """Stop a deleted workspace's run, remove its files, then its row."""
    workspace = Workspace.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if workspace is None:
        return
    if workspace.run_name and not owned.stop(workspace.run_name, STOP_GRACE_S):
        if follow:
            after_commit.enqueue("workspaces.erase", pk, delay_ms=LOOK_AGAIN_MS)
        return
    storage.remove_tree(place.folder(workspace))
    log_file(workspace).forget()
    trash.forget_log("workspaces", workspace.user.username, workspace.name)
    lifecycle.forget(pk)


def close_ended(owner: int) -> None:
    """Close the websockets to a user's workspaces whose log-ins have ended. A page that is still let in opens new ones.

    Raises OSError, HTTPException or ValueError, after all workspaces, when one of them has not answered.
    """
    problems: list[Exception] = []
    for workspace in Workspace.objects.filter(user_id=owner, state=State.READY).exclude(address=""):
        try:
            open_logins = json.loads(_ask(workspace, "GET"))
            ended = [login for login in open_logins if not entering.is_valid(str(login), workspace.pk, owner)]
            if ended:
                _ask(workspace, "POST", json.dumps(ended).encode())
        except (OSError, HTTPException, ValueError) as problem:
            problems.append(problem)
    if problems:
        raise problems[0]


def _ask(workspace: Workspace, method: str, body: bytes | None = None) -> bytes:
    """Send a request about log-ins to the program of a workspace (program/lab.py); return the answer."""
    status, answer = outbound.exchange(
        sockets.parse(workspace.address), method, LOGINS, body, proof.headers(workspace.run_name), limit_s=PROBE_S,
        most=MOST_LOGINS,
    )  # fmt: skip
    if status != 200:
        raise OSError(f"workspace {workspace.pk}: {method} {LOGINS} was answered with {status}")
    return answer


def log_file(workspace: Workspace) -> LogFile:
    """Return which files the log has."""
    folder = place.folder(workspace)
    return LogFile(folder, str(place.log_path(workspace).relative_to(folder)))


def judge(workspace: Workspace) -> None:
    """Record what a running workspace has done; warn its owner, or stop it, where the policy says so."""
    now = timezone.now()
    if (found := activity(workspace, now)) is not None:
        if found[:2] != (workspace.active, workspace.busy):
            lifecycle.note_activity(workspace.pk, workspace.run_name, found.last, found.busy)
            workspace.active, workspace.busy = found.last, found.busy
        close_expired(workspace, found.logins)
    if (due := policy.due(workspace, now)) is None:
        if workspace.stops is not None:  # the warning is void, whatever has made it so
            lifecycle.note_activity(workspace.pk, workspace.run_name, workspace.active, workspace.busy)
        return
    stops, reason = due
    if workspace.stops is None:
        lifecycle.warn(workspace.pk, workspace.run_name, reason, stops)
    elif now >= workspace.stops:
        lifecycle.stop_due(workspace.pk, workspace.run_name, reason, now)


def close_expired(workspace: Workspace, logins: tuple[str, ...]) -> None:
    """Close the websockets whose log-ins have ended by their age, as sessions and tokens do: nothing announces that."""
    now = time.monotonic()
    if not logins or now - _logins_looked.get(workspace.pk, -LOGINS_EVERY_S) < LOGINS_EVERY_S:
        return
    _logins_looked[workspace.pk] = now
    if not all(entering.is_valid(login, workspace.pk, workspace.user_id) for login in logins):
        after_commit.enqueue("workspaces.close_ended", workspace.user_id)


def activity(workspace: Workspace, now: datetime) -> Activity | None:
    """Return what a workspace has written of its use; None where that says nothing. The program can write what it likes
    there: it can keep itself alive for its limit of hours.
    """
    handle = storage.open_file(place.folder(workspace), place.ACTIVITY)
    if handle is None:
        return None
    with handle:
        try:
            found = json.loads(handle.read(MOST_ACTIVITY))
            last = datetime.fromtimestamp(float(found["last"]), UTC)
            busy = found["busy"] is True
            logins = tuple(login for login in found.get("logins", ()) if isinstance(login, str))
        except (ValueError, TypeError, KeyError, OverflowError, OSError):
            return None
    return Activity(max(min(last, now), workspace.active or last), busy, logins)


def _end(workspace: Workspace, reason: str) -> None:
    with contextlib.suppress(Missing):
        lifecycle.end_run(workspace.pk, workspace.run_name, reason, by="runner")
