"""The verbs of exports, each with the row that it locks, and their effects: test_row_locks.py and verb_effects.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accounts.models import User
from datasets.exports import lifecycle
from datasets.models import Export

from .stepping_verbs import Effect

LOCKLESS = {"create_export", "add"}


def of_exports(user: Callable[[], User]) -> Iterator[tuple[str, Export, Callable[[], object]]]:
    """Yield each verb with an export that it acts on, and a call of it."""

    def complete(row: Export):
        return lifecycle.complete(row.pk, size=1, files=1, sent=1, reason="x")

    for verb, state, call in [
        ("begin", "queued", lambda row: lifecycle.begin(row.pk)),
        ("begin: once running", "running", lambda row: lifecycle.begin(row.pk)),
        ("begin: once cancelled", "error", lambda row: lifecycle.begin(row.pk)),
        ("note_wait", "queued", lambda row: lifecycle.note_wait(row.pk, "x")),
        ("complete", "running", complete),
        ("complete: once cancelled", "error", complete),
        ("fail", "running", lambda row: lifecycle.fail(row.pk, "x", by="test")),
        ("fail: once finished", "finished", lambda row: lifecycle.fail(row.pk, "x", by="test")),
        ("cancel", "queued", lambda row: lifecycle.cancel(user=row.user, number=row.pk, by="test")),
        ("fail_all_of", "running", lambda row: lifecycle.fail_all_of(row.user, by="test")),
    ]:
        row = Export.objects.create(user=user(), src="jobs/fit", target="s3/photos", object_id=1, state=state)
        yield verb, row, lambda call=call, row=row: call(row)


ENDED = "outcome, reason, ended"
EFFECTS = {
    "begin": Effect("running", groups="pages", fields="touched", history="start by export"),
    "begin: once running": Effect("running"),
    "begin: once cancelled": Effect("error"),
    "note_wait": Effect("queued", groups="pages", fields="reason"),
    "complete": Effect(
        "finished",
        groups="pages",
        fields="outcome, progress, size, files, sent, reason, ended",
        history="complete by export: x",
    ),
    "complete: once cancelled": Effect("error"),
    "fail": Effect("error", groups="pages", fields=ENDED, history="fail by test: x"),
    "fail: once finished": Effect("finished"),
    "cancel": Effect("error", groups="pages", fields=ENDED, history="fail by test: cancelled"),
    "fail_all_of": Effect(
        "error", groups="pages", fields=ENDED, history="fail by test: cancelled: the account was deactivated"
    ),
}
