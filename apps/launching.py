"""Between an application's row and its runs: what is an application's own; runners.owned has the rest.

Called by actors and reconcile. No lock is held while a runner or the application is asked, and every step may be
repeated.
"""

from __future__ import annotations

import contextlib
import http.client
from pathlib import Path

from django.conf import settings

import runners
from jobs.packages import building, using
from kernel import after_commit, outbound, sockets, storage, trash
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message
from kernel.textlog.files import LogFile
from models_app import external, fetched
from models_app.launching import INSTALLING, LOADERS, LOADING, MODEL, PROGRAM
from runners import STOPPED, Mount, RunSpec, RunStatus, owned

from . import lifecycle, packages, proof, replicas, rollouts, sleeping, slots
from .models import Application, Replica, Rollout, State
from .records import retention

SERVING = Path(__file__).resolve().parent / "serving"
SERVING_SEEN, WORK = "/opt/mlp/serving", "/workspace"
LOOK_AGAIN_MS = 200
PROBE_S = 2.0
STOP_GRACE_S = 10
LOG_LIMIT, DISK_MIB = 64 << 20, 1024
LOADS = Message("the model is being loaded")


def folder(app: Application) -> Path:
    """Return the application's own folder, the only one that its run may write."""
    return storage.root() / "apps" / app.user.username / app.name


def log_path(app: Application) -> Path:
    """Return the path of the log of the application's runs."""
    return folder(app) / "log" / slots.log_name(app.slot)


def traffic_name(app: Application) -> str:
    """Return the name of the file in the application's folder in which its process counts requests."""
    return slots.traffic_name(app.slot)


def log_file(app: Application) -> LogFile:
    """Return which files the log has."""
    return LogFile(folder(app), str(log_path(app).relative_to(folder(app))))


class ApplicationRuns(owned.OwnedRuns[Application]):
    """One run after the other for each application, as long as it should be up."""

    model, prefix = Application, "app-"

    order = staticmethod(lifecycle.note_order)

    def prepare(self, app: Application) -> bool:
        """Return whether the files of the model are here, its packages installed and GPUs of its type free; `poll` asks
        again while they are not.
        """
        try:
            waits_for = lacking(app) or owned.lacking_gpus(app.gpu_type, app.gpu)
        except building.Failed as problem:
            _end(app, problem.reason)
            return False
        if waits_for:
            lifecycle.note_wait(app, waits_for, again=True)
        return not waits_for

    def spec(self, app: Application) -> RunSpec:
        return spec_of(app)

    def fail(self, pk: int, reason: str) -> None:
        with contextlib.suppress(Missing):
            lifecycle.fail(pk, reason, by="runner")

    def running(self, app: Application, status: RunStatus, follow: bool) -> None:
        if app.state == State.READY:
            return
        if status.waits:
            lifecycle.note_wait(app, status.reason)
            if follow:
                after_commit.enqueue("apps.launch", app.pk, delay_ms=owned.look_again_ms(status, LOOK_AGAIN_MS))
            return
        runner = runners.get()
        address = runner.address(app.run_name)
        if address and proof.is_given(address, app.run_name, PROBE_S):
            lifecycle.up(app.pk, app.run_name, sockets.text(address), by="runner")
        elif owned.seconds_run(status, app.ordered) > start_s(app):
            runner.stop(app.run_name, 0)
            _end(app, too_slow(app))
        else:
            if app.model.is_language_model:
                lifecycle.note_wait(app, LOADS)
            if follow:
                after_commit.enqueue("apps.launch", app.pk, delay_ms=LOOK_AGAIN_MS)

    def unknown(self, app: Application, status: RunStatus, follow: bool) -> None:
        if app.state == State.CREATING and not _too_old(app):
            after_commit.enqueue("apps.launch", app.pk, follow)
        else:
            self.ended(app, status)

    def release(self, row: Application) -> None:
        lifecycle.note_stop(row)

    def ended(self, app: Application, status: RunStatus) -> None:
        reason = status.reason or Message("the run no longer exists")
        if not reason.startswith(STOPPED) and _is_replaced(app, owned.with_log(reason, log_path(app))):
            return
        if app.state == State.READY and reason.startswith(STOPPED):
            with contextlib.suppress(Missing):
                lifecycle.end_requested(app.pk, app.run_name, reason, by="runner")
        else:
            _end(app, owned.with_log(reason, log_path(app)))

    def names_of_rows(self, names: list[str]) -> set[str]:
        """Return also the names of runs that belong to a rollout, or are replicas. One statement reads all three, since
        a run may change from one table to another meanwhile.
        """
        own, *others = (
            table.objects.filter(run_name__in=names).values_list("run_name", flat=True)
            for table in (Application, Rollout, Replica)
        )
        return set(own.union(*others))


