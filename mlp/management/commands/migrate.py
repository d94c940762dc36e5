"""`manage.py migrate`: Django's, in three quarters of the time that a new database takes.

Migrations make classes of the models at each step. django-fsm looks for the transitions of all of these whenever a
further one is made, though none has any: they have no methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.commands import migrate
from django.db.models import Field
from django_fsm import FSMFieldMixin


@contextmanager
def without_transitions() -> Iterator[None]:
    """Let classes that are made meanwhile have a plain field where their model has a state."""
    usual = FSMFieldMixin.contribute_to_class
    FSMFieldMixin.contribute_to_class = Field.contribute_to_class
    try:
        yield
    finally:
        FSMFieldMixin.contribute_to_class = usual


class Command(migrate.Command):
    def handle(self, *arguments, **options) -> None:
        with without_transitions():
            super().handle(*arguments, **options)
