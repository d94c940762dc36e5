"""The REST calls of the Model-manager, one class for each path."""

from __future__ import annotations

from django.http import HttpResponse, StreamingHttpResponse

from accounts.sharing.rest import SharedReads
from kernel import downloads, storage, trash
from kernel.effects import DESTROY, READ
from kernel.locking import Missing, WrongState
from kernel.messages import word
from kernel.notes import NotesIn
from kernel.titles import TitleIn, set_title
from kernel.views import TRASH, Call, to_trash
from kernel.zips import zipped

from . import lifecycle
from . import trash as in_trash
from .models import Model, State
from .serializers import ModelIn, ModelOut

STATES = tuple(State.values)
BYTES, ZIP = "application/octet-stream", "application/zip"
JOB = "$response.body#/name"


class ModelView(SharedReads):
    """A call about the models of one user."""

    kind = "model"
    shared = Model

    def model(self, name: str) -> Model:
        """Return the owner's model of that name. Raises Missing."""
        model = Model.objects.filter(user=self.owner, name=name).select_related("user", "tenant").first()
        if model is None:
            raise Missing("model")
        return model


class ModelList(ModelView):
    calls = {
        "POST": Call(
            "Create a model from a job's output or an uploaded file",
            body=ModelIn,
            out=ModelOut,
            status=201,
            after={"getJobDetail": {"requestBody": {"name": JOB, "src": f"jobs/{{{JOB}}}"}}},
        ),
        "GET": Call("List the user's models, newest first", READ, out=ModelOut, many=True, states=STATES),
    }

    def post(self, request, user):
        return self.answer(lifecycle.create_model(user=self.owner, by=self.by, **self.body()))

    def get(self, request, user):
        return self.page(Model.kept.filter(user=self.owner).select_related("user", "tenant"))


class ModelDetail(ModelView):
    calls = {
        "GET": Call("Get a model", READ, out=ModelOut),
        "DELETE": Call("Delete a model in state ready or error", DESTROY, out=ModelOut, query=TRASH),
    }

    def get(self, request, user, name):
        return self.answer(self.model(name))

    def delete(self, request, user, name):
        verb = in_trash.trash if to_trash(request) else lifecycle.delete_model
        return self.answer(verb(user=self.owner, name=name, by=self.by))


class ModelEdit(ModelView):
    calls = {"PUT": Call("Set the title", body=TitleIn, out=ModelOut)}

    def put(self, request, user, name):
        return self.answer(set_title(Model, user=self.owner, name=name, **self.body()))


class ModelNotes(ModelView):
    calls = {"PUT": Call("Set the notes", body=NotesIn, out=ModelOut)}

    def put(self, request, user, name):
        return self.answer(lifecycle.set_notes(user=self.owner, name=name, **self.body()))


class ModelDownload(ModelView):
    calls = {
        "GET": Call(
            "Download the model: its file, or a zip of its files",
            READ,
            media=(BYTES, ZIP),
        )
    }

    def get(self, request, user, name):
        model = self.model(name)
        trash.require_kept(model)
        base = storage.model_dir(user, model.name)
        files = [path for path, _info in storage.files(base)]
        if model.state != State.READY or not files:
            raise WrongState("the model is %(state)s; it can be downloaded once it is ready", state=word(model.state))
        if len(files) == 1:
            internal = downloads.rest_address("models", user, model.name, files[0])
            file = storage.safe_join(base, files[0]).open("rb")
            return downloads.send(request, file, files[0].rpartition("/")[2], internal)
        headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "X-Accel-Buffering": "no"}
        if not downloads.is_behind_nginx(request):
            return StreamingHttpResponse(zipped(base, files), content_type=ZIP, headers=headers)
        # The process that receives uploads sends it, in a thread of its own (datasets/webdav/archive.py).
        reader = downloads.reader(request.user, self.owner)
        headers["X-Accel-Redirect"] = f"/-data/zip/{reader}/{user}/{model.name}"
        return HttpResponse(content_type=ZIP, headers=headers)
