"""The verbs of datasets.lifecycle, called on rows that `dataset` makes, and their effects.

Part of test_row_locks.py and verb_effects.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.utils import timezone

from datasets import lifecycle as datasets
from datasets.buckets.manifests import Listed
from datasets.models import Dataset

from .stepping_verbs import Effect

Case = tuple[str, Dataset, Callable[[], object]]

LOCKLESS = {"create_dataset", "give_away", "copying_of"}


def of_datasets(dataset: Callable[..., Dataset]) -> Iterator[Case]:
    def report(row: Dataset, state: str, progress: int):
        return datasets.heartbeat(user=row.user, name=row.name, state=state, progress=progress, by="test")

    for verb, state, call in [
        ("heartbeat", "creating", lambda row: report(row, "creating", 5)),
        ("heartbeat: error", "creating", lambda row: report(row, "error", 5)),
        ("heartbeat: ready", "creating", lambda row: report(row, "ready", 100)),
        ("fail", "creating", lambda row: datasets.fail(row.pk, "x", by="test")),
        ("fail: once ready", "ready", lambda row: datasets.fail(row.pk, "x", by="test")),
        ("fail_silent", "creating", lambda row: datasets.fail_silent(row.pk, timezone.now(), "x")),
        ("fail_silent: once ready", "ready", lambda row: datasets.fail_silent(row.pk, timezone.now(), "x")),
        ("fail_all_of", "creating", lambda row: datasets.fail_all_of(row.user, by="test")),
        ("end_upload", "creating", lambda row: datasets.end_upload(user=row.user, name=row.name, by="test")),
        ("delete_dataset", "ready", lambda row: datasets.delete_dataset(user=row.user, name=row.name, by="test")),
        ("erase", "deleting", lambda row: datasets.erase(row.pk)),
        ("recount", "creating", lambda row: datasets.recount(row.pk)),
        ("set_notes", "ready", lambda row: datasets.set_notes(user=row.user, name=row.name, notes="x")),
        ("note_wait", "creating", lambda row: datasets.note_wait(row.pk, "x")),
        ("declare_again", "creating", lambda row: datasets.declare_again(row.pk, 0)),
        ("complete_copy", "creating", lambda row: datasets.complete_copy(row.pk)),
        ("complete_listing", "creating", lambda row: datasets.complete_listing(row.pk, Listed("", []))),
    ]:
        row = dataset(state=state)
        yield verb, row, lambda call=call, row=row: call(row)


EFFECTS = {
    "heartbeat": Effect("creating", "tried", groups="dataset.pk, pages, often", fields="progress, touched"),
    "heartbeat: error": Effect(
        "error",
        "confirmed",
        groups="dataset.pk, pages",
        fields="reason",
        history="fail by test: reported by the uploader",
    ),
    "heartbeat: ready": Effect(
        "ready",
        "confirmed",
        tasks="datasets.checksum@files",
        groups="dataset.pk, pages",
        fields="progress",
        history="complete by test",
    ),
    "fail": Effect("error", "confirmed", groups="dataset.pk, pages", fields="reason", history="fail by test: x"),
    "fail: once ready": Effect("ready", "tried"),
    "end_upload": Effect(
        "error", "confirmed", groups="dataset.pk, pages", fields="reason", history="fail by test: cancelled"
    ),
    "fail_silent": Effect(
        "error", "confirmed", groups="dataset.pk, pages", fields="reason", history="fail by reconcile: x"
    ),
    "fail_silent: once ready": Effect("ready", "tried"),
    "fail_all_of": Effect(
        "error",
        "confirmed",
        groups="dataset.pk, pages",
        fields="reason",
        history="fail by test: cancelled: the account was deactivated",
    ),
    "delete_dataset": Effect(
        "deleting", "tried", tasks="datasets.erase@files", groups="dataset.pk, pages", history="erase by test"
    ),
    "erase": Effect("gone", "cancelled", groups="dataset.pk, pages"),
    "recount": Effect("creating", "tried", groups="dataset.pk"),
    "set_notes": Effect("ready", "tried", groups="pages", fields="notes"),
    "note_wait": Effect("creating", "tried", groups="dataset.pk", fields="reason"),
    "declare_again": Effect("creating", "tried"),
    "complete_copy": Effect(
        "ready",
        "confirmed",
        tasks="datasets.checksum@files",
        groups="dataset.pk, pages",
        fields="progress",
        history="complete by copy",
    ),
    "complete_listing": Effect(
        "ready",
        "confirmed",
        groups="dataset.pk, pages",
        fields="progress, refreshed",
        history="complete by copy",
    ),
}
