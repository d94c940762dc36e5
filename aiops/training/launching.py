"""The run of a training: fetch the lines, start it, follow it, announce its end. For actors and reconcile.

Nothing is called while a lock is held, and every step may be repeated: the runner's calls are idempotent by the run's
name, files are written atomically, and sent messages are marked on the row.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from datetime import timedelta
from errno import EDQUOT, ENOSPC
from pathlib import Path

from django.conf import settings
from django.utils import timezone

import opnilog
import runners
from aiops import lifecycle
from aiops.models import State, TrainingRun
from aiops.wire import folders, kv, lease, subjects
from kernel import after_commit, bus
from kernel import storage as kernel_storage
from kernel.errors import Fault, Refused
from kernel.messages import Message, message_of
from opnilog.store import verify
from runners import RunSpec, RunStatus, owned

from . import decisions, erasing, fetching, own_training, requests, training_data, versions
from .fetching import LINES, SESSIONS

log = logging.getLogger(__name__)

ATTEMPTS = 3  # of a run that was lost with its machine; a failed one is not repeated
AGAIN_AFTER_S = 20.0
LOOK_AGAIN_MS = 1000
RECENT = timedelta(hours=1)
OPNI_STEPS = 600  # at most, of the network for Opni's services
PROGRESS_BYTES = 1 << 20  # that are read of the progress, from its end
CODE = "code"  # in the training's folder
BY = "runner"
OWNER = 0  # of no user: the number of none
DISK_FULL = Message("the disk is full")
# What the trainer says in English only, by words of it.
KNOWN = {
    os.strerror(ENOSPC): DISK_FULL,
    os.strerror(EDQUOT): DISK_FULL,
    "no line to learn from": Message("no line is left to learn from: all are labelled as anomalies"),
}


class TrainingRuns(owned.OwnedRuns[TrainingRun]):
    """One run for each attempt of a training."""

    model, prefix = TrainingRun, "aiops-"
    release = staticmethod(lifecycle.give_back)

    def order(self, pk: int) -> TrainingRun | None:
        run = TrainingRun.objects.filter(pk=pk).first()
        if run is None or run.has_ended or run.run_started or (run.queued and not own_training.take_turn(run)):
            return None
        return lifecycle.order_run(pk, max(1, run.attempt))

    def prepare(self, run: TrainingRun) -> bool:
        """Fetch the lines; a training without any has failed, and one for whose lines there is no room. Raises Refused,
        Fault, OSError.
        """
        try:
            if fetching.fetch(run):
                return True
        except OSError as problem:
            if problem.errno in (ENOSPC, EDQUOT):
                raise Refused(DISK_FULL) from problem
            raise
        self.fail(run.pk, fetching.nothing_to_learn(run))
        return False

    def spec(self, run: TrainingRun) -> RunSpec:
        return _spec(run)

    def fail(self, pk: int, reason: str) -> None:
        lifecycle.fail(pk, reason, by=BY)

    def is_worth_retrying(self, run: TrainingRun, fault: Exception) -> bool:
        """Return True: `look` fails the training when its lease has run out."""
        lifecycle.note_trouble(run.pk, message_of(fault))
        return True

    def started(self, run: TrainingRun) -> None:
        lifecycle.note_start(run.pk, run.run_name, fetching.count_lines(run))

    def running(self, run: TrainingRun, status: RunStatus, follow: bool) -> None:
        if status.waits:
            words = Message("waiting to start: %(reason)s", reason=status.reason) if status.reason else ""
            return lifecycle.note_wait(run.pk, words)
        if run.reason:
            lifecycle.note_trouble(run.pk, "")
        if not _report(run, _progress(run)) and run.lease_until < timezone.now():
            self.fail(run.pk, Message("the trainer has not reported for %(seconds)s s", seconds=lifecycle.LEASE_S))

    def ended(self, run: TrainingRun, status: RunStatus) -> None:
        if status.succeeded:
            _adopt(run)
        elif status.state == "exited" and status.reason.startswith(runners.STOPPED):
            self._resume(run)  # a reset ends the training first: the platform has stopped it at its own end
        elif status.state == "exited":
            self.fail(run.pk, _reason(run, _progress(run), status.reason))
        elif run.attempt >= ATTEMPTS:
            self.fail(run.pk, Message("%(reason)s (%(count)s attempts)", reason=status.reason, count=run.attempt))
        else:
            self._resume(run)

    @staticmethod
    def _resume(run: TrainingRun) -> None:
        """Train again on the same lines; the time in which the platform was down does not count as silence."""
        lifecycle.beat(run.pk)
        if lifecycle.order_run(run.pk, run.attempt + 1) is not None:
            after_commit.enqueue("aiops.train", run.pk, queue=lifecycle.QUEUE)

    def discard(self, run: TrainingRun) -> None:
        folder = folders.training(run.uuid)
        if erasing.is_erased(run):
            return kernel_storage.remove_tree(folder)
        names = os.listdir(folder) if folder.exists() else ()
        needless = [name for name in names if name.startswith("out-") or name.endswith(training_data.DRAFT)]
        kernel_storage.clear(folder, only=(CODE, LINES, SESSIONS, *needless))


RUNS = TrainingRuns()
launch, sweep = RUNS.launch, RUNS.sweep


def poll(run: TrainingRun) -> None:
    """Follow a training that has not ended: its progress, the end of its run, a trainer that has gone silent."""
    _keep_lease(run)
    if run.run_started:
        RUNS.poll(run)
    elif not run.queued and run.lease_until < timezone.now():
        problem = run.reason or Message("no worker has accepted it")
        RUNS.fail(run.pk, Message("could not be started: %(problem)s", problem=problem))
    elif lifecycle.order_again(run.pk, AGAIN_AFTER_S):
        after_commit.enqueue("aiops.train", run.pk, queue=lifecycle.QUEUE)


def settle(pk: int, follow: bool = True) -> None:
    """Announce the end of a training once, in Opni's order (JobEnd first), and clean up its run.

    An actor follows: it looks again soon, until the run has ended. Reconcile does not: it comes back by itself, and
    each of its rounds would start another chain of messages.
    """
    run = TrainingRun.objects.filter(pk=pk).exclude(state=State.TRAINING).first()
    if run is None:
        return
    _send_job_end(run)
    if not run.announced:
        if run.state == State.COMPLETED:
            _announce(run)
        elif run.tenant_id is not None:
            own_training.notify_failed(pk)
        elif run.reason != decisions.CANCELLED:
            requests.failed(str(run.uuid), run.reason)
        lifecycle.note_sent(pk, announced=True)
    if not RUNS.clean(run, settings.JOB_CANCEL_GRACE_S) and follow:
        after_commit.enqueue("aiops.settle", pk, delay_ms=LOOK_AGAIN_MS)


# --- the run -------------------------------------------------------------------------------------------------------
def _spec(run: TrainingRun) -> RunSpec:
    """Return the run's specification, with paths relative to the run's folder: it may have another path where the run
    is. It is isolated like a job: it sees its own folder and nothing else of the platform's, and has no network, since
    what it reads are log lines of any user.
    """
    folder, runner = folders.training(run.uuid), runners.get()
    command = [runner.python, "-u", "-m", "opnilog.train", "--lines", LINES]
    command += ["--out", f"out-{run.attempt}", "--progress", f"progress-{run.attempt}.jsonl"]
    command += ["--sessions", SESSIONS]
    chosen = {"session_quiet_s": settings.AIOPS_SESSION_QUIET_S}
    offered = settings.AIOPS_S3_BUCKET and not run.tenant_id
    chosen |= {**({"opni_steps": OPNI_STEPS} if offered else {}), **settings.AIOPS_TRAINING_PARAMETERS}
    kernel_storage.write_atomic(folder / "parameters.json", json.dumps(chosen).encode())
    command += ["--parameters", "parameters.json"]
    _copy_code(folder)
    amounts = lifecycle.held(run)
    return RunSpec(
        name=run.run_name,
        command=command,
        cwd=folder,
        environment={
            **runner.environment("."),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": CODE,
            **({} if run.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
        },
        log=folder / "train.log",
        cpu=float(amounts["cpu"]),
        gpu=run.gpu,
        ram_mib=amounts["ram"],
        purpose="training",
        runtime="torch",
        labels={"aiops": str(run.uuid)},
        owner=OWNER,
        disk_mib=settings.JOB_DISK_MIB,
        network="none",
    )


def _copy_code(folder: Path) -> None:
    """Copy the trainer's modules beside its data, so that it runs wherever the storage root is mounted."""
    target = folder / CODE
    if target.is_symlink():  # an earlier attempt may have made anything of it
        target.unlink()
    shutil.rmtree(target, ignore_errors=True)
    source = Path(opnilog.__file__).parent
    shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("tests", "__pycache__"))


