"""What is recorded of a run besides its code: checksums of its datasets at the start, and its environment.

The run itself writes its environment to a file in its workspace (report/sitecustomize.py). A script may have changed
that file, so it is parsed like any untrusted input. The platform stores it when the run has ended.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from django.db.models import Q

from accounts.models import User
from datasets import sources
from datasets.webdav import tree
from jobs.models import Capture, Job, State
from kernel import sanitize, storage

MAX_BYTES = 256 << 10
MAX_PACKAGES = 3000
MAX_CHARS = 300
MAX_FILES = 20_000  # of a dataset whose listing is read
ONCE = ("python", "implementation", "executable", "kernel", "node", "image", "cpus", "cpu")


def path_of(attempt: int) -> str:
    return f"log/environment-{attempt}.txt"


def environment_of(job: Job) -> dict | None:
    """Return {python, …, gpus, packages} as recorded by the newest attempt; None if it recorded nothing."""
    kept = Capture.objects.filter(job=job).first()
    if kept is not None and kept.environment and (job.has_ended or kept.environment.get("attempt") == job.attempt):
        return kept.environment
    return _read(job)


def keep_environment(job: Job) -> None:
    """Store the environment that the attempt which has just ended recorded."""
    environment = _read(job)
    if environment is not None:
        Capture.objects.update_or_create(job=job, defaults={"environment": environment})


def _read(job: Job) -> dict | None:
    file = storage.open_file(storage.job_dir(job.user.username, job.name), path_of(job.attempt))
    if file is None:
        return None
    with file:
        text = sanitize.text(file.read(MAX_BYTES).decode("utf-8", "replace"))
    return {"attempt": job.attempt, **parsed(text)}


def parsed(text: str) -> dict:
    """Parse the lines of the file into the environment; malformed lines are skipped."""
    facts: dict = {"gpus": [], "packages": {}}
    for line in text.splitlines():
        key, _, value = line[:MAX_CHARS].partition(" ")
        value = value.strip()
        if key in ONCE and value:
            facts.setdefault(key, value)
        elif key == "gpu" and len(facts["gpus"]) < 16:
            facts["gpus"].append(value)
        elif key == "package" and len(facts["packages"]) < MAX_PACKAGES:
            name, _, version = value.partition(" ")
            if name:
                facts["packages"].setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
    facts["packages"] = dict(sorted(facts["packages"].items()))
    return facts


def pin_datasets(job: Job) -> None:
    """Record the versions of the datasets that the job's first attempt reads; the others read the same ones."""
    if not job.datasets or Capture.objects.filter(job=job, datasets__isnull=False).exists():
        return
    datasets = {reference: sources.read_now(job.user, reference) for reference in job.datasets}
    pins = {reference: {"version": now[1]} for reference, now in datasets.items() if now is not None}
    Capture.objects.update_or_create(job=job, defaults={"datasets": pins})


def pinned(job: Job) -> dict[str, int]:
    """Return the versions of the datasets that the job reads, by their references, as far as they are recorded."""
    kept = Capture.objects.filter(job=job).values_list("datasets", flat=True).first() if job.datasets else None
    return {reference: each["version"] for reference, each in (kept or {}).items() if "version" in each}


def places_of(job: Job) -> list[tuple[str, str, int]]:
    """Return the owners, names and versions of the datasets that the job reads, as far as they are recorded."""
    return [(*sources.parse(job.user, reference)[:2], number) for reference, number in pinned(job).items()]


def in_use() -> set[tuple[str, str, int]]:
    """Return the owners, names and versions of the datasets that jobs read, or are about to."""
    live = Q(job__state__in=(State.CREATING, State.RUNNING)) | ~Q(job__run_name="")
    kept = (
        Capture.objects.filter(live, datasets__isnull=False).select_related("job__user").only("datasets", "job__user")
    )
    return {
        (*sources.parse(each.job.user, reference)[:2], pin["version"])
        for each in kept
        for reference, pin in each.datasets.items()
        if "version" in pin
    }


def keep_datasets(job: Job) -> None:
    """Add a checksum of each dataset's listing, once: the files of a version do not change."""
    kept = Capture.objects.filter(job=job, datasets__isnull=False).first()
    if kept is None or all("sha256" in each for each in kept.datasets.values()):
        return
    for reference, version in pinned(job).items():
        kept.datasets[reference] = digest_of(job.user, reference, version)
    kept.save(update_fields=["datasets"])


def digest_of(user: User, reference: str, version: int) -> dict:
    """Return {files, bytes, sha256, version} of a dataset. The hash is over paths, sizes, and the checksums that the
    data service stores with the files, or else their modification times; of an external dataset over its manifest.
    """
    if (known := sources.digest_of(user, reference, version)) is not None:
        return {**known, "partial": False, "version": version}
    digest, files, size = hashlib.sha256(), 0, 0
    steps = sources.steps_of(user, reference, version)
    base = storage.root() / "datasets" / Path(*steps)
    for path, info in storage.files(base):
        if files == MAX_FILES:
            return {"files": files, "bytes": size, "sha256": digest.hexdigest(), "partial": True, "version": version}
        files, size = files + 1, size + info.st_size
        known = tree.known_sha256((*steps, *path.split("/"))) or f"mtime {info.st_mtime_ns}"
        digest.update(f"{path}\0{info.st_size}\0{known}\n".encode())
    return {"files": files, "bytes": size, "sha256": digest.hexdigest(), "partial": False, "version": version}
