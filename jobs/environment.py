"""What a job's script is given: its command, folders and environment (contract 4). Nothing of the server's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import settings

from mlp.kernel import storage
from mlp.runners import RunSpec

from .auth import job_token
from .models import Job

REPORT_DIR = Path(__file__).resolve().parent / "report"
FOLDERS = ("ckpt", "log", "metrics")


def log_path(job: Job) -> Path:
    return storage.job_dir(job.user.username, job.name) / "log" / "job.log"


def run_spec(job: Job, user) -> RunSpec:
    """The spec of the job's present attempt; makes its workspace and the folder of links to its datasets."""
    workspace = storage.job_dir(user.username, job.name)
    for folder in FOLDERS:
        (workspace / folder).mkdir(parents=True, exist_ok=True)
    script = storage.safe_join(storage.home_dir(user.username), job.entry)
    return RunSpec(
        name=job.run_name,
        command=[sys.executable, "-u", str(script), *job.args],
        cwd=workspace,
        environment=_environment(job, user, workspace, _link_datasets(job, user)),
        log=log_path(job),
        cpu=job.cpu,
        gpu=job.gpu,
        ram_mib=job.ram,
        grace_s=settings.JOB_CANCEL_GRACE_S,
        log_limit=settings.JOB_LOG_LIMIT,
        labels={"user": user.username, "job": job.name},
    )


def _environment(job: Job, user, workspace: Path, datasets: Path) -> dict[str, str]:
    """The user's own variables first: the platform's win, so none of them can be faked."""
    bin_dir = Path(sys.executable).parent
    return {
        **{key: str(value) for key, value in job.env.items()},
        "PATH": f"{bin_dir}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(workspace),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        **({} if job.gpu else {"CUDA_VISIBLE_DEVICES": ""}),  # a job without a GPU must not see one
        "PYTHONPATH": str(REPORT_DIR),
        "MLP_WORKSPACE": str(workspace),
        "MLP_DATASETS": str(datasets),
        "MLP_API_URL": settings.GATEWAY_URL,
        "MLP_TOKEN": job_token(job),
        "MLP_USER": user.username,
        "MLP_JOB": job.name,
        "MLP_ATTEMPT": str(job.attempt),
    }


def _link_datasets(job: Job, user) -> Path:
    """`$MLP_DATASETS/{name}` for each dataset the job named, and no other."""
    folder = storage.root() / "run" / "datasets" / f"job-{job.pk}"
    folder.mkdir(parents=True, exist_ok=True)
    for name in job.datasets:
        link = folder / name
        if not link.is_symlink():
            os.symlink(storage.dataset_dir(user.username, name), link)
    return folder
