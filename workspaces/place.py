"""What a workspace's run is, and what it sees: its home, its datasets, the job that it opens, its environment."""

from __future__ import annotations

import os
from pathlib import Path, PurePath

from django.conf import settings

import runners
from apps import proof
from datasets import sources
from jobs.environment import REPORT, REPORT_DIR, SCRIPTS
from jobs.models import Job
from jobs.packages import trust, using
from kernel import storage
from resources.models import Network
from runners import Mount, Runner, RunSpec
from snapshots import tree

from . import packages
from .models import Workspace

PROGRAM = Path(__file__).resolve().parent / "program"
PROGRAM_SEEN, WORK, DATASETS, JOB_OUTPUT, INPUTS = "/opt/mlp-lab", "/workspace", "/datasets", "/job", "/inputs"
MODEL = "/model"
HOME_NOW = "/home.now"  # what a snapshot does not have is a link into it
ENTRY, HOME, OUTPUT, ACTIVITY = "lab.py", "home", "output", "activity.json"
PORT = 8888  # where each run has a network of its own
LOG_LIMIT = 64 << 20
STOP_GRACE_S = 10


def folder(workspace: Workspace) -> Path:
    """Return the workspace's own folder, the only one that its run may write."""
    return storage.root() / "workspaces" / workspace.user.username / workspace.name


def log_path(workspace: Workspace) -> Path:
    """Return the path of the log of the workspace's runs."""
    return folder(workspace) / "log" / "workspace.log"


def base_path(workspace: Workspace) -> str:
    """Return the path of the workspace at the workspaces' gateway."""
    return f"/{workspace.user.username}/{workspace.name}/"


def spec_of(workspace: Workspace) -> RunSpec:
    """Return the run of the workspace; make its folders and the folder of links to its datasets."""
    runner, own, packages_tree = runners.get(), folder(workspace), packages.tree_of(workspace)
    for name in (HOME, OUTPUT, "log"):
        (own / name).mkdir(parents=True, exist_ok=True)
    seen = runner.place(own, WORK)
    program = runner.place(PROGRAM, PROGRAM_SEEN)
    command = [using.python_of(runner, packages_tree), "-u", f"{program}/{ENTRY}", base_path(workspace)]
    command.append(f"{seen}/{ACTIVITY}")
    if runner.listen:
        command += [runner.listen, str(PORT)]
    mounts = [Mount(PROGRAM, PROGRAM_SEEN), Mount(REPORT_DIR, REPORT), *trust.mounts()]
    mounts += using.mounts_of(packages_tree)
    datasets, links = _datasets(workspace, runner)
    mounts += datasets
    variables, of_job = _job(workspace, runner)
    mounts += of_job
    model = storage.model_dir(workspace.user.username, workspace.model.name) if workspace.model else None
    if model is not None and model.is_dir():
        mounts.append(Mount(model, MODEL))
        variables |= {"MLP_MODEL": runner.place(model, MODEL), "MLP_MODEL_NAME": workspace.model.name}
    return RunSpec(
        name=workspace.run_name,
        command=command,
        cwd=own,
        environment={
            **variables,
            **_environment(workspace, runner, seen),
            "MLP_DATASETS": links,
            **using.variables_of(runner, packages_tree),
            proof.VARIABLE: proof.secret(workspace.run_name),
        },
        log=log_path(workspace),
        cpu=workspace.cpu,
        gpu=workspace.gpu,
        gpu_type=workspace.gpu_type,
        ram_mib=workspace.ram,
        grace_s=STOP_GRACE_S,
        log_limit=LOG_LIMIT,
        labels={"user": workspace.user.username, "workspace": workspace.name},
        purpose="workspace",
        kind="service",
        port=PORT,
        runtime=packages.RUNTIME,
        mounts=tuple(mounts),
        owner=workspace.user_id,
        disk_mib=settings.WORKSPACE_DISK_MIB,
        network=workspace.tenant.network_policy,
    )


def trees_in_use() -> set[tuple[str, str]]:
    """Return the snapshots, by user and digest, whose files workspaces that are not at rest have mounted."""
    rows = Workspace.objects.exclude(run_name="").filter(job__snapshot__isnull=False)
    return set(rows.values_list("user__username", "job__snapshot__digest"))


def _environment(workspace: Workspace, runner: Runner, seen: str) -> dict[str, str]:
    variables = {
        **runner.environment(f"{seen}/{HOME}"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": runner.place(REPORT_DIR, REPORT),
        "SHELL": "/bin/bash",
        "MLP_USER": workspace.user.username,
        "MLP_WORKSPACE_NAME": workspace.name,
        "MLP_WORKSPACE": f"{seen}/{OUTPUT}",
        "MLP_NETWORK": workspace.tenant.network_policy,
        **runner.facts(packages.RUNTIME),
        **trust.variables(runner),
        **({} if workspace.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
    }
    if workspace.tenant.network_policy != Network.NONE:
        gateway = runner.endpoint("gateway")
        address = f"http://{gateway}" if gateway else settings.RUN_GATEWAY_URL
        variables |= {"MLP_API_URL": address, "MLFLOW_TRACKING_URI": f"{address}/mlflow"}
    return variables


def _datasets(workspace: Workspace, runner: Runner) -> tuple[list[Mount], str]:
    """Return the mounts of the datasets, and the folder in which the run finds them by name."""
    found = [sources.folder(workspace.user, reference) for reference in dict.fromkeys(workspace.datasets)]
    mounts = [Mount(source, f"{DATASETS}/{name}") for name, source in found]
    links = storage.root() / "run" / "datasets" / f"workspace-{workspace.pk}"
    if runner.place(links, DATASETS) != str(links):
        return mounts, DATASETS
    storage.remove_tree(links)
    links.mkdir(parents=True, exist_ok=True)
    for mount in mounts:
        os.symlink(mount.source, links / PurePath(mount.target).name)
    return [*mounts, Mount(links, DATASETS)], str(links)


def _job(workspace: Workspace, runner: Runner) -> tuple[dict[str, str], list[Mount]]:
    """Return the variables and the mounts of the job that the workspace opens: its code, output and inputs, to read."""
    job: Job | None = workspace.job
    if job is None or job.user_id != workspace.user_id:
        return {}, []
    user = workspace.user
    home = storage.home_dir(user.username)
    code = tree.ensure(user.username, job.snapshot, runner.place(home, HOME_NOW)) if job.snapshot else home
    output = storage.job_dir(user.username, job.name)
    output.mkdir(parents=True, exist_ok=True)
    mounts = [Mount(code, SCRIPTS), Mount(output, JOB_OUTPUT)]
    if job.snapshot:
        mounts.append(Mount(home, HOME_NOW))
    variables = {key: str(value) for key, value in job.env.items()}
    for name, source in job.job_inputs.items():
        other, _slash, path = source.partition("/")
        below = storage.job_dir(user.username, other)
        below = storage.safe_join(below, path) if path else below
        if below.exists():
            mounts.append(Mount(below, f"{INPUTS}/{name}"))
            variables[f"MLP_INPUT_{name}"] = runner.place(below, f"{INPUTS}/{name}")
    return variables | {
        "MLP_DEBUG_JOB": job.name,
        "MLP_DEBUG_CODE": runner.place(code, SCRIPTS),
        "MLP_DEBUG_OUTPUT": runner.place(output, JOB_OUTPUT),
        "MLP_DEBUG_ENTRY": job.entry,
        "MLP_DEBUG_ARGS": "\n".join(job.args),
    }, mounts
