"""The command, folders and environment of a job's script; nothing of the server's own environment."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePath
from typing import NamedTuple

from django.conf import settings

import runners
from datasets import sources
from kernel import storage
from kernel.messages import Message
from kernel.telemetry import tracing
from kernel.textlog.files import LogFile
from resources.models import Network
from runners import Mount, Runner, RunSpec
from snapshots import tree

from .auth import job_token, message_prefix, nats_address, nats_inbox
from .code import capture
from .models import Job
from .notebooks import place as notebooks
from .packages import trust, using
from .packages.store import Environment


class Extra(NamedTuple):
    """What the run of a job has beside other jobs' runs: folders, variables, and another runtime."""

    mounts: tuple[Mount, ...]
    variables: dict[str, str]
    runtime: str


_extras: list[Callable[[Job, Runner], Extra | None]] = []
_waits: list[Callable[[Job], Message | None]] = []


def register(of_run: Callable[[Job, Runner], Extra | None], waits_for: Callable[[Job], Message | None]) -> None:
    """Let an app above say what the runs of its jobs have beside others, and what these wait for before they start;
    None for jobs that are not its own.
    """
    _extras.append(of_run)
    _waits.append(waits_for)


def extra_waits(job: Job) -> list[Message | None]:
    """Return what a job waits for beside its datasets. Raises Refused where it cannot start."""
    return [waits_for(job) for waits_for in _waits]


REPORT_DIR = Path(__file__).resolve().parent / "report"
FOLDERS = ("ckpt", "log", "metrics")
# The paths inside a run where the runner can mount them; scripts read the variables instead.
WORKSPACE, DATASETS, SCRIPTS, REPORT, INPUTS = "/workspace", "/datasets", "/scripts", "/opt/mlp", "/inputs"
TOKEN = "/run/mlp"
HOME = "/home.now"  # what a snapshot does not have is a link into it


def log_path(job: Job, worker: int = 0) -> Path:
    path = storage.job_dir(job.user.username, job.name) / "log" / "job.log"
    return runners.log_of_worker(path, worker)


# What torchrun sets, for a job of one worker, so that one script runs with one and with several. The runner chooses the
# port where runs share those of a machine.
ALONE = {
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
}  # fmt: skip


def workers_with_logs(job: Job) -> list[int]:
    """Return the numbers of the workers that have a log of their own beside that of worker 0."""
    return [worker for worker in range(1, job.workers) if log_path(job, worker).is_file()]


def log_file(job: Job, worker: int = 0) -> LogFile:
    path = log_path(job, worker)
    return LogFile(path.parent.parent, f"{path.parent.name}/{path.name}")


def usage_path(job: Job) -> Path:
    return storage.job_dir(job.user.username, job.name) / "log" / "usage.jsonl"


def token_dir(job: Job) -> Path:
    """Return the folder of the file with the job's token, for programs that want a file; only its runs see it."""
    return storage.root() / "run" / "tokens" / f"job-{job.pk}"


def run_spec(job: Job, user) -> RunSpec:
    """Return the spec of the current attempt; create its workspace and the folder of links to its datasets."""
    runner = runners.get()
    workspace = storage.job_dir(user.username, job.name)
    for folder in FOLDERS:
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    home = storage.home_dir(user.username)
    storage.safe_join(home, job.entry)
    code = tree.ensure(user.username, job.snapshot, runner.place(home, HOME)) if job.snapshot else home
    unique, pins = (
        dict.fromkeys(job.datasets),
        capture.pinned(job),
    )  # a cluster refuses a mount path that is given twice
    folders = [sources.folder(user, reference, pins.get(reference)) for reference in unique]
    datasets = [Mount(folder, f"{DATASETS}/{name}") for name, folder in folders]
    links = storage.root() / "run" / "datasets" / f"job-{job.pk}"
    mounts = [Mount(code, SCRIPTS), Mount(REPORT_DIR, REPORT), *datasets, *_inputs(job, user).values()]
    if job.snapshot:
        mounts.append(Mount(home, HOME))
    packages = Environment(job.packages_owner, job.packages).tree if job.needs_packages else None
    mounts += using.mounts_of(packages)
    if runner.place(links, DATASETS) == str(links):
        _link(links, datasets)
        mounts.append(Mount(links, DATASETS))
    if job.network_policy != Network.NONE:
        _write_token(job)
        mounts.append(Mount(token_dir(job), TOKEN))
    mounts += (*trust.mounts(), *(notebooks.mounts() if job.is_notebook else ()))
    extra = next((each for each in (of_run(job, runner) for of_run in _extras) if each), Extra((), {}, job.runtime))
    variables = _environment(job, user, runner, workspace, links) | using.variables_of(runner, packages)
    return RunSpec(
        name=job.run_name,
        command=[using.python_of(runner, packages), "-u", *_command(job, runner, code, workspace)],
        cwd=workspace,
        environment=variables | extra.variables,
        log=log_path(job),
        cpu=job.cpu,
        gpu=job.gpu,
        gpu_type=job.gpu_type,
        ram_mib=job.ram,
        workers=job.workers,
        grace_s=max(settings.JOB_CANCEL_GRACE_S, settings.PREEMPT_GRACE_S if job.preemptible else 0),
        log_limit=settings.JOB_LOG_LIMIT,
        labels={"user": user.username, "job": job.name, "tenant": job.tenant.name},
        runtime=extra.runtime,
        image=job.image,
        mounts=(*mounts, *extra.mounts),
        owner=user.pk,
        disk_mib=settings.JOB_DISK_MIB,
        usage=usage_path(job),
        network=job.network_policy,
    )


