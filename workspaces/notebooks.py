"""Notebooks of a workspace as jobs: which there are, and the job that executes one, with the files beside it."""

from __future__ import annotations

import posixpath
import re
from itertools import islice
from pathlib import Path

from django.db import transaction

from accounts import throttle
from accounts.tenancy import members
from jobs import lifecycle as jobs
from jobs.artifacts import outputs
from jobs.code import snapshot_code
from jobs.models import Job
from jobs.models.submission import NOTEBOOK
from kernel import names, storage, trash
from kernel.errors import Refused
from kernel.pages import free_name
from snapshots import scan

from . import place
from .models import Workspace

OFFERED = 200


def home_of(workspace: Workspace) -> Path:
    """Return the folder of the workspace's files."""
    return place.folder(workspace) / place.HOME


def listed(workspace: Workspace) -> list[str]:
    """Return the paths of its notebooks that can be the entry of a job, those of the nearest folders first."""
    try:
        found = scan.scan(home_of(workspace), NOTEBOOK).files
    except Refused:  # of an invalid .mlpignore; a job says so
        return []
    return list(islice((each.path for each in found if _is_entry(each.path)), OFFERED))


def submit(workspace: Workspace, entry: str, args: list[str], *, by: str) -> Job:
    """Create a job that executes the notebook as it is on the disk, with the workspace's resources, datasets and
    environment. Raises as create_job.
    """
    trash.require_kept(workspace)
    user, home = workspace.user, home_of(workspace)
    names.entry(entry)
    if not _is_entry(entry) or (file := storage.open_file(home, entry)) is None:
        raise Refused("the workspace has no notebook %(entry)s", field="entry", entry=entry)
    file.close()
    throttle.count_submission(user.username)
    outputs.require(user.pk)
    stem = posixpath.basename(entry).removesuffix(NOTEBOOK)
    title = " ".join([posixpath.basename(entry), *args])
    with snapshot_code.taken(user, entry, home=home) as code, transaction.atomic():
        members.hold(user, workspace.tenant.name)
        return jobs.create_job(
            user=user, by=by, name=free_name(Job.objects.filter(user=user), stem, "notebook"), entry=entry,
            title=re.sub(f"[{names.CONTROLS}]", " ", title)[: names.MAX_TITLE].strip(), args=args,
            snapshot=snapshot_code.record(user, code), tenant=workspace.tenant.name, cpu=workspace.cpu,
            gpu=workspace.gpu, gpu_type=workspace.gpu_type, ram=workspace.ram, datasets=workspace.datasets,
            environment=workspace.environment, find_requirements=not workspace.environment,
        )  # fmt: skip


def _is_entry(path: str) -> bool:
    hidden = any(part.startswith(".") for part in path.split("/"))
    return path.endswith(NOTEBOOK) and not hidden and re.fullmatch(names.LETTERS_OF_ENTRY, path) is not None
