"""Artifacts are listed, downloaded and deleted. nginx sends the bytes; uploads.py stores them."""

from __future__ import annotations

from django.http import HttpResponseBase

from jobs.artifacts import files
from kernel import downloads
from kernel.effects import DESTROY, READ
from mlflow_protocol.protocol import Call, Routes, effect, for_jobs

from . import artifact_paths, lookup, shown, writing
from .artifact_paths import Place


@effect(READ)
@for_jobs
def listing(call: Call) -> dict:
    """List a folder, with paths relative to it. A file, and a folder that is not there, have none: so clients find out
    what a path is.
    """
    text = call.fields.text("path")
    if not text.strip("/"):
        return {"files": []}
    return {"files": entries(artifact_paths.place(call, text.strip("/")), "")}


@effect(READ)
@for_jobs
def download(call: Call, path: str) -> HttpResponseBase:
    """Send a file."""
    return send(call, artifact_paths.place(call, path, file=True))


@effect(DESTROY)
def delete(call: Call, path: str) -> dict:
    """Delete a file, or a folder with all that is in it."""
    place = artifact_paths.place(call, path.rstrip("/"), write=True)
    if not files.remove(place.job, place.path) and place.inner:
        raise artifact_paths.nothing(path)
    writing.PAGES.wake(place.job.pk, call.caller.username, place.job.name)
    return {}


@effect(READ)
@for_jobs
def of_run(call: Call) -> dict:
    """List a folder of a run's artifacts, with paths relative to the run's."""
    job = lookup.run(call)
    inner = call.fields.text("path").strip("/")
    return {"root_uri": shown.artifact_uri(job), "files": entries(artifact_paths.read_of_run(job, inner), inner)}


@effect(READ)
@for_jobs
def get_artifact(call: Call) -> HttpResponseBase:
    """Send an artifact of a run, as MLflow's web interface asks for it."""
    inner = call.fields.text("path", required=True)
    return send(call, artifact_paths.read_of_run(lookup.run(call), inner))


def send(call: Call, place: Place) -> HttpResponseBase:
    """Send a file. Raises MlflowError where there is none."""
    file = files.opened(place.job, place.path)
    if file is None:
        raise artifact_paths.nothing(place.inner)
    name = place.path.rpartition("/")[2]
    return downloads.send(call.request, file, name, files.address(place.job, place.path))


def entries(place: Place, prefix: str) -> list[dict]:
    """Return what is in a folder, each path after `prefix`. A folder of a run has what clients have logged, and what
    the script has written to the folder of that name of its output.
    """
    listed = {}
    if place.path != place.inner:
        listed = {entry.name: entry for entry in files.listing(place.job, place.path) or ()}
    if place.path == place.inner or artifact_paths.is_of_run(place):
        for entry in files.listing(place.job, place.inner) or ():
            if artifact_paths.is_output(f"{place.inner}/{entry.name}" if place.inner else entry.name):
                listed.setdefault(entry.name, entry)
    return [
        {
            "path": f"{prefix}/{entry.name}" if prefix else entry.name,
            "is_dir": entry.is_folder,
            **({} if entry.is_folder else {"file_size": entry.size}),
        }
        for entry in sorted(listed.values())
    ]


ROUTES: Routes = {"artifacts/list": {"GET": of_run}}
PROXIED: Routes = {
    "artifacts": {"GET": listing},
    "artifacts/<path:path>": {"GET": download, "DELETE": delete},
}
SENDING: Routes = {"get-artifact": {"GET": get_artifact}}