RUNS = ApplicationRuns()
sweep = RUNS.sweep


def launch(pk: int, follow: bool = True) -> None:
    """Start the next run of an application that waits for one, and look at it until it is up."""
    app = RUNS.launch(pk)
    if app is not None:
        poll(app, follow)


def poll(app: Application, follow: bool = False) -> None:
    """Poll the run, and the application itself while it is not up, and record what changed."""
    if app.run_name:
        RUNS.poll(app, follow)
    else:
        after_commit.enqueue("apps.launch", app.pk, follow)


def stop(pk: int, run_name: str, follow: bool = True) -> None:
    """Stop the run of an application that is stopped or asleep, and release its resources.

    While `not_before` is ahead the gateway may still send requests to the run. Of one that is asleep they are answered
    before it is stopped, with as much time as any.
    """
    app = Application.objects.filter(pk=pk, run_name=run_name).first()
    if app is None or not run_name or not (app.state == State.ERROR or app.asleep):
        return
    done = owned.has_come(app.not_before) and _may_end(app) and RUNS.clean(app, STOP_GRACE_S)
    if not done and follow:
        after_commit.enqueue("apps.stop", pk, run_name, delay_ms=LOOK_AGAIN_MS)


def _may_end(app: Application) -> bool:
    """Return whether the run is stopped now; of one that is asleep only if it has answered what it has, and is not used
    again.
    """
    if not app.asleep:
        return True
    late = owned.seconds_since(app.not_before) > settings.APP_ANSWER_S
    address = runners.get().address(app.run_name)
    if not late and address and has_work(app.run_name, sockets.text(address)):
        return False
    with contextlib.suppress(Missing):
        return sleeping.close(app.pk, app.run_name)
    return False


def has_work(run_name: str, address: str) -> bool:
    """Return whether requests are in work at a run of an application; False where it does not say so."""
    if not run_name or not address:
        return False
    try:
        status, body = outbound.exchange(
            sockets.parse(address), "GET", proof.LOAD, headers=proof.headers(run_name), limit_s=PROBE_S, most=100
        )
        return status == 200 and int(body.split()[0]) > 0
    except (OSError, ValueError, IndexError, http.client.HTTPException):
        return False


def erase(pk: int, follow: bool = True) -> None:
    """Stop a deleted application's run, remove its files, then its row."""
    app = Application.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if app is None:
        return
    rollout = Rollout.objects.filter(app=app).first()
    runs = [app.run_name, rollout.run_name if rollout else "", *app.replicas.values_list("run_name", flat=True)]
    stopping = [name for name in dict.fromkeys(runs) if name and not owned.stop(name, STOP_GRACE_S)]
    # While `not_before` is ahead the gateway may still have the address of the run, so it stays taken.
    if stopping or not owned.has_come(app.not_before):
        if follow:
            after_commit.enqueue("apps.erase", pk, delay_ms=LOOK_AGAIN_MS)
        return
    if rollout is not None:
        rollouts.abandon(rollout.pk)
    replicas.abandon(app.pk)
    if not retention.clear(app.pk):
        return after_commit.enqueue("apps.erase", pk, follow)
    storage.remove_tree(folder(app))
    log_file(app).forget()
    trash.forget_log("apps", app.user.username, app.name)
    lifecycle.forget(pk)


