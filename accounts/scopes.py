"""What a named token may do, by its scope. What is not allowed here is refused: a new door takes full tokens only.

A scope only takes away: the caller must be allowed by the rules of the door itself, too. No named token, not even a
full one, reads or makes tokens or ends the account, so that it cannot outlive its end date.

    full         everything else
    read         GET of REST, reads of MLflow's protocol, downloads, live metrics
    submit       read; uploads into own datasets, and what submits, reports or cancels own runs; no deletion
    dataset      the files of one own dataset, and its heartbeat
    application  calls to one own application (apps/gateway_access.py)
"""

from __future__ import annotations

import re

from kernel.errors import Refused

from .models import Scope
from .tokens import Holder

READS = frozenset({"GET", "HEAD", "OPTIONS"})
ACCOUNT = frozenset({"token", "tokens", "service_accounts"})
OF_RUNS = frozenset({"datasets", "jobs", "job_metrics", "runs", "projects", "sweeps", "schedules", "pipelines"})
OF_DATASET = re.compile(r"datasets/([^/:]+)(:heartbeat)?")
MLFLOW = re.compile(r"/mlflow/(?:ajax-)?api/\d\.\d/(?:mlflow|mlflow-artifacts)/([a-z-]+)(?:/(.*))?")
TRACKED = frozenset({"runs", "experiments", "metrics", "logged-models", "artifacts", "mpu"})
UPLOADS = "/internal/mlflow/"  # nginx's questions about an upload of an artifact (jobs/mlflow/uploads.py)


def require_call(holder: Holder, method: str, path: str) -> None:
    """Check a call of REST at `/api/v1{path}`. Raises Refused."""
    if holder.named and not _may_call(holder, method, path.removeprefix("/api/v1/")):
        raise refused(holder)


def require_mlflow(holder: Holder, method: str, path: str) -> None:
    """Check a call of MLflow's protocol. Raises Refused."""
    if holder.scope != Scope.FULL and not _may_track(holder, method, path):
        raise refused(holder)


def may_files(holder: Holder, user: str, dataset: str, *, write: bool) -> bool:
    """Return whether the files of a dataset, or of `.home`, may be read, or changed with `write`; "" for the folder of
    all datasets.
    """
    own = user == holder.username
    match holder.scope:
        case Scope.FULL:
            return True
        case Scope.READ:
            return not write
        case Scope.SUBMIT:
            return own or not write
        case Scope.DATASET:
            return own and dataset == holder.target
    return False


def refused(holder: Holder) -> Refused:
    """Return the error that names what the token is for."""
    scope = Scope(holder.scope)
    if holder.target:
        return Refused(
            "this token is only for: %(scope)s, %(target)s", field="token", scope=scope.label, target=holder.target
        )
    return Refused("this token is only for: %(scope)s", field="token", scope=scope.label)


def _may_call(holder: Holder, method: str, path: str) -> bool:
    users, _, rest = path.partition("/")
    user, _, rest = rest.partition("/")
    section = re.split("[/:]", rest, maxsplit=1)[0]
    if users == "users" and (section in ACCOUNT or (user and not section and method not in READS)):
        return False  # the account itself
    own = users == "users" and user == holder.username
    match holder.scope:
        case Scope.FULL:
            return True
        case Scope.READ:
            return method in READS
        case Scope.SUBMIT:
            return method in READS or (own and section in OF_RUNS and method != "DELETE")
        case Scope.DATASET:
            found = OF_DATASET.fullmatch(rest)
            return own and found is not None and found[1] == holder.target and method != "DELETE"
    return False


def _may_track(holder: Holder, method: str, path: str) -> bool:
    if holder.scope not in (Scope.READ, Scope.SUBMIT):
        return False
    if path.startswith(UPLOADS):
        return holder.scope == Scope.SUBMIT
    if method in READS:
        return True
    found = MLFLOW.match(path)
    if found is None:
        return False
    section, verb = found[1], found[2] or ""
    if verb.startswith(("search", "get")):
        return True
    return holder.scope == Scope.SUBMIT and section in TRACKED and method != "DELETE" and "delete" not in verb
