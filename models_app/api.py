"""The REST calls of the Model-manager, one class for each path."""

from __future__ import annotations

from django.http import HttpResponse, StreamingHttpResponse
from rest_framework.response import Response

from accounts.sharing.rest import SharedReads
from datasets.buckets.store import SIGNED_FOR
from kernel import downloads, storage, trash
from kernel.effects import DESTROY, READ
from kernel.errors import Refused
from kernel.locking import Missing, WrongState
from kernel.messages import word
from kernel.notes import NotesIn
from kernel.rest import PAGE_LIMIT
from kernel.titles import TitleIn, set_title
from kernel.views import TRASH, Call, query_int, to_trash
from kernel.zips import zipped

from . import external, lifecycle
from . import trash as in_trash
from .models import Model, State
from .serializers import ModelAddressOut, ModelBucketOut, ModelFileOut, ModelIn, ModelOut

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
            "Create a model from a job's output, an uploaded file or a bucket",
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


class ModelFiles(ModelView):
    calls = {
        "GET": Call("List the files of an external model, by path, with their ETags", READ, out=ModelFileOut, many=True)
    }

    def get(self, request, user, name):
        model = self.model(name)
        external.require_external(model)
        start, most = query_int(request, "offset", 0, 0), query_int(request, "limit", PAGE_LIMIT, 1, PAGE_LIMIT)
        entries = external.listed(model).entries
        headers = {"X-Total-Count": str(len(entries))}
        return Response(ModelFileOut(entries[start : start + most], many=True).data, headers=headers)


class ModelBucket(ModelView):
    calls = {
        "GET": Call(
            "Compare the bucket of an external model with the objects that were listed when it was created",
            READ,
            out=ModelBucketOut,
        )
    }

    def get(self, request, user, name):
        model = self.model(name)
        external.require_external(model)
        trash.require_kept(model)
        found = external.compare(model)
        added = [] if self.reading else found.added  # a reader of the model needs no right to the rest of the bucket
        return self.answer({**found._asdict(), "same": found.same, "added": added})


class ModelAddress(ModelView):
    calls = {
        "GET": Call(
            "Get an address of a file of an external model, at which its bucket sends it",
            READ,
            out=ModelAddressOut,
            query=(("file", {"type": "string", "maxLength": 1024}, "path of the file in the model"),),
            needs=("file",),
        )
    }

    def get(self, request, user, name):
        model = self.model(name)
        external.require_external(model)
        trash.require_kept(model)
        address = external.address(model, request.query_params["file"])
        return self.answer({"address": address, "expires": int(SIGNED_FOR.total_seconds())})


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
        if model.external:
            raise Refused("the files of the model %(name)s are in a bucket; get the address of each", name=name)
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
