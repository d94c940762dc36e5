"""What the second runs of applications have in common, those of rollouts and of replicas: resources, names, locks.

The resources of one are tried when its run is ordered, and released when the run is gone; what does not fit waits, with
the reason. Each function but `locked_run` and `as_application` is called with the application locked.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction
from django.utils import timezone

from kernel.errors import Refused
from kernel.locking import lock_row, locked
from models_app.models import Model
from resources import lending, products, tcc

from . import runs
from .lifecycle import APPLIER, run_name_of
from .models import Application, Replica, Rollout

SecondRun = Rollout | Replica
WAIT_S = 10  # between two attempts to reserve the resources


def resources_id(run: SecondRun) -> str:
    """Return the id of the resource request of a second run."""
    return f"{run._meta.model_name}:{run.pk}"


def as_application(run: SecondRun) -> Application:
    """Return the application as this run serves it: with its model, its name and its files. Not to be saved."""
    app = copy.copy(run.app)
    app.run_name, app.slot, app.ordered = run.run_name, slot_of(run), run.ordered
    if isinstance(run, Rollout):
        app.model = run.model
    return app


def slot_of(run: SecondRun) -> int:
    """Return which files a run writes; a rollout's that an earlier release has ordered has no number stored."""
    return 1 - run.app.slot if run.slot is None else run.slot


def reserve(app: Application, run: SecondRun) -> Refused | None:
    """Try what a run needs, and mark it as reserved; return the refusal where there is no room."""
    try:
        with transaction.atomic():
            products.require(app.gpu_type, app.gpu)
            tcc.withdraw(id=resources_id(run), applier=APPLIER)  # of an earlier run
            tcc.try_(
                id=resources_id(run), applier=APPLIER, request_type="request", tenant=app.tenant.name,
                owner=app.user.username, cpu=app.cpu, gpu=app.gpu, ram=app.ram,
            )  # fmt: skip
    except Refused as refused:
        lending.recall(refused)
        return refused
    run.reserved = True
    return None


def release(run: SecondRun) -> None:
    """Release what a run used, which is gone."""
    if run.reserved:
        tcc.release(id=resources_id(run), applier=APPLIER)
        run.reserved = False


def order(app: Application, run: SecondRun, model: Model) -> None:
    """Name the next run of a row, which is starting from now on; the caller saves it."""
    app.attempt += 1
    app.save(update_fields=["attempt"])
    run.order()
    run.run_name, run.ordered = run_name_of(app), timezone.now()
    runs.begin(app, run.run_name, model)


def note_wait(run: SecondRun) -> None:
    """Let the time of a run begin again: the packages of its model are being installed, or a GPU of its type is
    taken. Raises Missing.
    """
    with locked_run(type(run), run.pk, run_name=run.run_name) as (_app, row):
        if row is not None and row.phase == type(run).Phase.STARTING:
            row.ordered = timezone.now()
            row.save(update_fields=["ordered"])


def held_gpus() -> list[tuple[str, int]]:
    """Return the GPUs that the runs of applications have reserved, by the types that they have named."""
    own = Application.objects.filter(reserved=True).exclude(gpu_type="").values_list("gpu_type", "gpu")
    held = list(own)
    for table in (Rollout, Replica):
        rows = table.objects.filter(reserved=True).exclude(app__gpu_type="")
        held += rows.values_list("app__gpu_type", "app__gpu")
    return held


@contextmanager
def locked_run(table: type[SecondRun], pk: int, **key) -> Iterator[tuple[Application, SecondRun | None]]:
    """Open a transaction with the locked application and its locked row of the table, None where that is gone or does
    not have `key`. Raises Missing when there is no application.
    """
    app_id = table.objects.filter(pk=pk).values_list("app", flat=True).first()
    with locked(Application, pk=app_id or 0) as app:
        yield app, lock_row(table, pk=pk, **key)
