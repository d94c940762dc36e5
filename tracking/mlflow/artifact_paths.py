"""Which artifact an address means. The path of a run's artifact is `{experiment}/{run}/artifacts/{path}`, that of a
logged model's file `{experiment}/models/{model}/artifacts/{path}`, whatever project the run is in now: clients and the
registry keep addresses that were made before a run was moved.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from jobs.artifacts import files
from jobs.models import Job, LoggedModel
from mlflow_protocol.protocol import Call, MlflowError
from mlflow_protocol.reading import WrongField

from . import lookup

FOLDER = "artifacts"
RUN = re.compile(r"[0-9]{1,19}/([0-9a-fA-F]{32})/artifacts(?:/(.*))?", re.DOTALL)
MODELS = "models"
LOGGED = re.compile(r"models/m-[0-9a-f]{32}(/|$)")
MODEL = re.compile(r"[0-9]{1,19}/models/(m-[0-9a-f]{32})/artifacts(?:/(.*))?", re.DOTALL)
BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True)
class Place:
    """A file or folder of a run's output: `path` below the run's folder, `inner` as the client calls it."""

    job: Job
    path: str
    inner: str


def place(call: Call, text: str, *, write: bool = False, file: bool = False) -> Place:
    """Return the place that a decoded path means; with `file` it cannot be the top folder. Raises MlflowError,
    WrongField or Refused.
    """
    text = text if file else text.rstrip("/")
    logged = MODEL.fullmatch(text)
    match = RUN.fullmatch(text) or logged
    if match is None:
        raise WrongField(f"Invalid artifact path '{text[:200]}': must be an experiment, a run, 'artifacts' and a path")
    key, inner = match[1].lower(), match[2] or ""
    if file and not inner:
        raise WrongField(f"Invalid artifact path '{text[:200]}': must be a file's")
    if not write and (job := _registered(call, key, inner, logged=bool(logged))):
        return of_model(job, inner) if isinstance(job, LoggedModel) else read_of_run(job, inner)
    if logged:
        return of_model(lookup.model(call, key, write=write), inner)
    job = lookup.run(call, write=write, text=key)
    return of_run(job, inner) if write else read_of_run(job, inner)


def _registered(call: Call, key: str, inner: str, *, logged: bool) -> Job | LoggedModel | None:
    """Return the run, or the logged model, of another project where the path belongs to a registered model of the
    owner's: a job reads those, too. None for what is looked up as anything else is.
    """
    if not call.caller.job_id:
        return None
    model = LoggedModel.objects.select_related("job__user", "job__project").filter(key=key).first() if logged else None
    job = model and model.job if logged else lookup.run_of_owner(call, key)
    if job is None or job.user_id != call.caller.user_id:
        return None
    return (model or job) if lookup.is_registered(job, model, inner) else None


def of_run(job: Job, inner: str) -> Place:
    """Return the place of an artifact of a run. Raises Refused."""
    return Place(job, files.checked(f"{FOLDER}/{inner}" if inner else FOLDER), inner)


def read_of_run(job: Job, inner: str) -> Place:
    """Return the place that is read as an artifact of a run: what a client has logged, else what the job's script has
    written to its output. Raises Refused.
    """
    place = of_run(job, inner)
    if is_output(inner) and not files.exists(job, place.path):
        return Place(job, files.checked(inner), inner)
    return place


def is_of_run(place: Place) -> bool:
    """Return whether it is a place of a run's artifacts rather than one of a logged model or of the output alone."""
    return place.path == (f"{FOLDER}/{place.inner}" if place.inner else FOLDER) and (
        not place.inner or is_output(place.inner)
    )


def is_output(path: str) -> bool:
    """Return whether a path of a run's output is an artifact by itself: not those that clients have logged, which have
    a folder of their own, nor the files of logged models.
    """
    return path.partition("/")[0] not in ("", FOLDER) and not LOGGED.match(path)


def of_model(model: LoggedModel, inner: str) -> Place:
    """Return the place of a file of a logged model. Raises Refused."""
    top = f"{MODELS}/{model.key}"
    return Place(model.job, files.checked(f"{top}/{inner}" if inner else top), inner)


def decoded(raw: str) -> str:
    """Return a raw path (Latin-1 characters, as in WSGI) decoded once, part by part, so that no encoding adds a part.
    Raises WrongField.
    """
    return "/".join(_part(part) for part in raw.split("/"))


def _part(part: str) -> str:
    if BROKEN_ESCAPE.search(part) or "#" in part:
        raise WrongField("Invalid artifact path: must be percent-encoded")
    try:
        text = unquote_to_bytes(part.encode("latin-1")).decode()
    except UnicodeError:
        raise WrongField("Invalid artifact path: must be UTF-8") from None
    if "/" in text:
        raise WrongField("Invalid artifact path: must not have an encoded '/'")
    return text


def nothing(text: str) -> MlflowError:
    """Return the refusal of an artifact that does not exist."""
    return MlflowError("RESOURCE_DOES_NOT_EXIST", f"No such artifact: '{text[:500]}'")
