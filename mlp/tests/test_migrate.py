"""`manage.py migrate` makes few classes: it leads to the same database as Django's way, which makes all, and shows the
same to migrations in Python. The cases are those of Django's own reports about classes that were out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
from django.db import connection, migrations, models, transaction
from django.db.migrations.state import ProjectState

from mlp.management.commands.migrate import is_local, with_few_classes
from mlp.tests.test_migrations import CATALOGUES

pytestmark = pytest.mark.django_db

CASCADE = models.CASCADE
Steps = list[list[migrations.operations.base.Operation]]


def model(name: str, /, **fields: models.Field) -> migrations.CreateModel:
    key = fields.pop("id", models.BigAutoField(primary_key=True))
    return migrations.CreateModel(name, [("id", key), *fields.items()])


def text(length: int = 9, **options) -> models.CharField:
    return models.CharField(max_length=length, **options)


def refers(to: str, **options) -> models.ForeignKey:
    return models.ForeignKey(to, CASCADE, **options)


def catalogues() -> dict[str, set[str]]:
    with connection.cursor() as cursor:
        rows = {}
        for name in ("columns", "constraints", "indexes"):
            cursor.execute(CATALOGUES[name])
            rows[name] = {repr(row) for row in cursor.fetchall() if row[0].startswith("zoo_")}
        return rows


def migrated(steps: Steps, few: bool) -> dict[str, set[str]]:
    """Return what is in the database once the migrations of an app `zoo` are applied; they are undone then."""
    state = ProjectState()
    assert state.apps  # made before the first migration, as by the command
    with transaction.atomic(), with_few_classes() if few else nullcontext():
        for number, operations in enumerate(steps):
            migration = migrations.Migration(f"step{number}", "zoo")
            migration.operations = operations
            with connection.schema_editor(atomic=True) as editor:
                state = migration.apply(state, editor)
        found = catalogues()
        transaction.set_rollback(True)
    return found


def pair() -> list[migrations.CreateModel]:
    return [model("Keeper", name=text()), model("Cat", keeper=refers("zoo.keeper"), name=text())]


CASES: dict[str, Callable[[], Steps]] = {
    "a key that others refer to gets another type": lambda: [
        pair(),
        [migrations.AddIndex("cat", models.Index(fields=["name"], name="by_name"))],
        [migrations.AlterField("keeper", "id", text(primary_key=True))],
        [migrations.AddField("cat", "second", refers("zoo.keeper", null=True, related_name="+"))],
    ],
    "a unique column that others refer to gets another type": lambda: [
        [model("Keeper", code=text(unique=True))],
        [model("Cat", keeper=refers("zoo.keeper", to_field="code"))],
        [migrations.AddField("keeper", "name", text())],
        [migrations.AlterField("keeper", "code", text(90, unique=True))],
    ],
    "a reference leads to another table, and may be empty": lambda: [
        [*pair(), model("Vet", id=models.UUIDField(primary_key=True))],
        [migrations.AlterField("cat", "keeper", refers("zoo.keeper", null=True))],
        [migrations.RemoveField("cat", "keeper"), migrations.AddField("cat", "vet", refers("zoo.vet", null=True))],
    ],
    "many to many, also of a model with itself": lambda: [
        [*pair(), migrations.AddField("cat", "friends", models.ManyToManyField("zoo.cat"))],
        [migrations.AddField("keeper", "likes", models.ManyToManyField("zoo.cat"))],
        [migrations.AlterField("cat", "friends", models.ManyToManyField("zoo.cat", blank=True, symmetrical=False))],
        [migrations.AlterField("cat", "name", text(90))],
        [migrations.RemoveField("keeper", "likes")],
    ],
    "models that refer to each other and to themselves": lambda: [
        [*pair(), migrations.AddField("keeper", "best", refers("zoo.cat", null=True, related_name="+"))],
        [migrations.AddField("cat", "mother", refers("zoo.cat", null=True))],
        [migrations.AddField("keeper", "deputy", models.OneToOneField("zoo.keeper", CASCADE, null=True))],
    ],
    "a table and a column have another name": lambda: [
        pair(),
        [migrations.AddField("cat", "mother", refers("zoo.cat", null=True))],
        [migrations.RenameModel("keeper", "warden"), migrations.RenameField("cat", "keeper", "warden")],
        [migrations.AddField("warden", "age", models.IntegerField(default=0))],
        [migrations.AddConstraint("cat", models.UniqueConstraint(fields=["warden", "name"], name="one_of_a_name"))],
    ],
    "a table that others referred to is gone": lambda: [
        [*pair(), migrations.AddField("keeper", "likes", models.ManyToManyField("zoo.cat", related_name="+"))],
        [migrations.RemoveField("keeper", "likes"), migrations.AlterField("cat", "name", models.TextField())],
        [migrations.DeleteModel("cat")],
        [model("Cat", keeper=refers("zoo.keeper"))],
    ],
    "a model inherits the table of another": lambda: [
        pair(),
        [migrations.CreateModel("Tom", [("loud", models.BooleanField())], bases=("zoo.cat",))],
        [migrations.AddField("cat", "age", models.IntegerField(default=0))],
        [migrations.AddField("tom", "rival", refers("zoo.tom", null=True))],
        [migrations.AlterField("cat", "id", models.AutoField(primary_key=True))],
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_the_database_is_as_with_all_classes(steps):
    usual = migrated(steps(), few=False)
    assert sum(map(len, usual.values())) > 5
    assert migrated(steps(), few=True) == usual
    assert any(all(map(is_local, operations)) for operations in steps()), "no migration is applied with few classes"


@pytest.mark.parametrize("few", [False, True])
def test_a_migration_in_python_sees_all_models_as_they_are(few):
    seen = []

    def look(apps, _editor) -> None:
        keeper, cat = apps.get_model("zoo", "keeper"), apps.get_model("zoo", "cat")
        assert cat._meta.get_field("keeper").remote_field.model is keeper
        mine = keeper.objects.create(name="anna", age=7)
        cat.objects.create(name="tom", keeper=mine, mother=cat.objects.create(name="old", keeper=mine))
        seen.append(list(keeper.objects.filter(cat__mother__name="old").values_list("name", "age", "cat__name")))
        keeper.objects.all().delete()
        seen.append(cat.objects.count())

    steps = [
        pair(),
        [migrations.AddField("cat", "mother", refers("zoo.cat", null=True))],
        [migrations.AddField("keeper", "age", models.IntegerField(default=0)), migrations.RunPython(look)],
    ]
    migrated(steps, few)
    assert seen == [[("anna", 7, "tom")], 0]
