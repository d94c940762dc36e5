"""The REST calls of runs, projects and saved views, one class for each path."""

from __future__ import annotations

from django.http import QueryDict
from rest_framework.response import Response

from jobs import states, trash
from jobs.api import JobView
from jobs.models import Project, View
from jobs.serializers import JobOut
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.errors import Refused
from kernel.locking import Missing
from kernel.names import NAME
from kernel.rest import PAGE_LIMIT
from kernel.views import Call, ContractView, query_int, whole

from . import changes, order, projects, selection, views
from .serializers import (
    DoneOut,
    MarkIn,
    MoveIn,
    ProjectEditIn,
    ProjectIn,
    ProjectOut,
    RunEditIn,
    RunsOut,
    Selection,
    TagIn,
    ViewIn,
    ViewOut,
)
from .table import Table

QUERY = (
    ("filter", str, "an expression such as `loss < 0.1 and lr = 0.01 and tag = baseline`"),
    ("state", {"type": "string", "enum": list(states.CONDITIONS)}, "only runs in this state"),
    ("project", str, "name of a project"),
    ("sort", str, "a column, with - for descending: `-created`, `param:lr`, `min:loss`, `-best:accuracy`"),
    ("trash", whole(0, 1), "1: the runs in the trash"),
    ("limit", whole(1, PAGE_LIMIT), "most runs of the answer"),
    ("after", str, "`next` of the page before"),
)  # fmt: skip


class RunList(ContractView):
    """The runs of a user with their arguments and metrics, filtered, sorted, a page at a time."""

    kind = "job"
    calls = {"GET": Call("List runs", READ, out=RunsOut, query=QUERY)}

    def get(self, request, user):
        query = request.query_params
        if query.get("state") not in (None, *states.CONDITIONS):
            raise Refused("must be one of %(choices)s", field="state", choices=", ".join(states.CONDITIONS))
        query_int(request, "trash", 0, 0, 1)
        project = changes.project_named(self.owner, query["project"]) if "project" in query else None
        table = Table(self.owner, query, project)
        if query.get("sort", "-created") != table.order.key:
            raise Refused("no such column", field="sort")
        if query.get("after") and order.cursor(query["after"], table.order) is None:
            raise Refused("must be `next` of a page in the same order", field="after")
        page = table.page(query_int(request, "limit", ROWS, 1, PAGE_LIMIT), everything=True)
        for row in page.rows:
            row.job.row = row
        return self.answer({"runs": [row.job for row in page.rows], "total": table.count, "next": page.next})


ROWS = 50


class _Action(ContractView):
    """An action on the runs of a selection."""

    kind = "job"

    def selected(self):
        """Return the runs that the body selects."""
        body = self.body()
        if "jobs" in body:
            return selection.named(self.owner, body["jobs"])
        query = QueryDict(mutable=True)
        query.update({name: body[name] for name in ("filter", "state") if name in body})
        if self.from_trash:
            query["trash"] = "1"
        project = changes.project_named(self.owner, body["project"]) if "project" in body else None
        return selection.matching(self.owner, query, project)

    from_trash = False

    def done(self, result: changes.Done) -> Response:
        return self.answer({"changed": result.changed, "left": result.left})


class RunsTag(_Action):
    calls = {"PUT": Call("Add and remove tags", SUBMIT, body=TagIn, out=DoneOut)}

    def put(self, request, user):
        body = self.body()
        return self.done(
            changes.tag(self.selected(), self.owner, add=body.get("add", {}), remove=body.get("remove", ()))
        )


class RunsMove(_Action):
    calls = {"PUT": Call("Move runs to another project", SUBMIT, body=MoveIn, out=DoneOut)}

    def put(self, request, user):
        return self.done(changes.move(self.selected(), self.owner, self.body()["to"]))


class RunsMark(_Action):
    calls = {
        "PUT": Call(
            "Set or clear the favourite mark of runs, hide or show them in charts", SUBMIT, body=MarkIn, out=DoneOut
        )
    }

    def put(self, request, user):
        marks = {name: value for name, value in self.body().items() if name in ("favourite", "hidden")}
        return self.done(changes.mark(self.selected(), self.owner, **marks))


class RunsCancel(_Action):
    """As many as 20 seconds allow; the others are counted in `left`. Call it again until that is 0."""

    calls = {"PUT": Call("Cancel the runs that are queued or running", SUBMIT, frees=True, body=Selection, out=DoneOut)}

    def put(self, request, user):
        return self.done(changes.cancel(self.selected(), self.by))


