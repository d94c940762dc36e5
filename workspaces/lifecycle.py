"""The verbs of workspaces: every change of state is made here. Called by api, pages, admin, launching and reconcile.

The tenant's cpu, gpu and ram are tried when a workspace is created or started, as soon as they are free; confirmed when
it is up, and released when its run is gone.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from accounts import lifecycle as accounts
from accounts import notices
from accounts.tenancy import members
from datasets import sources
from jobs import checks
from jobs.artifacts import outputs
from jobs.models import Job
from jobs.packages.named import references
from kernel import after_commit, broker, trash
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import DELETING, Missing, WrongState, locked
from kernel.messages import Message
from kernel.models import record_change, record_created
from kernel.outcomes import Outcome
from models_app.models import Model
from resources import lending, products, tcc
from resources.models import Tenant

from . import policy
from .models import LIVE, State, Workspace

APPLIER = "am"  # as applications: REST has four appliers
STOPPED = Message("stopped")
QUEUED = Message("queued: not enough free resources")
EVENT = gettext_noop("idle")


def request_id(pk: int) -> str:
    """Return the id of the workspace's resource request."""
    return f"workspace:{pk}"


def create_workspace(
    *, user, name: str, title: str = "", gpu: int = 0, cpu: float = 1, ram: int = 2048, tenant: str | None = None,
    environment: str = "", datasets: tuple | list = (), job: str = "", model: str = "",
    idle_minutes: int | None = None, hours: int | None = None, gpu_type: str = "", by: str,
) -> Workspace:  # fmt: skip
    """Create the row, reserve its resources and enqueue its start; without free ones it is queued.

    `job` is one of the user's whose code, arguments, inputs, datasets, environment and output it opens, `model` one of
    theirs whose files it shows. `idle_minutes` and `hours` shorten what the policy allows. `gpu_type` is one of the
    runner's (resources.products). Raises Refused: the name is taken, no such dataset, job, model, environment or type,
    more than the tenant has, the user's files take all the disk that they may. Raises Fault, with nothing stored, when
    the task queue is not available.
    """
    broker.require()
    outputs.require(user.pk)
    try:
        with transaction.atomic():
            tenant_row = members.hold(user, tenant)
            policy.require_allowed(tenant_row)
            idle_minutes, hours = policy.narrowed(tenant_row, idle_minutes, hours)
            values: dict = {"gpu": gpu, "cpu": cpu, "ram": ram}
            products.need_possible(gpu_type, gpu)
            tcc.never_fits(tenant_row, user.username, **values)
            source = _job(user, job) if job else None
            wanted = list(datasets) or (sources.stored(user, source.datasets) if source is not None else [])
            sources.hold(user, wanted)
            checks.need_data(user, wanted)
            if outside := sources.external(user, wanted):
                text = "the files of the dataset %(name)s are in a bucket; only jobs read them"
                raise Refused(text, field="datasets", name=outside)
            if environment:
                values |= references.columns(tenant_row, environment)
            workspace = Workspace.objects.create(
                user=user, tenant=tenant_row, name=name, title=title, datasets=sources.numbered(user, wanted),
                job=source, model=_model(user, model) if model else None, idle_minutes=idle_minutes, hours=hours,
                queued=timezone.now(), gpu_type=gpu_type, **values,
            )  # fmt: skip
            record_created(workspace, by=by)
            reserve(workspace)
    except IntegrityError as problem:
        if violated(problem) == "workspace_name_once_per_user":
            raise Refused(_taken(user, name), field="name")
        raise
    return workspace


def _taken(user, name: str) -> Message:
    """Return why the name is not free."""
    if Workspace.objects.filter(user=user, name=name).exclude(trashed=None).exists():
        return Message("you already have a workspace named %(name)s; it is in the trash", name=name)
    return Message("you already have a workspace named %(name)s", name=name)


def _job(user, name: str) -> Job:
    """Return the user's job that a workspace opens. Raises Refused."""
    job = Job.objects.filter(user=user, name=name, trashed=None).exclude(state="deleting").first()
    if job is None:
        raise Refused("you have no job named %(name)s", field="job", name=name)
    return job


