"""The datasets that a user's jobs may read: their own, by name, and others' as `owner/name`.

Another user's dataset has to be shared with the right to clone.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from accounts.models import Share, User
from accounts.sharing import access, grants
from kernel import storage

from .models import Dataset, State

MOST = 200


def owner_and_name(user: User, reference: str) -> tuple[str, str]:
    """Return the username and the name of the dataset that this user's job names as `name` or `owner/name`."""
    owner, _slash, name = reference.rpartition("/")
    return owner or user.username, name


def spellings(dataset: Dataset) -> tuple[list[str], list[str]]:
    """Return how jobs of the owner may name the dataset, and how those of others do."""
    own = [dataset.name]
    shared = [f"{dataset.user.username}/{name}" for name in own]
    return own + shared, shared


def missing(user: User, references: Iterable[str]) -> list[str]:
    """Return the datasets that a job of the user cannot read now."""
    references = list(references)
    own = {name for name in references if "/" not in name}
    rows = Dataset.kept.filter(user=user, name__in=own, state=State.READY)
    there = set(rows.values_list("name", flat=True)) if own else set()
    return [each for each in references if each not in there and ("/" not in each or not _shared(user, each))]


def without_files(user: User, references: Iterable[str]) -> str:
    """Return a dataset whose folder is missing on the disk, "" for none. An empty one's is made if need be."""
    for reference in references:
        owner, name = owner_and_name(user, reference)
        folder = storage.dataset_dir(owner, name)
        if folder.is_dir():
            continue
        if Dataset.objects.filter(user__username=owner, name=name, stored__gt=0).exists():
            return reference
        folder.mkdir(parents=True, exist_ok=True)
    return ""


def hold(user: User, references: Iterable[str]) -> None:
    """Lock the datasets that a job is about to use, in the order of their keys, until the caller's transaction ends:
    who deletes one meanwhile waits, and then sees the job.
    """
    wanted = Q()
    for reference in references:
        owner, name = owner_and_name(user, reference)
        wanted |= Q(user__username=owner, name=name)
    if wanted:
        keys = list(Dataset.objects.filter(wanted).values_list("pk", flat=True))
        list(Dataset.objects.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True))


def _shared(user: User, reference: str) -> bool:
    owner, name = owner_and_name(user, reference)
    rows = Dataset.kept.filter(state=State.READY).select_related("user")
    return access.look_up(access.Visitor(user), rows, owner, name, access.CLONE) is not None


def offered(user: User) -> list[dict]:
    """Return the names and sizes of the datasets to choose from: the user's own first."""
    own = Dataset.kept.filter(user=user, state=State.READY).order_by("name")
    rows = list(own.values("name", "size")[:MOST])
    shares = grants.made_for(user).filter(kind="dataset", right=Share.Right.CLONE)[:MOST]
    ready = Dataset.kept.filter(pk__in=[one.object_id for one in shares], state=State.READY)
    sizes = dict(ready.values_list("pk", "size"))
    shared = {f"{one.owner.username}/{one.name}": sizes[one.object_id] for one in shares if one.object_id in sizes}
    return rows + [{"name": name, "size": size} for name, size in sorted(shared.items())]
