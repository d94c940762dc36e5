"""Row locks and the policy for them.

Lock only what you take from or change, once per transaction, as late as possible but before the check. Order: 1. the
user's row, where an object is created or the user is deregistered, 2. the objects' rows (dataset, job, model,
application; several of a kind by their key), then those of the GPU products, 3. the tenant's row, at most once, with
those of its lenders in the order of their keys, then its request rows (tcc). Releasing needs the tenant's lock too,
since the sum is kept in the row. Never call a runner, NATS, Valkey or the file system while holding a lock. A verb on a
list of objects uses one transaction for each.

The state is checked while the lock is held (`TransitionNotAllowed` becomes Refused here, in one place, with the message
that the transition declares by `refused(…)`); the models' ConcurrentTransitionMixin catches a forgotten lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import models, transaction
from django.utils.translation import gettext_noop as _
from django_fsm import TransitionNotAllowed

from .database import first_row
from .errors import Refused
from .messages import word

KINDS = (  # of objects that a refusal names, for the catalogue
    _("job"), _("dataset"), _("model"), _("application"), _("artifact"), _("environment"), _("user"), _("tenant"),
    _("limit"), _("version"), _("service"), _("project"), _("view"), _("diagnosis"), _("registered model"), _("alias"),
    _("comparison"), _("webhook"), _("upload"), _("sweep"), _("trial"), _("schedule"), _("pipeline"),
    _("pipelinerun"), _("run"), _("step"), _("service account"), _("member"),
    _("environmentversion"), _("export"),
)  # fmt: skip
DELETING = "deleting"  # the last state of every object that has one


class Missing(Refused):
    """The object does not exist or is not the caller's: both get the same answer."""

    def __init__(self, kind: str):
        super().__init__("no such %(kind)s", field=kind, kind=word(kind))


class WrongState(Refused):
    """The object's state does not allow the operation."""

    def __init__(self, template: str, /, **params):
        super().__init__(template, field="state", **params)


def get_or_missing(rows: models.QuerySet, number: int | None, kind: str) -> models.Model:
    """Return the row of that number, which is None for what is no number. Raises Missing."""
    row = rows.filter(pk=number).first()
    if row is None:
        raise Missing(kind)
    return row


def lock_row(model: type[models.Model], **key) -> models.Model | None:
    """Return the row, locked until the transaction ends, or None. Rows it refers to are not locked.

    FOR NO KEY UPDATE: a foreign key's check on the row need not wait, so cannot deadlock.
    """
    if _is_plain(model) and not any(value is None or "__" in name for name, value in key.items()):
        return first_row(model, key, lock=" FOR NO KEY UPDATE")
    return model._default_manager.select_for_update(of=("self",), no_key=True).filter(**key).first()


def _is_plain(model: type[models.Model]) -> bool:
    """Return whether its rows are one table's, all of them, by their key."""
    all_of_them = type(model._default_manager).get_queryset is models.Manager.get_queryset
    return all_of_them and not model._meta.parents and not model._meta.ordering


@contextmanager
def locked(model: type[models.Model], **key) -> Iterator[models.Model]:
    """Open a transaction with one locked row. Raises Missing, or WrongState for a transition that is not allowed."""
    with transaction.atomic():
        row = lock_row(model, **key)
        if row is None:
            raise Missing(model._meta.model_name)
        try:
            yield row
        except TransitionNotAllowed as problem:
            raise _wrong_state(row, problem)


def _wrong_state(row: models.Model, problem: TransitionNotAllowed) -> WrongState:
    """Return the refusal that the transition declares, with the state of its object, mostly the row, as a parameter."""
    changed = problem.object or row
    kind, state = word(changed._meta.model_name), getattr(changed, problem.method._django_fsm.field.name)
    if state == DELETING:
        return WrongState("the %(kind)s is already being deleted", kind=kind)
    declared = [each.custom["refused"] for each in problem.method._django_fsm.transitions.values()]
    return WrongState(declared[0], state=word(state))