# --- progress ------------------------------------------------------------------------------------------------------
def _progress_file(run: TrainingRun) -> Path:
    return folders.training(run.uuid) / f"progress-{run.attempt}.jsonl"


def _progress(run: TrainingRun) -> list[dict]:
    """Return the complete lines of the progress file; a partly written one is left for the next look."""
    path = _progress_file(run)
    file = kernel_storage.open_file(path.parent, path.name)  # no link of the run's is followed
    if file is None:
        return []
    with file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - PROGRESS_BYTES))
        text = file.read(PROGRESS_BYTES).decode(errors="replace")
    rows = []
    for line in text.rpartition("\n")[0].splitlines()[-lifecycle.CURVE :]:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def _report(run: TrainingRun, rows: list[dict]) -> bool:
    """Write the latest progress to the row and the status. Return False when there is nothing new."""
    if not rows:
        return False
    last = rows[-1]
    fields = {
        "stage": str(last.get("stage") or subjects.TRAIN_STAGE)[:40],
        "percent": min(100, max(0, int(last.get("percent") or 0))),
        "elapsed": max(0, int(last.get("elapsed") or 0)),
        "eta": None if last.get("eta") is None else max(0, int(last["eta"])),
        "epoch": max(0, int(last.get("epoch") or 0)),
        "epochs": max(0, int(last.get("epochs") or 0)),
        "loss": next((row["loss"] for row in reversed(rows) if row.get("loss") is not None), None),
    }
    if all(getattr(run, name) == value for name, value in fields.items()):
        return False
    lifecycle.beat(run.pk, **fields)
    if run.tenant_id is not None:
        return True  # the status is the platform's model's
    requests.set_status(
        subjects.TRAINING,
        uuid=str(run.uuid),
        stage=subjects.TRAIN_STAGE,
        percentageCompleted=fields["percent"],
        timeElapsed=fields["elapsed"],
        remainingTime=fields["eta"] or 0,
        currentEpoch=fields["epoch"],
        detail={"stage": fields["stage"], "loss": fields["loss"], "epochs": fields["epochs"], "gpu": run.gpu},
    )
    return True