class RunsTrash(_Action):
    """They can be restored for MLP_TRASH_DAYS days, after which they are deleted."""

    calls = {"PUT": Call("Move the runs that have ended to the trash", DESTROY, body=Selection, out=DoneOut)}

    def put(self, request, user):
        return self.done(trash.trash(self.selected(), self.owner, self.by)[0])


class RunsRestore(_Action):
    from_trash = True
    calls = {"PUT": Call("Restore runs from the trash", body=Selection, out=DoneOut)}

    def put(self, request, user):
        return self.done(trash.restore(self.selected(), self.owner, self.by))


class RunsDelete(_Action):
    """As many as 20 seconds allow; the others are counted in `left`. Call it again until that is 0."""

    from_trash = True
    calls = {"PUT": Call("Delete runs in the trash permanently", DESTROY, body=Selection, out=DoneOut)}

    def put(self, request, user):
        return self.done(trash.delete(self.selected(), self.by))


class JobEdit(JobView):
    calls = {
        "PUT": Call(
            "Change a job's title, project, tags, notes, group, favourite mark, colour or visibility in charts, "
            "or its priority while it is queued",
            SUBMIT,
            body=RunEditIn,
            out=JobOut,
        )
    }

    def put(self, request, user, name):
        changes.edit(self.owner, name, **self.body())
        return self.answer(self.job(name))


class JobTrash(JobView):
    calls = {"PUT": Call("Move a job in state finished or error to the trash", DESTROY, out=JobOut)}

    def put(self, request, user, name):
        job = self.job(name)
        trash.trash_one(job, self.by)
        return self.answer(self.job(name))


class JobRestore(JobView):
    calls = {"PUT": Call("Restore a job from the trash", out=JobOut)}

    def put(self, request, user, name):
        trash.restore_one(self.owner, self.job(name).name, self.by)
        return self.answer(self.job(name))


class ProjectView(ContractView):
    kind = "project"
    segments = {"user": NAME, "id": r"^[0-9]{1,18}$"}

    def project(self, pk: int) -> Project:
        return projects.find(self.owner, pk)


class ProjectList(ProjectView):
    calls = {
        "POST": Call("Create a project", SUBMIT, body=ProjectIn, out=ProjectOut, status=201),
        "GET": Call(
            "List the user's projects, newest first", READ, out=ProjectOut, many=True,
            query=(("trash", whole(0, 1), "1: those in the trash"),),
        ),
    }  # fmt: skip

    def post(self, request, user):
        return self.answer(projects.create(self.owner, **self.body()))

    def get(self, request, user):
        rows = Project.objects.filter(user=self.owner).select_related("user")
        return self.page(rows.filter(trashed__isnull=not query_int(request, "trash", 0, 0, 1)))


class ProjectDetail(ProjectView):
    calls = {
        "GET": Call("Get a project that is not in the trash", READ, out=ProjectOut),
        "PUT": Call("Change a project", SUBMIT, body=ProjectEditIn, out=ProjectOut),
        "DELETE": Call("Move a project to the trash with its runs", DESTROY, out=ProjectOut),
    }

    def get(self, request, user, id):
        project = self.project(id)
        if project.trashed is not None:
            raise Missing("project")
        return self.answer(project)

    def put(self, request, user, id):
        return self.answer(projects.edit(self.owner, id, **self.body()))

    def delete(self, request, user, id):
        return self.answer(projects.delete(self.owner, id, self.by))


class ProjectRestore(ProjectView):
    calls = {"PUT": Call("Restore a project from the trash with its runs", out=ProjectOut)}

    def put(self, request, user, id):
        return self.answer(projects.restore(self.owner, id, self.by))


class ViewList(ProjectView):
    kind = "view"
    calls = {
        "POST": Call("Save a table of runs as a view", body=ViewIn, out=ViewOut, status=201),
        "GET": Call("List the user's saved views, newest first", READ, out=ViewOut, many=True),
    }

    def post(self, request, user):
        body = self.body()
        name = body.pop("project", None)
        project = None if name is None else changes.project_named(self.owner, name)
        return self.answer(views.save(self.owner, project=project, **body))

    def get(self, request, user):
        return self.page(View.objects.filter(user=self.owner).select_related("project"))


class ViewDetail(ProjectView):
    kind = "view"
    calls = {"DELETE": Call("Delete a saved view", DESTROY)}

    def delete(self, request, user, id):
        if not views.delete(self.owner, id):
            raise Missing("view")
        return self.answer()
