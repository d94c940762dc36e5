"""The command, folders and environment of a job's script (contract 4); nothing of the server's own environment."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

import runners
from kernel import storage
from resources.models import Network
from runners import Mount, Runner, RunSpec

from .auth import job_token, nats_address, nats_inbox
from .models import Job

REPORT_DIR = Path(__file__).resolve().parent / "report"
FOLDERS = ("ckpt", "log", "metrics")
# The paths inside a run where the runner can mount them; scripts read the variables instead.
WORKSPACE, DATASETS, SCRIPTS, REPORT = "/workspace", "/datasets", "/scripts", "/opt/mlp"


def log_path(job: Job) -> Path:
    return storage.job_dir(job.user.username, job.name) / "log" / "job.log"


def usage_path(job: Job) -> Path:
    return storage.job_dir(job.user.username, job.name) / "log" / "usage.jsonl"


def run_spec(job: Job, user) -> RunSpec:
    """Return the spec of the current attempt; create its workspace and the folder of links to its datasets."""
    runner = runners.get()
    workspace = storage.job_dir(user.username, job.name)
    for folder in FOLDERS:
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    home = storage.home_dir(user.username)
    storage.safe_join(home, job.entry)
    unique = dict.fromkeys(job.datasets)  # a cluster refuses a mount path that is given twice
    datasets = [Mount(storage.dataset_dir(user.username, name), f"{DATASETS}/{name}") for name in unique]
    links = storage.root() / "run" / "datasets" / f"job-{job.pk}"
    mounts = [Mount(home, SCRIPTS), Mount(REPORT_DIR, REPORT), *datasets]
    if runner.place(links, DATASETS) == str(links):
        _link(links, datasets)
        mounts.append(Mount(links, DATASETS))
    return RunSpec(
        name=job.run_name,
        command=[runner.python, "-u", f"{runner.place(home, SCRIPTS)}/{job.entry}", *job.args],
        cwd=workspace,
        environment=_environment(job, user, runner, workspace, links),
        log=log_path(job),
        cpu=job.cpu,
        gpu=job.gpu,
        ram_mib=job.ram,
        workers=job.workers,
        grace_s=settings.JOB_CANCEL_GRACE_S,
        log_limit=settings.JOB_LOG_LIMIT,
        labels={"user": user.username, "job": job.name},
        runtime=job.runtime,
        mounts=tuple(mounts),
        owner=user.pk,
        disk_mib=settings.JOB_DISK_MIB,
        usage=usage_path(job),
        network=job.network_policy,
    )


def _environment(job: Job, user, runner: Runner, workspace: Path, links: Path) -> dict[str, str]:
    """Return the variables of the run. The user's come first, so that none of them overrides the platform's."""
    seen = runner.place(workspace, WORKSPACE)
    return {
        **{key: str(value) for key, value in job.env.items()},
        **runner.environment(seen),
        "PYTHONUNBUFFERED": "1",
        **({} if job.gpu else {"CUDA_VISIBLE_DEVICES": ""}),  # a job without a GPU must not see one
        "PYTHONPATH": runner.place(REPORT_DIR, REPORT),
        "MLP_WORKSPACE": seen,
        "MLP_DATASETS": runner.place(links, DATASETS),
        "MLP_TOKEN": job_token(job),
        "MLP_USER": user.username,
        "MLP_JOB": job.name,
        "MLP_ATTEMPT": str(job.attempt),
        "MLP_NETWORK": job.network_policy,
        **(_addresses(job, user, runner) if job.network_policy != Network.NONE else {}),
    }


def _addresses(job: Job, user, runner: Runner) -> dict[str, str]:
    """Return where the run reaches the platform."""
    gateway, nats = runner.door("gateway"), nats_address(job, runner.door("nats"))
    found = {"MLP_API_URL": f"http://{gateway}" if gateway else settings.RUN_GATEWAY_URL}
    if nats:
        found |= {"MLP_NATS_URL": nats, "MLP_NATS_INBOX": nats_inbox(user.username, job.name)}
    return found


def _link(folder: Path, datasets: list[Mount]) -> None:
    """Link each of the job's datasets, and no other, as `$MLP_DATASETS/{name}`, where the runner cannot mount them."""
    folder.mkdir(parents=True, exist_ok=True)
    for mount in datasets:
        link = folder / mount.source.name
        if not link.is_symlink():
            os.symlink(mount.source, link)
