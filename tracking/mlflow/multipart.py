"""The calls of an upload in parts: it begins, is completed or aborted. The parts go to addresses that are signed, as
those of object stores are: clients send no token there.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from django.core import signing
from django.utils.crypto import constant_time_compare

from jobs import auth
from jobs.artifacts import multipart
from jobs.artifacts.multipart import Upload
from jobs.models import Job, State
from kernel.effects import SUBMIT
from kernel.pages import program_address
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs, frees
from mlflow_protocol.reading import WrongField

from . import artifact_paths, writing

SALT = "mlflow.part"
PART = re.compile(r"/mlflow/api/2\.0/mlflow-artifacts/mpu/part/([a-z]{1,50})/([0-9a-f]{32})/([0-9]{1,5})")


class Part(NamedTuple):
    """One part of an upload into a run."""

    upload: Upload
    number: int
    job: Job


@effect(SUBMIT)
@for_jobs
def create(call: Call, path: str) -> dict:
    """Start an upload; return an address for each part."""
    name = _name(call)
    place = artifact_paths.place(call, f"{path.rstrip('/')}/{name}", write=True, file=True)
    count = call.fields.whole("num_parts", 1)
    upload = multipart.begin(place.job, place.path, count, auth.mark(call.caller.token))
    return {
        "upload_id": upload.key,
        "credentials": [
            {"url": _address(call, upload, number), "part_number": number, "headers": {}}
            for number in range(1, count + 1)
        ],
    }


@effect(SUBMIT)
@for_jobs
def complete(call: Call, path: str) -> dict:
    """Join the parts of an upload. Clients repeat it where they have lost the answer."""
    upload, place = _of_call(call, path, completed=True)
    etags = {}
    for message in call.fields.messages("parts", multipart.MAX_PARTS):
        number = message.whole("part_number", required=True)
        if number in etags:
            raise WrongField(f"Invalid value for parameter 'parts': part {number} is named twice")
        etags[number] = message.text("etag", required=True).strip('"')
    multipart.complete(upload, place.job, etags)
    writing.PAGES.wake(place.job.pk, call.caller.username, place.job.name)
    return {}


@effect(SUBMIT)
@frees
@for_jobs
def abort(call: Call, path: str) -> dict:
    """Remove what has arrived of an upload."""
    upload, place = _of_call(call, path)
    multipart.abort(upload, place.job)
    return {}


def _of_call(call: Call, path: str, completed: bool = False) -> tuple[Upload, artifact_paths.Place]:
    """Return the upload of a call, and where its artifact goes. Raises MlflowError."""
    place = artifact_paths.place(call, f"{path.rstrip('/')}/{_name(call)}", write=True, file=True)
    upload = multipart.find(call.caller.username, call.fields.text("upload_id", required=True), completed)
    if (upload.job, upload.path) != (place.job.pk, place.path):
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", "no such upload for this artifact")
    return upload, place


def _name(call: Call) -> str:
    """Return the name of the file; clients send the path that it has with them."""
    return call.fields.text("path", required=True).rpartition("/")[2]


# --- the parts --------------------------------------------------------------------------------------------------------
def _address(call: Call, upload: Upload, number: int) -> str:
    path = f"/mlflow/api/2.0/mlflow-artifacts/mpu/part/{upload.user}/{upload.key}/{number}"
    return f"{program_address(call.request)}{path}?signature={_signature(path)}"


def _signature(path: str) -> str:
    return signing.Signer(salt=SALT).signature(path)


def part_of(address: str) -> Part | None:
    """Return the part that an address is for; None for other addresses. Raises MlflowError where it is not signed, or
    the upload is over.
    """
    path, _, query = address.partition("?")
    match = PART.fullmatch(path)
    if match is None:
        return None
    given = query.removeprefix("signature=")
    if not constant_time_compare(given, _signature(path)):
        raise MlflowError("PERMISSION_DENIED", "the address of the part is not valid")
    upload = multipart.find(match[1], match[2])
    runs = Job.objects.filter(trashed=None).exclude(state=State.DELETING).select_related("user")
    job = runs.filter(pk=upload.job).first()
    if job is None or not job.user.is_active:
        raise MlflowError("RESOURCE_DOES_NOT_EXIST", "the run of the upload does not exist any more")
    if upload.token and not auth.holds(upload.token):
        raise MlflowError("PERMISSION_DENIED", "the token by which the upload was begun is not valid any more")
    upload.part(number := int(match[3]))
    return Part(upload, number, job)


ROUTES: Routes = {
    "mpu/create/<path:path>": {"POST": create},
    "mpu/complete/<path:path>": {"POST": complete},
    "mpu/abort/<path:path>": {"POST": abort},
}
