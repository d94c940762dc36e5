"""The files and the check of a model: copy them, check in a run that they load, remove them.

Called by actors and reconcile. No lock is held meanwhile, and every step may be repeated (see runners.owned).

The check is a run of `loading.py` with limits like a job's: a model that loops or takes all memory ends its own run
only, and no process of the platform ever reads a pickle.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from django.conf import settings

import runners
from datasets.buckets import fetching
from datasets.buckets import rows as buckets
from jobs.artifacts import finished
from jobs.packages import building, using
from kernel import after_commit, copying, disk, sanitize, storage
from kernel.errors import Refused
from kernel.messages import Message, message_of, storable
from kernel.singleton import Holder
from resources.models import Tenant
from runners import Mount, RunSpec, RunStatus, owned

from . import external, fetched, lifecycle, packages
from .models import Model, State

PROGRAM = Path(__file__).resolve().parent / "loading.py"
LOADER_FILES = ("loading.py", "choosing.py", "hugging_face.py", "embedding.py", "gguf.py", "mlmodel.py", "pyfunc.py")
MODEL, LOADING, WORK = "/model", "/opt/mlp/loading.py", "/workspace"
LOADERS = tuple(Mount(PROGRAM.with_name(name), f"/opt/mlp/{name}") for name in LOADER_FILES)
LOOK_AGAIN_MS, COPY_AGAIN_MS = 300, 1000
UNSEEN_S = (
    60  # a check is looked at every few seconds: after more than that the platform was down, or its clock was set
)
CHECK_CPU, CHECK_RAM_MIB, CHECK_DISK_MIB, CHECK_LOG = 1, 2048, 256, 1 << 20
INSTALLING = Message("its packages are being installed")
RESULT_BYTES = 256 << 10
DISK_WAS_FULL = os.EX_TEMPFAIL  # the exit code of loading.py


def folder(model: Model) -> Path:
    """Return the folder of the model's files."""
    return external.folder(model)


def work_folder(model: Model) -> Path:
    """Return the check's own folder, whose name no model can have."""
    return storage.root() / "models" / model.user.username / f".check-{model.pk}"


def copy(pk: int, follow: bool = True) -> None:
    """Copy the files, unless another worker does: a copy may take longer than the time after which it is sent again."""
    alone = Holder(f"models.copy.{pk}")
    if alone.hold():
        try:
            _copy(pk, follow)
        finally:
            alone.release()


def _copy(pk: int, follow: bool) -> None:
    model = _model(pk, State.CREATING)
    if model is None or model.copied:
        return
    try:
        if waits_for := _waits_for(model):
            lifecycle.note_wait(model, waits_for)
            if follow:
                after_commit.enqueue("models.copy", pk, queue="files", delay_ms=COPY_AGAIN_MS)
            return
        if model.external:
            return fetched.record(pk, fetched.listed(model))
        copying.sweep(folder(model))
        checksums = _fetched(model) if buckets.is_source(model.src) else _copied(model)
        requirements = packages.of_files(folder(model), checksums)
    except _Ended:
        return
    except (Refused, disk.DiskFull, OSError) as problem:
        refused = not isinstance(problem, OSError)
        reason = problem.msg if refused else Message("could not be copied (%(problem)s)", problem=problem.strerror)
        lifecycle.fail(pk, reason, by="copy")
        return
    lifecycle.note_copy(pk, checksums, requirements)


def _waits_for(model: Model) -> Message | None:
    """Return what the copy of a model's files waits for. Raises Refused, RunnerError."""
    if external.is_copy(model.src):
        return fetched.waits_for(external.source(model.user, model.src), model.created)
    job = _unended(model)
    return Message("the job %(job)s has not exited yet", job=job) if job else None


def _copied(model: Model) -> dict[str, dict]:
    if external.is_copy(model.src):
        return copying.copy(folder(external.source(model.user, model.src)), folder(model), model.size)
    origin = copying.origin(model.user.username, model.src)
    if model.reason:  # it has waited, and what is to be copied may have changed
        lifecycle.measure_again(model.pk, copying.size(origin))
        model.refresh_from_db(fields=["size"])
    return copying.copy(origin, folder(model), model.size)


class _Ended(Exception):
    """The model is not being created any more."""


