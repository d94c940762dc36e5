"""The schedules and pipelines that run the code of a folder in `.home` as it is then, with rights of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kernel.messages import Message
from kernel.registering import Registry, Rights

from .models import Pipeline, Schedule


def running(username: str, parts: Sequence[str], rights: Rights) -> Message | None:
    """Return what runs code at or below the path, or of a folder that it is in, and may change more of the registry
    than a token with these rights.
    """
    path = "/".join(parts)
    schedules = Schedule.objects.filter(user__username=username, snapshot=None).exclude(kind="pipeline")
    for name, kind, spec in schedules.order_by("pk").values_list("name", "kind", "spec"):
        if _is_more(spec if kind == "job" else spec["job"], path, rights):
            return Message(
                "the schedule %(name)s runs the code of this folder, and may change more of the model registry than "
                "this token", name=name,
            )  # fmt: skip
    pipelines = Pipeline.objects.filter(user__username=username, deleted=False)
    for name, steps in pipelines.order_by("pk").values_list("name", "steps"):
        if any(_is_more(step.get("job", {}), path, rights) for _name, step in steps):
            return Message(
                "the pipeline %(name)s runs the code of this folder, and may change more of the model registry than "
                "this token", name=name,
            )  # fmt: skip
    return None


def _is_more(job: dict, path: str, rights: Rights) -> bool:
    if "entry" not in job or job.get("code_from"):
        return False  # no script of `.home`
    given = Rights(job.get("registry", Registry.VERSIONS), tuple(job.get("registry_models", ())))
    return not rights.covers(given) and _is_code(path, os.path.dirname(job["entry"]))


def _is_code(path: str, folder: str) -> bool:
    """Return whether the path is in the folder, or contains it."""
    return not folder or not path or f"{path}/".startswith(f"{folder}/") or folder.startswith(f"{path}/")
