"""Between an application's row and its run: order it, watch it, end it. Called by actors and reconcile.

No lock is held while a runner or the application is asked, and every step may be repeated. An actor `follow`s: it looks
again soon; reconcile does not, for it comes back by itself, and each of its looks would begin one more chain of them.
"""

from __future__ import annotations

import contextlib
import http.client
import os
from pathlib import Path

from django.conf import settings
from django.utils import timezone

import runners
from kernel import after_commit, healing, outbound, storage
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.messages import Message, with_lines
from models_app.launching import LOADING, MODEL, PROGRAM
from runners import STOPPED, Mount, RunSpec, tail

from . import lifecycle
from .models import Application, State

SERVING = Path(__file__).resolve().parent / "serving"
SERVING_SEEN, WORK = "/opt/mlp/serving", "/workspace"
LOOK_AGAIN_MS = 200
PROBE_S = 2.0
STOP_GRACE_S = 10
LOG_LIMIT, DISK_MIB = 64 << 20, 1024
LOG_LINES_IN_REASON = 5
TRAFFIC = "traffic.json"  # in the application's folder: what its process counts
PORT_TRIES = 50


def folder(app: Application) -> Path:
    return storage.root() / "apps" / app.user.username / app.name


def log_path(app: Application) -> Path:
    return folder(app) / "log" / "app.log"


def launch(pk: int, follow: bool = True) -> None:
    """Orders the next run of an application that waits for one, and looks at it until it is up."""
    try:
        app = lifecycle.note_order(pk)
    except Missing:
        return
    if app is None:
        return
    runner = runners.get()
    if runner.poll(app.run_name).state == "unknown":
        try:
            app = _with_usable_port(app)
            if app is None:
                return None
            runner.start(spec(app))
        except Missing:
            return None
        except (ValueError, Refused) as problem:
            return lifecycle.fail(pk, Message("could not be started: %(problem)s", problem=problem), by="runner")
    return look(app, follow)


def look(app: Application, follow: bool = False) -> None:
    """Asks the runner, and while it is not up the application itself, how it is; writes down what changed."""
    if not app.run_name:
        return after_commit.enqueue("apps.launch", app.pk, follow)
    runner = runners.get()
    status = runner.poll(app.run_name)
    if status.state == "unknown" and app.state == State.CREATING and not _too_old(app):
        return after_commit.enqueue("apps.launch", app.pk, follow)
    if status.state != "running":
        reason = status.reason or Message("the run no longer exists")
        if app.state == State.READY and reason.startswith(STOPPED):
            return _asked(app, reason)
        lines = tail(log_path(app), LOG_LINES_IN_REASON).splitlines()
        return _ended(app, with_lines(reason, lines))
    if app.state == State.READY:
        return None
    address = runner.address(app.run_name)
    if address and _answers(address):
        return lifecycle.up(app.pk, app.run_name, f"{address[0]}:{address[1]}", by="runner")
    if _too_old(app):
        runner.stop(app.run_name, 0)
        return _ended(app, Message("did not answer within %(seconds)s s", seconds=settings.APP_START_S))
    if follow:
        after_commit.enqueue("apps.launch", app.pk, delay_ms=LOOK_AGAIN_MS)
    return None


def stop(pk: int, run_name: str) -> None:
    """Ends this very run of an application that should be up; that it has ended is then noticed like any end."""
    app = Application.objects.filter(pk=pk, state=State.READY, run_name=run_name).first()
    if app is not None:
        runners.get().stop(run_name, STOP_GRACE_S)


def sweep() -> None:
    """Ends and forgets runs that belong to no application any more."""
    runner = runners.get()
    names = [name for name in runner.names() if name.startswith("app-")]
    owned = set(Application.objects.filter(run_name__in=names).values_list("run_name", flat=True))
    healing.each(runner.let_go, sorted(set(names) - owned))


def erase(pk: int, follow: bool = True) -> None:
    """Ends a deleted application's run, removes its files, then its row."""
    app = Application.objects.select_related("user").filter(pk=pk, state=State.DELETING).first()
    if app is None:
        return
    if app.run_name:
        runner = runners.get()
        if runner.poll(app.run_name).state == "running":
            runner.stop(app.run_name, STOP_GRACE_S)
            return _erase_again(pk, follow)
        runner.forget(app.run_name)
    if app.not_before and app.not_before > timezone.now():  # the gateway may still remember where it was
        return _erase_again(pk, follow)
    storage.remove_tree(folder(app))
    lifecycle.forget(pk)


def _erase_again(pk: int, follow: bool) -> None:
    if follow:
        after_commit.enqueue("apps.erase", pk, delay_ms=LOOK_AGAIN_MS)


def spec(app: Application) -> RunSpec:
    runner, place = runners.get(), folder(app)
    (place / "log").mkdir(parents=True, exist_ok=True)
    files = storage.model_dir(app.user.username, app.model.name)
    program = runner.place(SERVING, SERVING_SEEN)
    command = [runner.python, "-u", f"{program}/server.py", "--model", runner.place(files, MODEL)]
    command += ["--name", app.model.name, "--host", runner.listen, "--port", str(app.port)]
    seen = runner.place(place, WORK)
    return RunSpec(
        name=app.run_name,
        command=command,
        cwd=place,
        environment={
            "PATH": f"{os.path.dirname(runner.python)}:/usr/local/bin:/usr/bin:/bin".removeprefix(":"),
            "HOME": seen, "LANG": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1",
            "MLP_LOADING": runner.place(PROGRAM, LOADING), "MLP_TRAFFIC": f"{seen}/{TRAFFIC}",
            **({} if app.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        },
        log=log_path(app),
        cpu=app.cpu,
        gpu=app.gpu,
        ram_mib=app.ram,
        grace_s=STOP_GRACE_S,
        log_limit=LOG_LIMIT,
        labels={"user": app.user.username, "app": app.name, "public": str(app.public).lower()},
        kind="service",
        port=app.port,
        runtime="serve",
        mounts=(Mount(PROGRAM, LOADING), Mount(SERVING, SERVING_SEEN), Mount(files, MODEL)),
        owner=app.user_id,
        disk_mib=DISK_MIB,
    )  # fmt: skip


def _with_usable_port(app: Application) -> Application | None:
    """The application, with another port where somebody has taken its own; None when it is no longer to be started."""
    runner, tried = runners.get(), []
    while not runner.can_listen(app.port):
        tried.append(app.port)
        app = lifecycle.move(app.pk, app.run_name, tried)
        if app is None or len(tried) >= PORT_TRIES:
            return None
    return app


def _asked(app: Application, reason: str) -> None:
    with contextlib.suppress(Missing):
        lifecycle.end_asked(app.pk, app.run_name, reason, by="runner")


def _ended(app: Application, reason: str) -> None:
    try:
        lifecycle.end_run(app.pk, app.run_name, reason, by="runner")
    except Missing:
        return


def _too_old(app: Application) -> bool:
    return bool(app.ordered) and (timezone.now() - app.ordered).total_seconds() > settings.APP_START_S


def _answers(address: tuple[str, int]) -> bool:
    try:
        return outbound.exchange(address, "GET", "/v2/health/ready", limit_s=PROBE_S, most=0)[0] == 200
    except (OSError, http.client.HTTPException):
        return False