def _keep_lease(run: TrainingRun) -> None:
    """Keep the lease while the row trains and is alive, also when another controller ordered it."""
    if run.queued or run.lease_until < timezone.now():
        return
    owner = run.run_name or "platform"
    current = lease.current()
    if not lease.is_live(current):
        lease.acquire(str(run.uuid), owner)
    elif current.get("uuid") in {"", str(run.uuid)}:
        lease.renew(current.get("uuid") or "", owner)


def _reason(run: TrainingRun, rows: list[dict], ended: str) -> str:
    errors = [str(row["error"]) for row in rows if row.get("error")]
    said = errors[-1] if errors else owned.with_log(ended, folders.training(run.uuid) / "train.log")
    return next((reason for words, reason in KNOWN.items() if words in said), said)


# --- the end -------------------------------------------------------------------------------------------------------
def _adopt(run: TrainingRun) -> None:
    """Make the model of a successful run a version; verified, it serves, unless there was a reset meanwhile."""
    _report(run, _progress(run))
    files = versions.files()
    out = folders.training(run.uuid) / f"out-{run.attempt}"
    try:
        if any(path.is_symlink() for path in (out, *out.rglob("*"))):
            raise ValueError(Message("it has links"))
        manifest = verify(out)
        manifest.pop("texts", None)  # samples for the scorer, too large for a row
        version = files.add(out)
        verify(files.folder_of(version))
    except (OSError, ValueError) as problem:
        lifecycle.fail(run.pk, Message("the trained model is not valid: %(problem)s", problem=problem), by=BY)
        return
    if not lifecycle.complete(run.pk, version=version, manifest=manifest, by=BY):
        files.remove(version)
    versions.prune()


def _send_job_end(run: TrainingRun) -> None:
    """Send JobEnd exactly once: the process that sets the mark sends it, and takes the mark back when that fails.

    A training that has never left the queue began no job.
    """
    if run.queued:
        if lease.end(str(run.uuid)):  # killed just before it left
            bus.send([(subjects.GPU_JOB_STATUS, subjects.JOB_END)])
        lifecycle.note_sent(run.pk, job_end_sent=True)
        return
    if not TrainingRun.objects.filter(pk=run.pk, job_end_sent=False).update(job_end_sent=True):
        return
    try:
        bus.send([(subjects.GPU_JOB_STATUS, subjects.JOB_END)])
    except Fault:
        lifecycle.note_sent(run.pk, job_end_sent=False)
        raise
    lease.end(str(run.uuid))  # if this fails, `free_lease` does it
    for pk in own_training.waiting():
        after_commit.enqueue("aiops.train", pk, queue=lifecycle.QUEUE)


def free_lease() -> None:
    """End the lease of a training that has ended and announced it, where that was not done at once."""
    if not TrainingRun.objects.filter(ended__gt=timezone.now() - RECENT).exists():
        return
    current = lease.current()
    run = lifecycle.find(current["uuid"]) if lease.is_live(current) and current.get("uuid") else None
    if run is not None and run.has_ended and run.job_end_sent:
        lease.end(current["uuid"])


def _announce(run: TrainingRun) -> None:
    if not run.versions.filter(serving=True).exists():
        return  # reset or rolled back meanwhile: nothing new serves
    versions.follow()
    if run.tenant_id is not None:
        return
    kv.put_last_trained(run.payload)
    requests.set_status(
        subjects.COMPLETED,
        uuid=str(run.uuid),
        percentageCompleted=100,
        timeElapsed=run.elapsed,
        currentEpoch=run.epoch,
        stage=subjects.TRAIN_STAGE,
        detail={"loss": run.loss, "epochs": run.epochs, "gpu": run.gpu, "lines": run.lines},
    )
    versions.announce()
    if lifecycle.serving() is None:  # reset meanwhile: our status must not be the last one
        kv.put_last_trained({})
        requests.set_status(subjects.NO_MODEL)
