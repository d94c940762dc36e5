"""The REST calls of uploads to external datasets, one class for each path."""

from __future__ import annotations

from kernel.effects import SUBMIT
from kernel.names import DATASET_NAME, NAME
from kernel.views import Call, ContractView

from . import uploads
from .serializers import UploadPartsIn, UploadPartsOut, UploadsIn, UploadsOut

SEGMENTS = {"user": NAME, "name": DATASET_NAME}


class DatasetUploads(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {
        "POST": Call(
            "Get presigned addresses for files to upload to the bucket of an external dataset",
            SUBMIT,
            body=UploadsIn,
            out=UploadsOut,
        )
    }

    def post(self, request, user, name):
        return self.answer(uploads.ask(user=self.owner, name=name, **self.body()))


class DatasetUploadParts(ContractView):
    kind = "dataset"
    segments = SEGMENTS
    calls = {
        "POST": Call(
            "Get presigned addresses for parts of a file, and for completing it",
            SUBMIT,
            body=UploadPartsIn,
            out=UploadPartsOut,
        )
    }

    def post(self, request, user, name):
        return self.answer(uploads.ask_parts(user=self.owner, name=name, **self.body()))
