"""The datasets that a user's jobs may read: their own, by name, and others' as `owner/name`; `@` names a version.

Another user's dataset has to be shared with the right to clone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from django.db.models import Q

from accounts.models import Share, User
from accounts.sharing import access, grants
from kernel import storage

from . import versions
from .models import Dataset, State, Version

MAX = 200
CHECKSUM = 12  # a version of so many characters is the beginning of a checksum


class Reference(NamedTuple):
    """What a job names: a user's dataset, and a version by its number or the beginning of its checksum, "" for the
    one that is current when it starts.
    """

    owner: str
    name: str
    version: str = ""


def parse(user: User, reference: str) -> Reference:
    """Return what this user's job names as `name` or `owner/name`, with `@version` or without."""
    place, _at, version = reference.partition("@")
    owner, _slash, name = place.rpartition("/")
    return Reference(owner or user.username, name, version)


def spellings(dataset: Dataset, version: int | None = None) -> tuple[list[str], list[str]]:
    """Return how jobs of the owner may name the dataset, and how those of others do: all, or a version. A job that
    names no version may read an earlier one, which was current when it started.
    """
    return all_spellings([(dataset, version)])[dataset, version]


def all_spellings(
    targets: Sequence[tuple[Dataset, int | None]],
) -> dict[tuple[Dataset, int | None], tuple[list[str], list[str]]]:
    """Return the spellings of several datasets, or versions."""
    by_target = {}
    numbers = defaultdict(list)
    whole = [dataset for dataset, version in targets if version is None]
    for pk, number in Version.objects.filter(dataset__in=whole).values_list("dataset", "number") if whole else ():
        numbers[pk].append(number)
    for dataset, version in targets:
        known = numbers[dataset.pk] if version is None else [version]
        own = [dataset.name, *(f"{dataset.name}@{number}" for number in known)]
        shared = [f"{dataset.user.username}/{name}" for name in own]
        by_target[dataset, version] = own + shared, shared
    return by_target


def missing(user: User, references: Iterable[str]) -> list[str]:
    """Return the datasets, and the versions, that a job of the user cannot read now."""
    references = list(references)
    named = {each: parse(user, each) for each in references}
    own = {reference.name for each, reference in named.items() if "/" not in each}
    rows = Dataset.kept.filter(user=user, name__in=own, state=State.READY) if own else []
    there = {row.name: row for row in rows}

    def is_readable(each: str) -> bool:
        row = _shared(user, each) if "/" in each else there.get(named[each].name)
        version = named[each].version
        return row is not None and (not version or versions.find(row, version) is not None)

    return [each for each in references if not is_readable(each)]


def numbered(user: User, references: Iterable[str]) -> list[str]:
    """Return the references, which are not missing, with checksums replaced by the numbers of the versions."""
    folders = []
    for each in references:
        owner, name, version = parse(user, each)
        if len(version) >= CHECKSUM:
            row = Dataset.objects.get(user__username=owner, name=name)
            each = f"{each.partition('@')[0]}@{versions.find(row, version)}"
        folders.append(each)
    return list(dict.fromkeys(folders))


def without_files(user: User, references: Iterable[str]) -> str:
    """Return a dataset whose folder is missing on the disk, "" for none. An empty one's is made if need be."""
    for reference in references:
        row = _row(user, reference)
        if row is None:
            return reference
        if row.external:  # they are fetched: datasets.buckets.caching
            continue
        if row.incoming_id is not None:
            versions.finish(row.pk)
            row.refresh_from_db()
        folder = storage.root() / "datasets" / Path(*versions.steps_of(row, _number(user, row, reference)))
        if folder.is_dir():
            continue
        if row.stored > 0:
            return reference
        folder.mkdir(parents=True, exist_ok=True)
    return ""


def folder(user: User, reference: str, version: int | None = None) -> tuple[str, Path]:
    """Return the name of a job's dataset, and the folder with the files of a version; by default of the one that it
    names, or of the current one.
    """
    row = _row(user, reference)
    if row is None:  # deleted since the job was ordered
        owner, name, _version = parse(user, reference)
        return name, storage.dataset_dir(owner, name)
    return row.name, versions.folder_for_runs(row, version or _number(user, row, reference))