def _fetched(model: Model) -> dict[str, dict]:
    """Copy a model's files from a bucket, by way of a folder beside its own."""

    def reserve(size: int) -> None:
        lifecycle.measure_again(model.pk, size)

    def written(size: int) -> None:
        if _model(model.pk, State.CREATING) is None:
            raise _Ended

    with copying.beside(folder(model)) as side:
        fetching.copy_to(side, model.user, model.src, copying.MAX_FILES, reserve, written, fetched.refuse)
        return fetched.checksums(side)


def _unended(model: Model) -> str:
    """Return the job of the model's source if it has reported its end but not exited, and may still write. A model that
    a running job registers itself is copied at once. Raises RunnerError.
    """
    if buckets.is_source(model.src):
        return ""
    kind, name, _path = copying.parse(model.src)
    return name if kind == "jobs" and finished.may_still_write(model.user, name) else ""


class CheckRuns(owned.OwnedRuns[Model]):
    """One run for each model whose files are copied: `loading.py`."""

    model, prefix = Model, "model-"

    def order(self, pk: int) -> Model | None:
        model = lifecycle.note_order(pk)
        if model is None or owned.seconds_since(model.run_ordered) <= owned.LAUNCH_PATIENCE_S:
            return model
        return self.fail(pk, Message("the load check could not be started"))

    def prepare(self, model: Model) -> bool:
        """Return whether the model's files are here and its packages installed; `check` asks again while they are
        not.
        """
        try:
            waits_for = fetched.waits_for(model, model.created)
        except Refused as problem:
            self.fail(model.pk, problem.msg)
            return False
        if waits_for:
            lifecycle.note_wait(model, waits_for)
            lifecycle.note_order(model.pk, again=True)
            return False
        if model.external:
            model.refresh_from_db(fields=["requirements"])  # those that its files name
        if not packages.is_needed(model):
            return True
        try:
            ready = ensure_packages(model, model.tenant, CHECK_CPU, CHECK_RAM_MIB, model.created)
        except building.Failed as problem:
            self.fail(model.pk, problem.reason)
            return False
        if not ready:
            lifecycle.note_wait(model, INSTALLING)
            lifecycle.note_order(model.pk, again=True)
        return ready

    def spec(self, model: Model) -> RunSpec:
        return _spec(model)

    def fail(self, pk: int, reason: str) -> None:
        lifecycle.fail(pk, reason, by="check")

    def running(self, model: Model, status: RunStatus, follow: bool) -> None:
        lifecycle.note_wait(model, status.reason if status.waits else "")
        seconds = owned.seconds_run(status, model.run_ordered)
        if not 0 <= seconds <= settings.MODEL_CHECK_S + UNSEEN_S:
            lifecycle.note_order(model.pk, again=True)
        elif seconds > settings.MODEL_CHECK_S:
            self.fail(model.pk, Message("did not load within %(seconds)s s", seconds=settings.MODEL_CHECK_S))
        elif follow:
            after_commit.enqueue("models.check", model.pk, delay_ms=owned.look_again_ms(status, LOOK_AGAIN_MS))

    def unknown(self, model: Model, status: RunStatus, follow: bool) -> None:
        launched = self.launch(model.pk)
        if follow and (launched or model.external or packages.is_needed(model)):
            after_commit.enqueue("models.check", model.pk, delay_ms=LOOK_AGAIN_MS)

    def ended(self, model: Model, status: RunStatus) -> None:
        says_nothing = status.state == "lost" or status.exit_code == DISK_WAS_FULL
        if says_nothing and owned.seconds_since(model.run_ordered) <= owned.LAUNCH_PATIENCE_S:
            runners.get().forget(model.run_name)  # it is checked again
            return self.unknown(model, status, follow=False)
        reason = status.reason
        if status.succeeded:
            try:
                result = _result(model)
            except ValueError as problem:
                reason = message_of(problem)
            else:
                lifecycle.complete(model.pk, result, by="check", requirements=packages.pinned(model))
                return after_commit.enqueue("models.clean", model.pk, queue="files")
        self.fail(
            model.pk,
            owned.with_log(Message("does not load: %(reason)s", reason=reason), work_folder(model) / "check.log"),
        )

    def discard(self, model: Model) -> None:
        storage.remove_tree(work_folder(model))
        copying.sweep(folder(model))


RUNS = CheckRuns()
sweep = RUNS.sweep


