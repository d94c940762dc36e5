"""Between a model's row and the world: copy its files, check in a run that they load, remove them.

Called by actors and reconcile. No lock is held meanwhile, and every step may be repeated. An actor `follow`s: it looks
again soon; reconcile does not, for it comes back by itself, and each of its looks would begin one more chain of them.

The check is a run of `loading.py`, bounded like a job's: a model that loops or takes all memory ends its run, nothing
else; and no pickle is ever read by a process of the platform.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from django.conf import settings
from django.utils import timezone

import runners
from kernel import after_commit, sanitize, storage
from kernel.errors import Refused
from kernel.locking import Missing, locked
from kernel.messages import Message, message_of, with_lines
from kernel.singleton import Holder
from runners import Mount, RunSpec, tail

from . import copying, lifecycle
from .models import Model, State

PROGRAM = Path(__file__).resolve().parent / "loading.py"
MODEL, LOADING, WORK = "/model", "/opt/mlp/loading.py", "/workspace"
LOOK_AGAIN_MS = 300
CHECK_CPU, CHECK_RAM_MIB, CHECK_DISK_MIB, CHECK_LOG = 1, 2048, 256, 1 << 20
LAUNCH_PATIENCE_S = 300
TOLD_BYTES = 256 << 10
LOG_LINES_IN_REASON = 5


def folder(model: Model) -> Path:
    return storage.model_dir(model.user.username, model.name)


def work(model: Model) -> Path:
    """The check's own folder: no model can have this name."""
    return storage.root() / "models" / model.user.username / f".check-{model.pk}"


def copy(pk: int) -> None:
    """Copies the files, unless another worker is about it: a copy may take longer than its message is waited for."""
    alone = Holder(f"models.copy.{pk}")
    if alone.hold():
        try:
            _copy(pk)
        finally:
            alone.let_go()


def _copy(pk: int) -> None:
    model = _one(pk, State.CREATING)
    if model is None or model.copied:
        return
    try:
        copying.sweep(folder(model))
        told = copying.copy(copying.origin(model.user.username, model.src), folder(model))
    except (Refused, OSError) as problem:
        refused = isinstance(problem, Refused)
        reason = problem.msg if refused else Message("could not be copied (%(problem)s)", problem=problem.strerror)
        lifecycle.fail(pk, reason, by="copy")
        return
    lifecycle.note_copy(pk, told)


def check(pk: int, follow: bool = True) -> None:
    """Orders the check where it has not begun, looks at it where it has, and writes down its end."""
    model = _one(pk, State.CREATING)
    if model is None or not model.copied:
        return
    runner = runners.get()
    status = runner.poll(model.run_name)
    if status.state == "unknown":
        with contextlib.suppress(Missing), locked(Model, pk=pk) as row:
            row.run_ordered = row.run_ordered or timezone.now()
            row.save(update_fields=["run_ordered"])
            model.run_ordered = row.run_ordered
        if _age(model) > LAUNCH_PATIENCE_S:
            return lifecycle.fail(pk, Message("the load check could not be started"), by="check")
        runner.start(_spec(model))
    elif status.state == "running" and _age(model) > settings.MODEL_CHECK_S:
        return lifecycle.fail(
            pk, Message("did not load within %(seconds)s s", seconds=settings.MODEL_CHECK_S), by="check"
        )
    elif status.state != "running":
        return _judge(model, status)
    if follow:
        after_commit.enqueue("models.check", pk, delay_ms=LOOK_AGAIN_MS)


def clean(pk: int, follow: bool = True) -> None:
    """Ends and forgets the check of a model that is no longer creating, and removes its folder."""
    model = Model.objects.select_related("user").filter(pk=pk).exclude(state=State.CREATING).first()
    if model is None:
        return
    if model.run_name:
        runner = runners.get()
        if runner.poll(model.run_name).state == "running":
            runner.stop(model.run_name, 0)
            if follow:
                after_commit.enqueue("models.clean", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
            return
        runner.forget(model.run_name)
    storage.remove_tree(work(model))
    copying.sweep(folder(model))
    with contextlib.suppress(Missing), locked(Model, pk=pk) as row:
        row.run_name = ""
        row.save(update_fields=["run_name"])


def erase(pk: int, follow: bool = True) -> None:
    """Removes a deleted model's files, then its row."""
    model = _one(pk, State.DELETING)
    if model is None:
        return
    if model.run_name:
        clean(pk, follow=False)
        if follow:
            after_commit.enqueue("models.erase", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
        return
    storage.remove_tree(folder(model))
    storage.remove_tree(work(model))
    lifecycle.forget(pk)


def _spec(model: Model) -> RunSpec:
    runner, place = runners.get(), work(model)
    place.mkdir(parents=True, exist_ok=True)
    seen = runner.place(place, WORK)
    return RunSpec(
        name=model.run_name,
        command=[runner.python, "-u", runner.place(PROGRAM, LOADING), runner.place(folder(model), MODEL), seen],
        cwd=place,
        environment={
            "PATH": f"{os.path.dirname(runner.python)}:/usr/local/bin:/usr/bin:/bin".removeprefix(":"),
            "HOME": seen, "LANG": "C.UTF-8", "TZ": "UTC", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1",
        },
        log=place / "check.log",
        cpu=CHECK_CPU,
        ram_mib=CHECK_RAM_MIB,
        grace_s=0,
        log_limit=CHECK_LOG,
        labels={"user": model.user.username, "model": model.name},
        runtime="serve",
        mounts=(Mount(PROGRAM, LOADING), Mount(folder(model), MODEL)),
        owner=model.user_id,
        disk_mib=CHECK_DISK_MIB,
    )  # fmt: skip


def _judge(model: Model, status) -> None:
    reason = status.reason
    if status.succeeded:
        try:
            told = _told(model)
        except ValueError as problem:
            reason = message_of(problem)
        else:
            lifecycle.complete(model.pk, told, by="check")
            return after_commit.enqueue("models.clean", model.pk, queue="files")
    lines = tail(work(model) / "check.log", LOG_LINES_IN_REASON).splitlines()
    reason = with_lines(Message("does not load: %(reason)s", reason=reason), lines)
    lifecycle.fail(model.pk, reason, by="check")


def _told(model: Model) -> dict:
    """What the check wrote. The folder was its own, and the model's code, to write in: no link is followed, little is
    read, and only what can be stored is taken. Raises ValueError that says what is wrong with it.
    """
    try:
        handle = os.open(work(model) / "told.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            data = file.read(TOLD_BYTES + 1)
    except OSError:
        raise ValueError(Message("the load check left no result")) from None
    try:
        if len(data) > TOLD_BYTES:
            raise ValueError(f"larger than {TOLD_BYTES >> 10} KiB")
        told = sanitize.read_storable(data)
        if not isinstance(told, dict):
            raise ValueError("not a JSON object")
    except ValueError as problem:
        raise ValueError(
            Message("the result of the load check is not valid: %(problem)s", problem=sanitize.text(str(problem)))
        ) from None
    return told


def _age(model: Model) -> float:
    return (timezone.now() - model.run_ordered).total_seconds() if model.run_ordered else 0.0


def _one(pk: int, state: str) -> Model | None:
    return Model.objects.select_related("user").filter(pk=pk, state=state).first()