def external(user: User, references: Iterable[str]) -> str:
    """Return a dataset whose files are in a bucket, which only jobs fetch; "" where there is none."""
    rows = ((reference, _row(user, reference)) for reference in references)
    return next((reference for reference, row in rows if row is not None and row.external), "")


def stored(user: User, references: Iterable[str]) -> list[str]:
    """Return those whose files are stored here: all but those whose files are in a bucket."""
    return [reference for reference in references if not external(user, [reference])]


def digest_of(user: User, reference: str, version: int) -> dict | None:
    """Return {files, bytes, sha256} of the manifest of a version; None for a dataset that is not external."""
    row = _row(user, reference)
    found = row.versions.filter(number=version).first() if row is not None and row.external else None
    return {"files": found.files, "bytes": found.size, "sha256": found.sha256} if found is not None else None


def steps_of(user: User, reference: str, version: int) -> tuple[str, ...]:
    """Return the folders of a version of a job's dataset below `{root}/datasets`."""
    row = _row(user, reference)
    return versions.steps_of(row, version) if row is not None else parse(user, reference)[:2]


def size_of(user: User, reference: str, version: int | None) -> int | None:
    """Return the bytes of a job's dataset: of a version, by default of the one that it names, or of the current one."""
    row = _row(user, reference)
    if row is None:
        return None
    number = version or _number(user, row, reference)
    return (
        row.size if number == row.version else row.versions.filter(number=number).values_list("size", flat=True).first()
    )


def read_now(user: User, reference: str) -> tuple[Dataset, int] | None:
    """Return the dataset and the number of its version that a job which starts now reads."""
    row = _row(user, reference)
    return (row, _number(user, row, reference)) if row is not None else None


def _row(user: User, reference: str) -> Dataset | None:
    owner, name, _version = parse(user, reference)
    return Dataset.objects.select_related("user").filter(user__username=owner, name=name).first()


def _number(user: User, row: Dataset, reference: str) -> int:
    version = parse(user, reference).version
    return (versions.find(row, version) or row.version) if version else row.version


def hold(user: User, references: Iterable[str]) -> None:
    """Lock the datasets that a job is about to use, in the order of their keys, until the caller's transaction ends:
    who deletes one meanwhile waits, and then sees the job.
    """
    wanted = Q()
    for reference in references:
        owner, name, _version = parse(user, reference)
        wanted |= Q(user__username=owner, name=name)
    if wanted:
        keys = list(Dataset.objects.filter(wanted).values_list("pk", flat=True))
        list(Dataset.objects.filter(pk__in=keys).order_by("pk").select_for_update(no_key=True))


def _shared(user: User, reference: str) -> Dataset | None:
    owner, name, _version = parse(user, reference)
    rows = Dataset.kept.filter(state=State.READY).select_related("user")
    return access.look_up(access.Visitor(user), rows, owner, name, access.CLONE)


def offered(user: User, *, only_stored: bool = False) -> list[dict]:
    """Return names, titles and sizes of the datasets to choose from: the user's own first, with earlier versions.

    With `only_stored` those whose files are in a bucket are left out.
    """
    choice = Dataset.kept.filter(state=State.READY, **({"external": False} if only_stored else {}))
    own = list(choice.filter(user=user).order_by("name")[:MAX])
    replaced = Version.objects.filter(dataset__in=[row for row in own if row.version > 1], erased=False)
    earlier: dict[int, list[Version]] = {}
    for version in replaced.order_by("-number")[:MAX]:
        earlier.setdefault(version.dataset_id, []).append(version)
    rows = []
    for row in own:
        rows.append({"name": row.name, "title": row.title, "size": row.size})
        old = (version for version in earlier.get(row.pk, ()) if version.number < row.version)
        rows += [{"name": f"{row.name}@{version.number}", "title": row.title, "size": version.size} for version in old]
    shares = grants.made_for(user).filter(kind="dataset", right=Share.Right.CLONE)[:MAX]
    ready = choice.filter(pk__in=[share.object_id for share in shares])
    described = {pk: {"title": title, "size": size} for pk, title, size in ready.values_list("pk", "title", "size")}
    shared = {
        f"{share.owner.username}/{share.name}": described[share.object_id]
        for share in shares
        if share.object_id in described
    }
    return rows + [{"name": name, **shown} for name, shown in sorted(shared.items())]
