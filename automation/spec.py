"""What sweeps, pipelines and schedules know of the jobs that they submit later: the body of POST …/jobs without a name.

A spec is checked when it is stored, as far as it can be: the fields, the script, the datasets, the tenant's capacity.
What changes until the job is submitted is refused then, by the same checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from rest_framework.exceptions import ValidationError

from accounts.sharing.access import Visitor
from accounts.tenancy import members
from jobs import checks
from jobs.code import cloning, snapshot_code
from jobs.models import Snapshot
from jobs.packages.named import references
from jobs.serializers import JobIn
from kernel.errors import Refused, flatten
from kernel.messages import under

TRIES = 30  # of names


class SpecIn(JobIn):
    """A job without a name."""

    name = None


def need_possible(user, spec: dict, *, visitor: Visitor | None = None, kept: bool = False) -> None:
    """Raise Refused or Missing for a job that could not be submitted now, except for its name. `kept`: its code is a
    snapshot.
    """
    if not kept:
        checks.code_of(user, spec["entry"], spec.get("code_from"), spec.get("script"), visitor)
    needs = {kind: spec[kind] for kind in ("gpu", "cpu", "ram", "gpu_type") if kind in spec}
    tenant = members.chosen(user, spec.get("tenant"))
    checks.need_possible(tenant, user.username, spec.get("workers", 1), spec.get("network", ""),
                         bool(spec.get("preemptible")), spec.get("image", ""), **needs)  # fmt: skip
    checks.need_data(user, spec.get("datasets", ()), spec.get("output_uri", ""))
    if environment := spec.get("environment"):
        checks.need_environment(tenant, environment, spec.get("requirements", ""))


@contextmanager
def kept_code(user, spec: dict, *, visitor: Visitor | None = None) -> Iterator[Callable[[], Snapshot]]:
    """Keep the code of a spec as it is now. The block calls what it gets in its transaction, after it has locked the
    user's row (`accounts.lifecycle.hold_active`), and refers to the snapshot that it returns. Raises as create_job.
    """
    reference = spec.get("code_from")
    earlier = cloning.code_of(visitor or Visitor(user), reference) if reference else None
    with snapshot_code.taken(user, spec["entry"], earlier, spec.get("script")) as code:
        yield lambda: snapshot_code.record(user, code)


def without_code(spec: dict) -> dict:
    """Return the spec for `create_job(snapshot=…)`: without the fields that its snapshot replaces."""
    return {name: value for name, value in spec.items() if name not in ("code_from", "script")}


def settled(user, spec: dict) -> dict:
    """Return the spec with the version that the name of its environment means now, so that what is submitted with it
    later has the same. Raises as `need_possible`.
    """
    if not spec.get("environment"):
        return spec
    version = references.resolved(members.chosen(user, spec.get("tenant")), spec["environment"])
    return {**spec, "environment": version.reference}


def at(place: str, check: Callable[[], object]) -> object:
    """Return what `check` returns; what it refuses is refused with the place of it in front. Raises Refused."""
    try:
        return check()
    except Refused as problem:
        raise Refused(problem.problem, field=f"{place}.{problem.field}" if problem.field else place)
    except ValidationError as problem:
        raise Refused(under(place, flatten(problem.detail)))


# --- names of what is submitted by itself: letters behind the name of the sweep or schedule ---------------------------
def with_free_name(stem: str, number: int, make: Callable[[str], object]) -> object:
    """Return what `make` returns for the first name that is free. Raises Refused: whatever else `make` refuses."""
    for name in islice(names(stem, number), TRIES):
        try:
            return make(name)
        except Refused as problem:
            if problem.field != "name":
                raise
    raise Refused("no free name was found", field="name")


def names(stem: str, number: int) -> Iterator[str]:
    """Yield names, which have letters only: aaa for 0, aab for 1, and others if that is taken."""
    for again in range(TRIES):
        letters, left = "", number
        while left or len(letters) < 3:
            left, digit = divmod(left, 26)
            letters = chr(ord("a") + digit) + letters
        yield f"{stem[:40]}{letters}{'x' * again}"[:50]
