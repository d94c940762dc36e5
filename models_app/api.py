"""The REST calls of the Model-manager (contract 5), one class for each path."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from django.http import FileResponse, StreamingHttpResponse

from accounts.sharing.rest import SharedReads
from kernel import storage, trash
from kernel.effects import DESTROY, READ
from kernel.locking import Missing, WrongState
from kernel.messages import word
from kernel.notes import NotesIn
from kernel.views import TRASH, Call, to_trash

from . import lifecycle
from . import trash as in_trash
from .models import Model, State
from .serializers import ModelIn, ModelOut

STATES = tuple(State.values)
BYTES, ZIP = "application/octet-stream", "application/zip"
PIECE = 1 << 20
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
            target = storage.safe_join(base, files[0])
            return FileResponse(target.open("rb"), as_attachment=True, filename=target.name, content_type=BYTES)
        headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "X-Accel-Buffering": "no"}
        return StreamingHttpResponse(zipped(base, files), content_type=ZIP, headers=headers)


class _Sink:
    """The file to which zipfile writes: it cannot seek, and its bytes are taken piece by piece."""

    def __init__(self):
        self.pieces: list[bytes] = []

    def write(self, data) -> int:
        self.pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        data, self.pieces = b"".join(self.pieces), []
        return data


def zipped(base: Path, files: list[str]) -> Iterator[bytes]:
    """Yield a zip of the files, uncompressed since weights hardly compress, never whole in memory."""
    sink = _Sink()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for path in files:
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o644 << 16
            source = storage.safe_join(base, path)
            entry.file_size = source.stat().st_size
            with source.open("rb") as file, archive.open(entry, "w") as out:
                while piece := file.read(PIECE):
                    out.write(piece)
                    yield sink.take()
    yield sink.take()