def _command(job: Job, runner: Runner, code: Path, workspace: Path) -> list[str]:
    """Return what Python runs, with its arguments."""
    place = runner.place(code, SCRIPTS)
    if job.is_notebook:
        return notebooks.command(runner, place, job.entry, job.args, runner.place(workspace, WORKSPACE))
    return [f"{place}/{job.entry}", *job.args]


def _environment(job: Job, user, runner: Runner, workspace: Path, links: Path) -> dict[str, str]:
    """Return the variables of the run. The user's come first, so that none of them overrides the platform's.

    The folders of a PYTHONPATH of theirs come after ours.
    """
    seen = runner.place(workspace, WORKSPACE)
    return {
        **{key: str(value) for key, value in job.env.items()},
        **runner.environment(seen),
        "PYTHONUNBUFFERED": "1",
        **({} if job.gpu else {"CUDA_VISIBLE_DEVICES": ""}),  # a job without a GPU must not see one
        "PYTHONPATH": ":".join(filter(None, [runner.place(REPORT_DIR, REPORT), job.env.get("PYTHONPATH", "")])),
        **(ALONE if job.workers == 1 else {}),
        "MLP_WORKSPACE": seen,
        "MLP_DATASETS": runner.place(links, DATASETS),
        **{f"MLP_INPUT_{name}": runner.place(each.source, each.target) for name, each in _inputs(job, user).items()},
        "MLP_TOKEN": job_token(job),
        "MLP_USER": user.username,
        "MLP_JOB": job.name,
        "MLP_ATTEMPT": str(job.attempt),
        "MLP_PREEMPTIONS": str(job.preemptions),
        "MLP_NETWORK": job.network_policy,
        **runner.facts(job.runtime, job.image),
        **{name: value for name, value in trust.variables(runner).items() if name not in job.env},
        **(tracing.environment() if tracing.VARIABLE not in job.env else {}),
        **(_addresses(job, user, runner) if job.network_policy != Network.NONE else {}),
    }


def _inputs(job: Job, user) -> dict[str, Mount]:
    """Return what the run reads of other jobs' outputs, by the name of the input."""
    mounts = {}
    for name, source in job.job_inputs.items():
        other, _slash, path = source.partition("/")
        folder = storage.job_dir(user.username, other)
        mounts[name] = Mount(storage.safe_join(folder, path) if path else folder, f"{INPUTS}/{name}")
    return mounts


def _mlflow(job: Job, gateway: str) -> dict[str, str]:
    """Return what MLflow's clients need to fill the job's own run, unless the job names a server of its own.

    Without MLFLOW_RUN_ID, which all processes of the job would share: the first run that is created is the job's own.
    """
    if "MLFLOW_TRACKING_URI" in job.env:
        return {}
    return {
        "MLFLOW_TRACKING_URI": f"{gateway}/mlflow",
        "MLFLOW_TRACKING_TOKEN": job_token(job),
        "MLFLOW_EXPERIMENT_ID": str(job.project_id or 0),
    }


def _addresses(job: Job, user, runner: Runner) -> dict[str, str]:
    """Return where the run reaches the platform."""
    gateway, nats = runner.endpoint("gateway"), nats_address(job, runner.endpoint("nats"))
    addresses = {"MLP_API_URL": f"http://{gateway}" if gateway else settings.RUN_GATEWAY_URL}
    if nats:
        addresses |= {"MLP_NATS_URL": nats, "MLP_NATS_INBOX": nats_inbox(user.username, job.name)}
    addresses["MLP_NATS_ID_PREFIX"] = message_prefix(job)
    return {
        # The status contract of Kubeflow Trainer: Hugging Face transformers follows it where these are set.
        "KUBEFLOW_TRAINER_SERVER_URL": f"{addresses['MLP_API_URL']}/api/v1/users/{user.username}/jobs/{job.name}"
        ":trainer",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": runner.place(token_dir(job), TOKEN) + "/token",
        **_mlflow(job, addresses["MLP_API_URL"]),
        **addresses,
    }


def _write_token(job: Job) -> None:
    folder = token_dir(job)
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # the folder in it may be read by any run's user
    storage.write_atomic(folder / "token", job_token(job).encode())


def _link(folder: Path, datasets: list[Mount]) -> None:
    """Link each of the job's datasets, and no other, as `$MLP_DATASETS/{name}`, where the runner cannot mount them."""
    folder.mkdir(parents=True, exist_ok=True)
    for mount in datasets:
        link = folder / PurePath(mount.target).name
        if not link.is_symlink() or os.readlink(link) != str(mount.source):  # an earlier attempt read another version
            link.unlink(missing_ok=True)
            os.symlink(mount.source, link)