def start_s(app: Application) -> int:
    """Return the seconds that the application may take to answer after its start."""
    language = settings.LANGUAGE_START_S if app.model.is_language_model else 0
    return max(settings.APP_START_S, language)


def too_slow(app: Application) -> Message:
    """Return why an application that has not answered in time is stopped."""
    return Message("did not answer within %(seconds)s s", seconds=start_s(app))


def lacking(app: Application) -> Message | None:
    """Return what an application waits for before it starts: the files of a model that is in a bucket, its packages.
    Raises building.Failed, also where the files cannot be fetched.
    """
    try:
        waits_for = fetched.waits_for(app.model, app.ordered)
    except Refused as problem:
        raise building.Failed(problem.msg) from problem
    return waits_for or (None if packages.ensure(app) else INSTALLING)


def spec_of(app: Application) -> RunSpec:
    """Return the run that serves the application."""
    runner, place, tree = runners.get(), folder(app), packages.tree_of(app)
    (place / "log").mkdir(parents=True, exist_ok=True)
    files = external.folder(app.model)
    program = f"{runner.place(SERVING, SERVING_SEEN)}/{'chat' if app.model.is_language_model else 'server'}.py"
    command = [using.python_of(runner, tree), "-u", program, "--model", runner.place(files, MODEL)]
    command += ["--name", app.served_name]
    if app.model.name != app.served_name:
        command += ["--also", app.model.name]
    if runner.listen:
        command += ["--host", runner.listen, "--port", str(app.port)]
    seen = runner.place(place, WORK)
    return RunSpec(
        name=app.run_name,
        command=command,
        cwd=place,
        environment={
            **runner.environment(seen),
            **using.variables_of(runner, tree),
            "PYTHONDONTWRITEBYTECODE": "1",
            "MLP_LOADING": runner.place(PROGRAM, LOADING),
            "MLP_TRAFFIC": f"{seen}/{traffic_name(app)}",
            "MLP_RECORDS": f"{seen}/{slots.records_name(app.run_name)}",
            **(_of_language_model(app, seen) if app.model.is_language_model else {}),
            **({"MLP_APP_PUBLIC": "1"} if app.public else {}),
            proof.VARIABLE: proof.secret(app.run_name),
            **({} if app.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        },
        log=log_path(app),
        cpu=app.cpu,
        gpu=app.gpu,
        gpu_type=app.gpu_type,
        ram_mib=app.ram,
        grace_s=STOP_GRACE_S,
        log_limit=LOG_LIMIT,
        labels={"user": app.user.username, "app": app.name, "public": str(app.public).lower()},
        purpose="application",
        kind="service",
        port=app.port,
        runtime="serve",
        mounts=(*LOADERS, Mount(SERVING, SERVING_SEEN), Mount(files, MODEL), *using.mounts_of(tree)),
        owner=app.user_id,
        disk_mib=DISK_MIB,
        network=app.tenant.network_policy,
    )


def of_engine(ram: int) -> dict[str, str]:
    """Return the variables for the engine of a language model; `ram`: the MiB of its run."""
    return {"MLP_RAM_MIB": str(ram), "MLP_VLLM_GPU_PERCENT": str(settings.VLLM_GPU_PERCENT)}


def _of_language_model(app: Application, seen: str) -> dict[str, str]:
    return {"MLP_TOKENS": f"{seen}/{slots.tokens_name(app.run_name)}", **of_engine(app.ram)}


def _is_replaced(app: Application, reason: str) -> bool:
    """Let a ready replica take the place of a run that has ended by itself; return whether one does."""
    try:
        return replicas.take_over(app.pk, app.run_name, reason)
    except Missing:
        return True


def _end(app: Application, reason: str) -> None:
    with contextlib.suppress(Missing):
        lifecycle.end_run(app.pk, app.run_name, reason, by="runner")


def _too_old(app: Application) -> bool:
    return owned.seconds_since(app.ordered) > settings.APP_START_S