def _model(user, name: str) -> Model:
    """Return the user's model that a workspace shows. Raises Refused."""
    model = Model.kept.filter(user=user, name=name).exclude(state=DELETING).first()
    if model is None:
        raise Refused("you have no model named %(name)s", field="model", name=name)
    if model.external:
        raise Refused("the files of the model %(name)s are in a bucket; only applications and jobs read them",
                      field="model", name=name)  # fmt: skip
    return model


def held_gpus() -> QuerySet:
    """Return the GPUs that workspaces have reserved, by the types that they have named."""
    return Workspace.objects.filter(reserved=True).exclude(gpu_type="").values_list("gpu_type", "gpu")


def waiting():
    """Return the queued workspaces in their order."""
    return Workspace.objects.filter(state=State.CREATING, reserved=False).order_by("queued", "pk")


def admit() -> None:
    """Reserve the resources of queued workspaces as far as they fit; one that does not holds back no other."""
    for pk, tenant, gpu, cpu, ram in list(waiting().values_list("pk", "tenant", "gpu", "cpu", "ram")):
        row = Tenant.objects.get(pk=tenant)
        if any(need > row.left(kind) + row.lent(kind) for kind, need in (("gpu", gpu), ("cpu", cpu), ("ram", ram))):
            continue
        with suppress(Missing), locked(Workspace, pk=pk) as workspace:
            if workspace.state == State.CREATING and not workspace.reserved:
                reserve(workspace)


def reserve(workspace: Workspace) -> None:
    """Reserve the resources of a locked workspace and enqueue its start; it stays queued while they are not free."""
    try:
        with transaction.atomic():
            products.require(workspace.gpu_type, workspace.gpu)
            tcc.try_(
                id=request_id(workspace.pk), applier=APPLIER, request_type="request", tenant=workspace.tenant.name,
                owner=workspace.user.username, gpu=workspace.gpu, cpu=workspace.cpu, ram=workspace.ram,
            )  # fmt: skip
    except Refused as refused:
        lending.recall(refused)
        of_type = isinstance(refused, products.NoneLeft)
        workspace.reason = Message("queued: %(reason)s", reason=refused.problem) if of_type else QUEUED
        workspace.save(update_fields=["reason"])
        return
    workspace.reserved, workspace.reason = True, ""
    workspace.save(update_fields=["reserved", "reason"])
    after_commit.enqueue("workspaces.launch", workspace.pk)
    _changed(workspace)


def note_order(pk: int) -> Workspace | None:
    """Name the next run of a workspace that waits for one and return it; None when there is nothing to start now."""
    with locked(Workspace, pk=pk) as workspace:
        if workspace.state != State.CREATING or not workspace.reserved:
            return None
        if not workspace.run_name:
            workspace.attempt += 1
            workspace.run_name = f"workspace-{pk}-{workspace.attempt}"
            workspace.ordered, workspace.address = timezone.now(), ""
            workspace.save(update_fields=["attempt", "run_name", "ordered", "address"])
        return workspace


def note_wait(workspace: Workspace, waits_for: str, again: bool = False) -> None:
    """Record what the run of a workspace waits for before it starts, "" for nothing that is known; `again`: its time
    begins again.
    """
    reason = Message("waiting to start: %(reason)s", reason=waits_for) if waits_for else ""
    if workspace.reason != reason or again:
        with suppress(Missing), locked(Workspace, pk=workspace.pk) as row:
            if row.state == State.CREATING and row.run_name == workspace.run_name:
                changed = row.reason != reason
                row.reason, row.ordered = reason, timezone.now() if again else row.ordered
                row.save(update_fields=["reason", "ordered"])
                if changed:
                    _changed(row)


def up(pk: int, run_name: str, address: str, by: str) -> None:
    """Move a workspace from creating to ready: this run answers at `address`."""
    with locked(Workspace, pk=pk) as workspace:
        if workspace.state != State.CREATING or workspace.run_name != run_name:
            return
        workspace.up(by=by)
        now = timezone.now()
        workspace.address, workspace.ready_since, workspace.active = address, workspace.ready_since or now, now
        workspace.busy, workspace.stops = False, None
        workspace.save()
        tcc.confirm(id=request_id(pk), applier=APPLIER)


