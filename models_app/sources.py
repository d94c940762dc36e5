"""The files of a user that could become a model, as suggestions for the form, and those of a model for an export. Lists
folders only, never opens a file.

Whether a suggestion loads is decided by the load check (see launching), which selects files by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import PurePosixPath

from datasets.exports.sources import Source
from jobs.models import Job
from jobs.models import State as JobState
from kernel import storage
from kernel.copying import PLATFORM_FOLDERS
from kernel.errors import Refused

from .models import Model, ModelVersion, State

SUFFIXES = (".pt", ".pt2", ".onnx", ".skops", ".joblib", ".pkl", ".gguf")  # of the formats that loading.py opens
PREDICTOR = "predictor.py"
CONFIG, WEIGHTS = "config.json", ".safetensors"  # of a language model, together in a folder
PART = re.compile(r".+-(\d{5})-of-\d{5}\.gguf")  # of a language model in several files, in one folder
FILES_LOOKED_AT = 2000
JOBS_LOOKED_AT = 20
MAX = 50


def of_files(paths: Iterable[str], base: str) -> list[str]:
    """Return the sources below `base` (`jobs/{job}` or `home`), the most likely first.

    The source of a predictor.py, or of a language model, is its whole folder; `home` itself is no source.
    """
    ranked, paths = [], list(paths)
    weighty = {PurePosixPath(path).parent for path in paths if path.endswith(WEIGHTS)}
    for path in paths:
        place = PurePosixPath(path)
        if place.name == CONFIG and place.parent in weighty and (base != "home" or place.parent.name):
            folder = f"/{place.parent}" if place.parent.name else ""
            ranked.append((0, len(place.parts), path, f"{base}{folder}"))
        if place.name == PREDICTOR:
            folder = "" if str(place.parent) == "." else f"/{place.parent}"
            src = f"{base}{folder}" if folder or base != "home" else f"home/{path}"
            ranked.append((0, len(place.parts), path, src))
        elif part := PART.fullmatch(place.name):
            if int(part[1]) == 1 and (base != "home" or place.parent.name):
                folder = f"/{place.parent}" if place.parent.name else ""
                ranked.append((1, len(place.parts), path, f"{base}{folder}"))
        elif place.suffix in SUFFIXES:
            rank = 1 if place.stem == "model" else 2 if "best" in place.stem else 3
            ranked.append((rank, len(place.parts), path, f"{base}/{path}"))
    return [src for *_order, src in sorted(ranked)]


def of_job(user: str, job: str) -> list[str]:
    """Return the sources in a job's output."""
    some = islice(storage.files(storage.job_dir(user, job)), FILES_LOOKED_AT)
    return of_files((path for path, _ in some if path.split("/")[0] not in PLATFORM_FOLDERS), f"jobs/{job}")


def of_home(user: str) -> list[str]:
    """Return the sources among the uploaded files."""
    return of_files((path for path, _ in islice(storage.files(storage.home_dir(user)), FILES_LOOKED_AT)), "home")


def of_user(user) -> list[str]:
    """Return the sources in the newest finished jobs, then those in `.home`."""
    jobs = Job.kept.filter(user=user, state=JobState.FINISHED).order_by("-pk").values_list("name", flat=True)
    of_jobs = [src for name in jobs[:JOBS_LOOKED_AT] for src in of_job(user.username, name)]
    return [*of_jobs, *of_home(user.username)][:MAX]


def to_export(user, rest: str) -> Source:
    """Return what an export sends of `{model}`, or of `{registered model}@{version}`. Raises Refused."""
    name, at, number = rest.rpartition("@")
    if at and number.isascii() and number.isdigit() and len(number) < 10:
        versions = ModelVersion.objects.filter(registered__user=user, registered__name=name, number=int(number))
        row = Model.kept.filter(user=user, pk__in=versions.values("model")).first()
    else:
        row = Model.kept.filter(user=user, name=rest).first()
    if row is None:
        raise Refused("you have no model named %(name)s with files here", field="src", name=storage.shown(rest))
    if row.state != State.READY and not (row.state == State.ERROR and row.copied):
        raise Refused("the model %(name)s is not ready", field="src", name=rest)
    if row.external:
        raise Refused(
            "the files of the model %(name)s are in a bucket already; create a model of models/%(name)s to store them",
            field="src", name=row.name,
        )  # fmt: skip
    return Source(f"models/{rest}", row.pk, storage.model_dir(user.username, row.name))
