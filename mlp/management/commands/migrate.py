"""`manage.py migrate`: Django's, in a fraction of the time that a new database takes.

Migrations make classes of the models at each step. Django makes those of all models anew that are related to the one
that changes, in any number of steps: since all of ours have a user, these are all models. And django-fsm looks for the
transitions of all of these whenever a further one is made, though none has any: they have no methods.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.commands import migrate
from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Field
from django_fsm import FSMFieldMixin

# What needs of other tables nothing but their names and keys. What runs code gets all classes made anew by Django.
LOCAL = {
    operations.CreateModel, operations.AlterModelOptions, operations.AddField, operations.AddIndex,
    operations.RemoveIndex, operations.AddConstraint, operations.RemoveConstraint, operations.RunPython,
}  # fmt: skip


def is_local(operation: Operation) -> bool:
    """Return whether only the class of the model that changes has to be made anew."""
    if isinstance(operation, operations.AlterField):
        return not operation.field.unique  # else columns of other tables that refer to it may change with it
    if isinstance(operation, operations.RunSQL):
        return not operation.state_operations
    inherits = any(isinstance(base, str) for base in getattr(operation, "bases", ()))
    return type(operation) in LOCAL and not inherits


def only_itself(state: ProjectState, app_label: str, model_name: str, delay: bool = False) -> set[tuple[str, str]]:
    """Return which classes are made anew; replaces ProjectState._find_reload_model."""
    state.is_delayed = True  # Django makes all of them before it gives them to anybody else
    return {(app_label, model_name)}


@contextmanager
def with_few_classes() -> Iterator[None]:
    """Let migrations whose operations are all local make the classes that they need only."""
    usual, usual_set = Migration.apply, ProjectState._find_reload_model

    def apply(migration: Migration, state: ProjectState, *arguments, **options) -> ProjectState:
        if all(map(is_local, migration.operations)):
            ProjectState._find_reload_model = only_itself
        else:
            state.clear_delayed_apps_cache()
            state.apps  # noqa: B018 (a property that makes all of them)
        try:
            return usual(migration, state, *arguments, **options)
        finally:
            ProjectState._find_reload_model = usual_set

    Migration.apply = apply
    try:
        yield
    finally:
        Migration.apply = usual


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
        with without_transitions(), with_few_classes():
            super().handle(*arguments, **options)
