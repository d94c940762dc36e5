"""What of a user's files could be made a model: proposals for the pages' forms. Reads folders only, never a file.

A proposal is only that: whether it loads is found out by the check (see launching), which chooses by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import PurePosixPath

from jobs.models import Job
from jobs.models import State as JobState
from kernel import storage

from .copying import PLATFORM_FOLDERS

SUFFIXES = (".pt", ".pt2", ".onnx", ".skops", ".joblib", ".pkl")  # of the formats that loading.py opens
PREDICTOR = "predictor.py"
FILES_LOOKED_AT = 2000
JOBS_LOOKED_AT = 20
MOST = 50


def of_files(paths: Iterable[str], base: str) -> list[str]:
    """The sources below `base` (`jobs/{job}` or `home`), the likeliest first.

    A predictor.py stands for its whole folder, which holds what it reads; `home` itself is no source.
    """
    found = []
    for path in paths:
        place = PurePosixPath(path)
        if place.name == PREDICTOR:
            inside = "" if str(place.parent) == "." else f"/{place.parent}"
            src = f"{base}{inside}" if inside or base != "home" else f"home/{path}"
            found.append((0, len(place.parts), path, src))
        elif place.suffix in SUFFIXES:
            rank = 1 if place.stem == "model" else 2 if "best" in place.stem else 3
            found.append((rank, len(place.parts), path, f"{base}/{path}"))
    return [src for *_order, src in sorted(found)]


def of_job(user: str, job: str) -> list[str]:
    """The sources in a job's output."""
    some = islice(storage.files(storage.job_dir(user, job)), FILES_LOOKED_AT)
    return of_files((path for path, _ in some if path.split("/")[0] not in PLATFORM_FOLDERS), f"jobs/{job}")


def of_home(user: str) -> list[str]:
    """The sources among what was uploaded."""
    return of_files((path for path, _ in islice(storage.files(storage.home_dir(user)), FILES_LOOKED_AT)), "home")


def of_user(user) -> list[str]:
    """The sources in the newest finished jobs, then those in `.home`."""
    jobs = Job.objects.filter(user=user, state=JobState.FINISHED).order_by("-pk").values_list("name", flat=True)
    found = [src for name in jobs[:JOBS_LOOKED_AT] for src in of_job(user.username, name)]
    return [*found, *of_home(user.username)][:MOST]
