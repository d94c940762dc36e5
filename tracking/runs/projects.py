"""Every change of a project is made by this module."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import IntegrityError, transaction
from django.utils import timezone

from accounts import lifecycle as accounts
from jobs import trash
from jobs.models import Job, Project
from kernel import after_commit
from kernel.database import violated
from kernel.errors import Refused
from kernel.locking import Missing, lock_row
from kernel.sanitize import UNSTORABLE

from . import board

MAX_PROJECTS = 10_000
MAX_GOALS = 1000
MAX_METRIC = 250  # characters of a metric's name


def find(user, pk: int) -> Project:
    """Return the user's project, also one in the trash. Raises Missing."""
    project = Project.objects.filter(user=user, pk=pk).first()
    if project is None:
        raise Missing("project")
    return project


def require_room(user) -> None:
    """Raise Refused for a user who has as many projects as are allowed."""
    if Project.objects.filter(user=user).count() >= MAX_PROJECTS:
        raise Refused("you have %(limit)s projects, the most that are allowed", limit=MAX_PROJECTS)


def create(user, *, name: str, **fields) -> Project:
    """Create a project. Raises Refused for a name that is taken."""
    with _unique(name), transaction.atomic():
        accounts.hold_active(user)
        require_room(user)
        project = Project.objects.create(user=user, name=name, **fields)
        after_commit.changed(user.username, "project", "")
    return project


def edit(user, pk: int, **fields) -> Project:
    """Change a project's name, title, readme, board, goals or tags."""
    with _unique(fields.get("name", "")), transaction.atomic():
        project = _locked(user, pk)
        for field, value in fields.items():
            setattr(project, field, value)
        project.save()
        after_commit.changed(user.username, "project", "")
    return project


def edit_board(user, pk: int, panels: list[dict], was: str | None) -> Project:
    """Store the panels of the board. Raises Refused when `was` is given and is the mark of another board by now."""
    with transaction.atomic():
        project = _locked(user, pk)
        if was is not None and was != board.mark(project.board):
            raise Refused("the board has changed; reload the page", field="board")
        project.board = panels
        project.save(update_fields=["board", "updated"])
        after_commit.changed(user.username, "project", "")
    return project


def set_goal(user, pk: int, metric: str, direction: str) -> Project:
    """Set which direction of a metric is better, min or max; "" for what its name suggests."""
    if direction not in ("", "min", "max") or not 1 <= len(metric) <= MAX_METRIC or UNSTORABLE.search(metric):
        raise Refused("must be an object of at most 1000 metrics with min or max", field="goals")
    with transaction.atomic():
        project = _locked(user, pk)
        others = {name: chosen for name, chosen in project.goals.items() if name != metric}
        project.goals = {**others, metric: direction} if direction else others
        if len(project.goals) > MAX_GOALS:
            raise Refused("must be an object of at most 1000 metrics with min or max", field="goals")
        project.save(update_fields=["goals", "updated"])
        after_commit.changed(user.username, "project", "")
    return project


def delete(user, pk: int, by: str) -> Project:
    """Move a project to the trash, and its runs with it. Raises Refused while jobs are queued or running in it."""
    with transaction.atomic():
        accounts.hold_active(user)  # so that no job is submitted to it meanwhile
        project = _locked(user, pk)
        if project.trashed:
            return project
        require_deletable(project)
        runs = Job.kept.filter(project=project)
        project.trashed = timezone.now()
        project.save(update_fields=["trashed"])
        trash.trash(runs, user, by, project.trashed)
        after_commit.changed(user.username, "project", "")
    return project


def require_deletable(project: Project) -> None:
    """Raise Refused for the default project, and while jobs are queued or running in it."""
    if project.default:
        raise Refused("the default project cannot be deleted", field="project")
    live = Job.kept.filter(project=project).exclude(trash.MOVABLE).order_by("pk").values_list("name", flat=True)
    if names := list(live[:3]):
        raise Refused("jobs of the project are queued or running: %(names)s; cancel them first", field="project",
                      names=", ".join(names))  # fmt: skip


def taken(user, rows: Iterable[Project]) -> set[str]:
    """Return which names of the projects, which are in the trash, others of the user have by now."""
    there = Project.objects.filter(user=user, name__in={row.name for row in rows}, trashed=None)
    return set(there.values_list("name", flat=True))


def require_free_name(project: Project, names: set[str] | None = None) -> None:
    """Raise Refused for a project in the trash whose name another one has by now; `names` are `taken` of several."""
    if project.name in (taken(project.user_id, [project]) if names is None else names):
        raise Refused("another project has this name now; rename that project first", field="name")


def restore(user, pk: int, by: str) -> Project:
    """Restore a project from the trash, with the runs that were moved there with it."""
    with _unique(""), transaction.atomic():
        project = _locked(user, pk)
        since, project.trashed = project.trashed, None
        if since is None:
            raise Refused("the project is not in the trash", field="project")
        project.save(update_fields=["trashed"])
        trash.restore(Job.objects.filter(project=project, trashed=since), user, by)
        after_commit.changed(user.username, "project", "")
    return project


def _locked(user, pk: int) -> Project:
    project = lock_row(Project, user=user, pk=pk)
    if project is None:
        raise Missing("project")
    return project


class _unique:
    """Turn the violation of the unique name into a Refused."""

    def __init__(self, name: str):
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind, problem, _traceback) -> None:
        if isinstance(problem, IntegrityError) and violated(problem) == "project_name_once_per_user":
            if self.name:
                raise Refused("you already have a project named %(name)s", field="name", name=self.name) from None
            raise Refused("another project has this name now; rename that project first", field="name") from None
