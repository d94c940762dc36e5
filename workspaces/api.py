"""The REST calls of workspaces, one class for each path."""

from __future__ import annotations

import os

from django.http import HttpResponse

from jobs import logs
from jobs.log.calls import HITS, LINES, answer_hits, answer_lines
from kernel.effects import DESTROY, READ
from kernel.locking import Missing
from kernel.titles import TitleIn, set_title
from kernel.views import TRASH, Call, ContractView, query_int, to_trash, whole

from . import launching, lifecycle, trash
from .models import LIVE, State, Workspace
from .serializers import WorkspaceIn, WorkspaceOut

PIECE = 16 << 20


class WorkspaceView(ContractView):
    """A call about the workspaces of one user."""

    kind = "workspace"

    def rows(self):
        """Return the owner's workspaces."""
        return Workspace.objects.filter(user=self.owner).select_related("user", "tenant", "job", "model")

    def workspace(self, name: str) -> Workspace:
        """Return the owner's workspace of that name. Raises Missing."""
        row = self.rows().filter(name=name).first()
        if row is None:
            raise Missing("workspace")
        return row


class WorkspaceList(WorkspaceView):
    calls = {
        "POST": Call("Create and start a workspace", body=WorkspaceIn, out=WorkspaceOut, status=201),
        "GET": Call("List the user's workspaces, newest first", READ, out=WorkspaceOut, many=True,
                    states=tuple(State.values)),
    }  # fmt: skip

    def post(self, request, user):
        return self.answer(lifecycle.create_workspace(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(self.rows().filter(trashed=None))


class WorkspaceDetail(WorkspaceView):
    calls = {
        "GET": Call("Get a workspace", READ, out=WorkspaceOut),
        "DELETE": Call("Delete a stopped or failed workspace with its files", DESTROY, out=WorkspaceOut, query=TRASH),
    }

    def get(self, request, user, name):
        return self.answer(self.workspace(name))

    def delete(self, request, user, name):
        verb = trash.trash if to_trash(request) else lifecycle.delete_workspace
        return self.answer(verb(user=self.owner, name=name, by=self.by))


class WorkspaceEdit(WorkspaceView):
    calls = {"PUT": Call("Set the title", body=TitleIn, out=WorkspaceOut)}

    def put(self, request, user, name):
        set_title(Workspace, user=self.owner, name=name, **self.body())
        return self.answer(self.workspace(name))


class WorkspaceStart(WorkspaceView):
    """Without free resources it is queued."""

    calls = {"PUT": Call("Start a stopped or failed workspace with its files", out=WorkspaceOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.start_workspace(user=self.owner, name=name, by=self.by))


class WorkspaceStop(WorkspaceView):
    """Kernels and terminals end; files are kept."""

    calls = {"PUT": Call("Stop a starting, queued or running workspace", frees=True, out=WorkspaceOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.stop_workspace(user=self.owner, name=name, by=self.by))


class WorkspaceKeep(WorkspaceView):
    """It counts as activity. A limit of hours stays."""

    calls = {"PUT": Call("Keep a workspace that is idle", frees=True, out=WorkspaceOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.keep(user=self.owner, name=name, by=self.by))


class WorkspaceLog(WorkspaceView):
    """What JupyterLab has written, from byte `offset`, 16 MiB at most; X-Next-Offset is the offset of the next request.

    With `follow=1` new output is sent until the workspace has ended; there is no X-Next-Offset.
    """

    calls = {
        "GET": Call(
            "Get the log",
            READ,
            media=("text/plain",),
            stream=logs.EVENTS,
            query=(("offset", whole(), "first byte to return"), ("follow", whole(0, 1), "1: follow the log")),
            next_offset=True,
        ),
    }

    def get(self, request, user, name):
        row = self.workspace(name)
        offset = query_int(request, "offset", 0, 0)
        if query_int(request, "follow", 0, 0, 1):
            read = lambda at, most: read_log(row, at, most)  # noqa: E731
            return logs.followed_text(request._request, row, read, _is_over(row), offset)
        data = read_log(row, offset)
        return HttpResponse(data, content_type=logs.TEXT, headers={"X-Next-Offset": str(offset + len(data))})


class WorkspaceLogLines(WorkspaceView):
    """Lines as a terminal shows them: colours as spans, overwritten text as last drawn. `q` marks its matches."""

    calls = {"GET": LINES}

    def get(self, request, user, name):
        row = self.workspace(name)
        return answer_lines(request, launching.log_file(row), row, _is_over(row))


class WorkspaceLogSearch(WorkspaceView):
    """Searches the log as it is shown. A call takes about a second at most; `next` is the line to continue from."""

    calls = {"GET": HITS}

    def get(self, request, user, name):
        return answer_hits(request, launching.log_file(self.workspace(name)))


def read_log(workspace: Workspace, offset: int, most: int = PIECE) -> bytes:
    """Return at most `most` bytes of the log from `offset`, none beyond the end."""
    file = launching.log_file(workspace).open()
    if file is None:
        return b""
    with file:
        file.seek(min(offset, os.fstat(file.fileno()).st_size))
        return file.read(most)


def _is_over(workspace: Workspace):
    return lambda: not Workspace.objects.filter(pk=workspace.pk, state__in=LIVE).exists()
