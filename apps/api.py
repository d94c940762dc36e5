"""The APP-manager's REST calls (contract 6), one class for each path."""

from __future__ import annotations

import os

from django.http import HttpResponse

from mlp.kernel.locking import Missing
from mlp.kernel.views import Call, ContractView, query_int

from . import launching, lifecycle
from .models import Application, State
from .serializers import AppIn, AppOut

STATES = tuple(State.values)
LOG_PIECE = 16 << 20


class AppView(ContractView):
    kind = "application"

    def rows(self):
        return Application.objects.filter(user=self.owner).select_related("user", "tenant", "model")


class AppList(AppView):
    calls = {
        "POST": Call("Deploy a model as an application", body=AppIn, out=AppOut, status=201),
        "GET": Call("The user's applications, newest first", out=AppOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(lifecycle.create_app(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(self.rows())


class AppDetail(AppView):
    calls = {
        "GET": Call("One application", out=AppOut),
        "DELETE": Call("Delete, in ready or error", out=AppOut),
    }

    def get(self, request, user, name):
        found = self.rows().filter(name=name).first()
        if found is None:
            raise Missing("application")
        return self.answer(found)

    def delete(self, request, user, name):
        return self.answer(lifecycle.delete_app(user=self.owner, name=name, by=self.by))


class AppLog(AppView):
    """stdout and stderr together, from byte `offset`, 16 MiB at most; X-Next-Offset says where to go on."""

    calls = {
        "GET": Call("The log", media="text/plain", query=(("offset", int, "the first byte wanted"),)),
    }

    def get(self, request, user, name):
        found = self.rows().filter(name=name).first()
        if found is None:
            raise Missing("application")
        offset = query_int(request, "offset", 0, 0)
        data = read_log(found, offset)
        headers = {"X-Next-Offset": str(offset + len(data))}
        return HttpResponse(data, content_type="text/plain; charset=utf-8", headers=headers)


def read_log(app: Application, offset: int) -> bytes:
    """A piece of the log. The folder is the application's own to write in, so no link in it is followed."""
    path = launching.log_path(app)
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return b""
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        file.seek(min(offset, os.fstat(file.fileno()).st_size))
        return file.read(LOG_PIECE)
