"""Writes evaluation datasets: the only place where they and their records are made, changed and deleted.

Each verb is one transaction with the dataset's row locked, so of two merges at the same time the second one sees what
the first has stored, and a merge that a deletion has overtaken is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from jobs.models import EvaluationDataset, EvaluationRecord, Project
from jobs.models.evaluation import new_record_key
from kernel import after_commit, sanitize
from kernel.errors import Refused
from kernel.locking import Missing, lock_row

from . import records

MAX_DATASETS = 10_000  # of one user
MAX_KEPT = 100_000  # records of one dataset
MAX_PROJECTS = 100  # of one dataset
MAX_TAGS, MAX_TAG, MAX_KEY = 100, 5000, 255
ROOM = 32 << 20  # characters of the records that are read or written by one statement
ROWS = 500  # of one statement
MANY = 5000  # records that one statement deletes
CHANGED = ("outputs", "expectations", "tags", "size", "changed_by", "changed")


def create(user, name: str, projects: Iterable[Project], tags: dict) -> EvaluationDataset:
    """Create a dataset; several may have one name, as in MLflow. Raises Refused."""
    if not 1 <= len(name) <= records.MAX_NAME or sanitize.UNSTORABLE.search(name) or not name.strip():
        raise Refused("must have 1 to %(limit)s characters", field="name", limit=records.MAX_NAME)
    if EvaluationDataset.objects.filter(user=user).count() >= MAX_DATASETS:
        raise Refused("a user has at most %(limit)s evaluation datasets", limit=MAX_DATASETS)
    kept = merged_tags({}, tags)
    at, by = _after(None), records.said_by(kept) or user.username
    row = EvaluationDataset(
        user=user, name=name, tags=kept, created_by=by, changed_by=by, created=at, changed=at, digest=_digest(name, at)
    )
    with transaction.atomic():
        row.save(force_insert=True)
        row.projects.set(projects)
    _notify(row)
    return row


@contextmanager
def changing(row: EvaluationDataset) -> Iterator[EvaluationDataset]:
    """Lock a dataset, and store at the end what is changed of it, with a new digest. Raises Missing."""
    with transaction.atomic():
        locked = lock_row(EvaluationDataset, pk=row.pk)
        if locked is None:
            raise Missing("dataset")
        locked.changed = _after(locked.changed)
        yield locked
        locked.digest = _digest(locked.name, locked.changed)
        locked.save()
    _notify(row)


def merge(row: EvaluationDataset, given: list[records.Given]) -> tuple[int, int]:
    """Add records; those whose inputs are there already are merged with them. Return how many are new, and how many
    are merged. Raises Missing, Refused, WrongField.
    """
    with changing(row) as dataset:
        keys = list(dict.fromkeys(one.digest for one in given))
        found = EvaluationRecord.objects.filter(dataset=dataset)
        there = {key: size for part in _parts(keys, ROWS)
                 for key, size in found.filter(input_hash__in=part).values_list("input_hash", "size")}  # fmt: skip
        fresh = len(keys) - len(there)
        if dataset.records_kept + fresh > MAX_KEPT:
            raise Refused("an evaluation dataset has at most %(limit)s records", limit=MAX_KEPT)
        by_digest: dict[str, list[records.Given]] = {}
        for one in given:
            by_digest.setdefault(one.digest, []).append(one)
        for group in records.groups([(key, there.get(key, 0)) for key in keys], ROOM, ROWS):
            _store(dataset, group, by_digest)
        dataset.schema = records.schema_of(dataset.schema, given)
        dataset.records_kept += fresh
        said = [by for one in given if (by := records.said_by(one.tags))]
        dataset.changed_by = said[-1] if said else dataset.changed_by
    return fresh, len(given) - fresh


def _store(dataset: EvaluationDataset, group: list[str], given: dict[str, list[records.Given]]) -> None:
    """Write the records of some hashes by one statement."""
    rows = {row.input_hash: row for row in EvaluationRecord.objects.filter(dataset=dataset, input_hash__in=group)}
    for key in group:
        for one in given[key]:
            if key in rows:
                rows[key] = records.merge(rows[key], one, dataset.changed)
            else:
                rows[key] = records.new(one, dataset.changed)
    for row in rows.values():
        row.pk, row.key, row.dataset, row.user_id = None, new_record_key(), dataset, dataset.user_id
    EvaluationRecord.objects.bulk_create(
        [rows[key] for key in group], update_conflicts=True, unique_fields=["dataset", "input_hash"],
        update_fields=CHANGED,
    )  # fmt: skip


def _parts(keys: list[str], most: int) -> Iterator[list[str]]:
    for begin in range(0, len(keys), most):
        yield keys[begin : begin + most]


def delete_records(row: EvaluationDataset, keys: list[str]) -> int:
    """Delete records by their ids; return how many there were. Raises Missing."""
    with changing(row) as dataset:
        gone = 0
        for part in _parts(keys, ROWS):
            gone += EvaluationRecord.objects.filter(dataset=dataset, key__in=part).delete()[0]
        dataset.records_kept -= gone
    return gone


def set_tags(row: EvaluationDataset, tags: dict) -> None:
    """Add tags; a value of None removes one. Raises Missing, Refused."""
    with changing(row) as dataset:
        dataset.tags = merged_tags(dataset.tags, tags)
        dataset.changed_by = records.said_by(tags) or dataset.changed_by


def merged_tags(known: dict, tags: dict) -> dict:
    """Return tags with others added, as texts. Raises Refused."""
    made = {**known, **{sanitize.text(key): value if value is None else sanitize.text(str(value))
                        for key, value in tags.items()}}  # fmt: skip
    made = {key: value for key, value in made.items() if value is not None}
    if len(made) > MAX_TAGS:
        raise Refused("an evaluation dataset has at most %(limit)s tags", field="tags", limit=MAX_TAGS)
    if any(len(key) > MAX_KEY or len(value) > MAX_TAG for key, value in made.items()):
        raise Refused(
            "the name of a tag has at most %(name)s characters, its value %(value)s", field="tags", name=MAX_KEY,
            value=MAX_TAG,
        )  # fmt: skip
    return made


def associate(row: EvaluationDataset, projects: list[Project]) -> None:
    """Add a dataset to projects. Raises Missing, Refused."""
    with changing(row) as dataset:
        dataset.projects.add(*projects)
        if dataset.projects.count() > MAX_PROJECTS:
            raise Refused("an evaluation dataset is in at most %(limit)s projects", limit=MAX_PROJECTS)


def dissociate(row: EvaluationDataset, keys: list[int]) -> None:
    """Take a dataset out of projects; those that it is not in are ignored. Raises Missing."""
    with changing(row) as dataset:
        dataset.projects.remove(*keys)


def delete(row: EvaluationDataset) -> None:
    """Delete a dataset with its records, some in each statement, which has a time limit; one that is gone already is no
    error.
    """
    with transaction.atomic():
        if lock_row(EvaluationDataset, pk=row.pk) is None:
            return
        rows = EvaluationRecord.objects.filter(dataset=row.pk).order_by("pk").values_list("pk", "size")
        for group in records.groups(list(rows), 8 * ROOM, MANY):
            EvaluationRecord.objects.filter(pk__in=group).delete()
        EvaluationDataset.objects.filter(pk=row.pk).delete()
    _notify(row)


def _after(last: datetime | None) -> datetime:
    """Return the time in milliseconds, later than the last change: no two changes have one digest."""
    now = timezone.now()
    now = now.replace(microsecond=now.microsecond // 1000 * 1000)
    return now if last is None else max(now, last + timedelta(milliseconds=1))


def _digest(name: str, at: datetime) -> str:
    """Return the digest that MLflow's servers make of the name and the time of the last change."""
    return hashlib.sha256(f"{name}:{records.milliseconds(at)}".encode()).hexdigest()[:8]


def _notify(row: EvaluationDataset) -> None:
    after_commit.changed(row.user.username, "project", "")