def end_run(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run ended by itself: creating, ready > error."""
    with locked(Workspace, pk=pk) as workspace:
        if workspace.run_name == run_name and workspace.is_live:
            _fail(workspace, reason, by)


def fail(pk: int, reason: str, by: str) -> None:
    """Move a workspace whose run cannot be started to error."""
    with locked(Workspace, pk=pk) as workspace:
        if workspace.state == State.CREATING:
            _fail(workspace, reason, by)


def _fail(workspace: Workspace, reason: str, by: str, outcome: str = Outcome.FAILED) -> None:
    workspace.fail(by=by, reason=reason, outcome=outcome)
    workspace.address, workspace.ready_since, workspace.stops = "", None, None
    workspace.run_name, workspace.reserved, workspace.busy = "", False, False
    workspace.measured = None
    workspace.save()
    tcc.release(id=request_id(workspace.pk), applier=APPLIER)


def renew(pk: int, run_name: str, reason: str, by: str) -> None:
    """Record that a run was ended from outside, by an administrator or with its machine: it is started again."""
    with locked(Workspace, pk=pk) as workspace:
        if workspace.run_name != run_name or workspace.state != State.READY:
            return
        workspace.renew(by=by, reason=reason)
        workspace.run_name, workspace.address, workspace.stops = "", "", None
        workspace.save()
        after_commit.enqueue("workspaces.launch", pk)


def stop_workspace(*, user, name: str, by: str, reason: str = STOPPED) -> Workspace:
    """Move a workspace from creating or ready to stopping: a task stops its run and releases its resources."""
    with locked(Workspace, user=user, name=name) as workspace:
        _stop(workspace, by, reason)
    return workspace


def _stop(workspace: Workspace, by: str, reason: str) -> None:
    workspace.stop(by=by, reason=reason)
    workspace.address, workspace.ready_since, workspace.stops = "", None, None
    workspace.queued, workspace.busy = None, False
    workspace.save()
    if workspace.run_name:
        after_commit.enqueue("workspaces.stop", workspace.pk, workspace.run_name)
    else:
        _rest(workspace, by)


def _rest(workspace: Workspace, by: str) -> None:
    """Release the resources of a locked workspace whose run is gone, and bring it to rest."""
    workspace.rest(by=by)
    workspace.reserved, workspace.measured = False, None
    workspace.save()
    tcc.release(id=request_id(workspace.pk), applier=APPLIER)


def note_stop(workspace: Workspace) -> None:
    """Bring a locked workspace to rest whose run is gone."""
    if workspace.state == State.STOPPING:
        _rest(workspace, "runner")
    else:
        workspace.save(update_fields=["run_name"])


def require_startable(workspace: Workspace) -> None:
    """Raise for a workspace that could not be started now, as `start_workspace` does."""
    members.chosen(workspace.user, workspace.tenant.name)  # who has left the tenant uses nothing of it any more
    policy.require_allowed(workspace.tenant)
    products.need_possible(workspace.gpu_type, workspace.gpu)
    tcc.never_fits(workspace.tenant, workspace.user.username, gpu=workspace.gpu, cpu=workspace.cpu, ram=workspace.ram)


def start_workspace(*, user, name: str, by: str) -> Workspace:
    """Move a stopped or failed workspace to creating, with the files that it had; without free resources it is queued.

    Raises Missing when its owner is not in the tenant any more; Refused when it needs more than the tenant has now, or
    that allows no workspaces; WrongState for one in the trash; Fault, with nothing stored, when the task queue is not
    available.
    """
    broker.require()
    with locked(Workspace, user=user, name=name) as workspace:
        trash.require_kept(workspace)
        workspace.start(by=by)
        require_startable(workspace)
        workspace.queued, workspace.stops = timezone.now(), None
        workspace.save()
        tcc.withdraw(id=request_id(workspace.pk), applier=APPLIER)  # the settled request of its last time
        reserve(workspace)
    return workspace


def note_activity(pk: int, run_name: str, active: datetime, busy: bool) -> None:
    """Record what a running workspace has done last, and withdraw a warning that this makes void."""
    with suppress(Missing), locked(Workspace, pk=pk) as workspace:
        if workspace.run_name != run_name or workspace.state != State.READY:
            return
        workspace.active, workspace.busy = active, busy
        if workspace.stops and policy.due(workspace, timezone.now()) is None:
            workspace.stops = None
            record_change(workspace, transition="warn", source=workspace.state, target=workspace.state, by="reconcile",
                          reason=Message("no longer idle"))  # fmt: skip
            _changed(workspace)
        workspace.save(update_fields=["active", "busy", "stops"])


def warn(pk: int, run_name: str, reason: str, stops: datetime) -> None:
    """Tell the owner of a running workspace that it will be stopped, and why."""
    with suppress(Missing), locked(Workspace, pk=pk) as workspace:
        if workspace.run_name != run_name or workspace.state != State.READY or workspace.stops:
            return
        workspace.stops = stops
        workspace.save(update_fields=["stops"])
        record_change(workspace, transition="warn", source=workspace.state, target=workspace.state, by="reconcile",
                      reason=reason)  # fmt: skip
        notices.notify(user=workspace.user, kind="workspace", name=workspace.name, event=EVENT, reason=reason,
                       title=workspace.title)  # fmt: skip
        _changed(workspace)


def stop_due(pk: int, run_name: str, reason: str, now: datetime) -> None:
    """Stop a workspace whose warning has expired."""
    with suppress(Missing, WrongState), locked(Workspace, pk=pk) as workspace:
        if workspace.run_name == run_name and workspace.stops and now >= workspace.stops:
            _stop(workspace, "reconcile", reason)


def stop_over_limit(pk: int, run_name: str, reason: str) -> None:
    """Stop a running workspace that grows beyond what its user may have on the disk, and notify its owner."""
    with suppress(Missing, WrongState), locked(Workspace, pk=pk) as workspace:
        if workspace.run_name == run_name and workspace.state == State.READY:
            _stop(workspace, "reconcile", reason)
            notices.notify(user=workspace.user, kind="workspace", name=workspace.name, event=State.STOPPED,
                           reason=reason, title=workspace.title)  # fmt: skip


def keep(*, user, name: str, by: str) -> Workspace:
    """Count the moment as activity: a workspace that was warned for being idle goes on. Raises WrongState."""
    with locked(Workspace, user=user, name=name) as workspace:
        if workspace.state != State.READY:
            raise WrongState("the workspace does not run")
        workspace.active = timezone.now()
        if policy.due(workspace, workspace.active) is None:  # else its limit of hours is near
            workspace.stops = None
        workspace.save(update_fields=["active", "stops"])
        _changed(workspace)
    return workspace


def delete_workspace(*, user, name: str, by: str, trashed: datetime | None = None) -> Workspace:
    """Move a stopped or failed workspace to deleting; a task removes its files.

    `trashed`: only if it has been in the trash since then.
    """
    with locked(Workspace, user=user, name=name) as workspace:
        trash.require_since(workspace, trashed)
        _erase(workspace, by)
    return workspace


def _erase(workspace: Workspace, by: str) -> None:
    workspace.erase(by=by)
    workspace.save()
    after_commit.enqueue("workspaces.erase", workspace.pk)


def delete_all_of(user, by: str) -> None:
    """End and delete all workspaces of a deregistered user, in that transaction."""
    rows = Workspace.objects.filter(user=user).exclude(state=State.DELETING).order_by("pk")
    for workspace in list(rows.select_for_update(no_key=True)):
        run_name = workspace.run_name
        if workspace.state in LIVE:
            _fail(workspace, accounts.DEACTIVATED, by, Outcome.CANCELLED)
        elif workspace.state == State.STOPPING:
            _rest(workspace, by)
        workspace.run_name = run_name  # `erase` stops it
        _erase(workspace, by)


def forget(pk: int) -> None:
    """Remove the row of a workspace whose run and files are gone."""
    with suppress(Missing), locked(Workspace, pk=pk) as workspace:
        if workspace.state == State.DELETING:
            tcc.release(id=request_id(pk), applier=APPLIER)
            workspace.delete()
            _changed(workspace)


def _changed(workspace: Workspace) -> None:
    after_commit.changed(workspace.user.username, "workspace", workspace.name)
