"""What a job's page says of its packages."""

from __future__ import annotations

import runners
from jobs.models import Job, State
from kernel import masking

from .store import Environment

TAIL = 12  # lines of the installer's output


def packages_of(job: Job) -> dict | None:
    """Return the packages of a job: what was asked for and installed, and the installer's last lines while it works."""
    if not job.needs_packages:
        return None
    packages = {
        "wanted": masking.without_credentials(job.requirements),
        "environment": job.environment,
        "installed": "",
        "lines": "",
        "installing": False,
    }
    if job.packages:
        environment = Environment(job.packages_owner, job.packages)
        packages["installed"] = "\n".join(environment.installed()) if environment.is_ready else ""
        if job.state == State.CREATING and not environment.is_ready:
            packages |= {"installing": True, "lines": runners.tail(environment.log, TAIL)}
    return packages