def ensure_packages(model: Model, tenant: Tenant, cpu: float, ram: int, since: datetime | None) -> bool:
    """Return whether the packages of a model are installed; start, or look at, their installation, which may use
    `cpu` cores and `ram` MiB. A failure before `since` is tried again. Raises building.Failed; RunnerError, OSError.
    """
    if not packages.is_needed(model):
        return True

    def note(digest: str) -> None:
        lifecycle.note_packages(model.pk, digest)
        model.packages = digest

    return packages.ensure(model, note, cpu=cpu, ram=ram, tenant=tenant, since=since) is not None


def check(pk: int, follow: bool = True) -> None:
    """Start the check of a model whose files are copied, or poll it and record its end."""
    model = _model(pk, State.CREATING)
    if model is not None and model.copied:
        RUNS.poll(model, follow)


def clean(pk: int, follow: bool = True) -> None:
    """Stop and forget the check of a model that is no longer being created, and remove the check's folder."""
    model = Model.objects.select_related("user").filter(pk=pk).exclude(state=State.CREATING).first()
    if model is not None and not RUNS.clean(model, 0) and follow:
        after_commit.enqueue("models.clean", pk, queue="files", delay_ms=LOOK_AGAIN_MS)


def erase(pk: int, follow: bool = True) -> None:
    """Remove a deleted model's files, then its row."""
    model = _model(pk, State.DELETING)
    if model is None:
        return
    if model.run_name:
        clean(pk, follow=False)
        if follow:
            after_commit.enqueue("models.erase", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
        return
    copying_now = Holder(f"models.copy.{pk}")
    if not copying_now.hold():  # it would put its files there after they are removed
        if follow:
            after_commit.enqueue("models.erase", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
        return
    try:
        if model.external and not fetched.erase(model):
            if follow:
                after_commit.enqueue("models.erase", pk, queue="files", delay_ms=LOOK_AGAIN_MS)
            return
        storage.remove_tree(folder(model))
        storage.remove_tree(work_folder(model))
    finally:
        copying_now.release()
    lifecycle.forget(pk)


def _spec(model: Model) -> RunSpec:
    runner, place = runners.get(), work_folder(model)
    place.mkdir(parents=True, exist_ok=True)
    seen, tree = runner.place(place, WORK), packages.tree_of(model)
    python = using.python_of(runner, tree)
    variables = {**runner.environment(seen), **using.variables_of(runner, tree)}
    return RunSpec(
        name=model.run_name,
        command=[python, "-u", runner.place(PROGRAM, LOADING), runner.place(folder(model), MODEL), seen],
        cwd=place,
        environment={**variables, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"},
        log=place / "check.log",
        cpu=CHECK_CPU,
        ram_mib=CHECK_RAM_MIB,
        grace_s=0,
        log_limit=CHECK_LOG,
        labels={"user": model.user.username, "model": model.name},
        purpose="check",
        runtime="serve",
        mounts=(*LOADERS, Mount(folder(model), MODEL), *using.mounts_of(tree)),
        owner=model.user_id,
        disk_mib=CHECK_DISK_MIB,
        processes=settings.MODEL_CHECK_TASKS,
        network="none",
    )


def _open_inspection(model: Model) -> int:
    """Open the check's result without following a link. Raises OSError. A check that began before version 0.3 was
    installed writes `told.json`.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(work_folder(model) / "inspection.json", flags)
    except FileNotFoundError:
        return os.open(work_folder(model) / "told.json", flags)


def _result(model: Model) -> dict:
    """Return what the check wrote. The check, and so the model's code, may write in the folder: no link is followed,
    at most RESULT_BYTES are read, and only what the database can store is accepted. Raises ValueError with the reason.
    """
    try:
        with os.fdopen(_open_inspection(model), "rb") as file:
            data = file.read(RESULT_BYTES + 1)
    except OSError:
        raise ValueError(Message("the load check left no result")) from None
    try:
        if len(data) > RESULT_BYTES:
            raise ValueError(Message("larger than %(limit)s KiB", limit=RESULT_BYTES >> 10))
        result = sanitize.read_storable(data)
        if not isinstance(result, dict):
            raise ValueError(Message("not a JSON object"))
    except ValueError as problem:
        reason = storable(message_of(problem))
        raise ValueError(Message("the result of the load check is not valid: %(problem)s", problem=reason)) from None
    return result


def _model(pk: int, state: str) -> Model | None:
    return Model.objects.select_related("user", "tenant").filter(pk=pk, state=state).first()
