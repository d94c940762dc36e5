"""Migrations are only added, never rewritten: databases that were made by them exist."""

from __future__ import annotations

import hashlib
import re
from contextlib import closing
from importlib import import_module
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader

from automation.models import Sweep, Trial
from jobs.models import Job, Snapshot
from kernel.messages import Message
from kernel.models import StateChange, record_change
from mlp.management.commands.migrate import is_local
from mlp.tests import template

ROOT = Path(settings.BASE_DIR)
PUBLISHED = Path(__file__).with_name("migrations.sha256")


def present() -> dict[str, str]:
    """Return the SHA-256 of each migration of the product by its path below the root of the repository."""
    paths = sorted(ROOT.glob("*/migrations/0*.py"))
    return {path.relative_to(ROOT).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_published_migrations_are_unchanged_and_new_ones_are_recorded():
    recorded = {path: digest for digest, path in map(str.split, PUBLISHED.read_text().splitlines())}
    migrations = present()
    changed = [path for path, digest in recorded.items() if migrations.get(path) != digest]
    assert not changed, "published migrations are not changed or removed: add another one"
    new = " ".join(sorted(set(migrations) - set(recorded)))
    assert not new, f"record what is new: sha256sum {new} >> {PUBLISHED.relative_to(ROOT)}"


CATALOGUES = {
    "columns": "SELECT table_name, column_name, udt_name, character_maximum_length, is_nullable, "
    "replace(column_default, 'character varying', 'text'), is_identity, collation_name "
    "FROM information_schema.columns WHERE table_schema = 'public'",
    "constraints": "SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid), condeferrable, "
    "condeferred FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "relations": "SELECT relname, relkind, reloptions::text, relpersistence FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace",
    "storage": "SELECT attrelid::regclass::text, attname, attstorage "
    "FROM pg_attribute JOIN pg_class AS relation ON relation.oid = attrelid "
    "WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND relkind IN ('r', 'p') AND NOT attisdropped",
    "permissions": "SELECT codename, name, app_label FROM auth_permission JOIN django_content_type t "
    "ON t.id = content_type_id",
}


def begin(share: float) -> None:
    """Apply this share of the migrations, as releases did that had none which replaces others."""
    load = MigrationLoader.load_disk

    def without_replacements(self) -> None:
        load(self)
        self.disk_migrations = {
            key: migration for key, migration in self.disk_migrations.items() if not migration.replaces
        }

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MigrationLoader, "load_disk", without_replacements)
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        executor.migrate(None, plan=plan[: round(share * len(plan))])


def catalogues_of(name: str, share: float = 0) -> dict[str, set]:
    """Return what the catalogues say of a database that older releases have begun, and this one has completed."""
    with closing(psycopg.connect(**connection.get_connection_params(), autocommit=True)) as server:
        server.execute(f"DROP DATABASE IF EXISTS {name}")
        server.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            with template.using(name), connection.cursor() as cursor:
                begin(share)
                call_command("migrate", interactive=False, verbosity=0)
                rows = {}
                for catalogue, query in CATALOGUES.items():
                    cursor.execute(query)
                    # Partitions of log lines are named after the time at which they were made.
                    rows[catalogue] = {re.sub(r"\d{13}", "TIME", repr(row)) for row in cursor.fetchall()}
                return rows
        finally:
            server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.mark.long
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8, 0.95, 1])
@pytest.mark.django_db(transaction=True)
def test_a_new_database_is_what_an_older_one_becomes(share):
    """New ones are made by the migrations that replace others, older ones one step after the other, as far as their
    release went.
    """
    new, old = catalogues_of("mlp_made_at_once"), catalogues_of("mlp_made_in_steps", share)
    for catalogue, rows in old.items():
        assert len(rows) > 100
        assert new[catalogue] == rows, catalogue


PLAIN, UNIQUE = models.CharField(max_length=9), models.CharField(max_length=9, unique=True)


@pytest.mark.parametrize(
    ("operation", "local"),
    [
        (migrations.CreateModel("a", [("id", models.BigAutoField(primary_key=True))]), True),
        (migrations.CreateModel("a", [], bases=("jobs.job",)), False),
        (migrations.AddField("job", "a", models.ForeignKey("jobs.job", models.CASCADE)), True),
        (migrations.AlterField("job", "name", PLAIN), True),
        (migrations.AlterField("job", "name", UNIQUE), False),
        (migrations.AlterField("job", "id", models.AutoField(primary_key=True)), False),
        (migrations.RenameModel("job", "work"), False),
        (migrations.RemoveField("job", "name"), False),
        (migrations.RunSQL("SELECT 1"), True),
        (migrations.RunSQL("SELECT 1", state_operations=[migrations.DeleteModel("job")]), False),
        (migrations.SeparateDatabaseAndState(), False),
    ],
    ids=lambda case: type(case).__name__,
)
def test_what_may_concern_other_tables_is_migrated_with_all_classes(operation, local):
    """That the others lead to the same database is what test_a_new_database_is_what_an_older_one_becomes shows."""
    assert is_local(operation) == local


ENDS = {  # what earlier releases have stored, and how such a job has ended
    "finished": ("finished", ""),
    "cancelled": ("error", Message("cancelled")),
    "timed_out": ("error", Message("the time limit of %(seconds)s s is exceeded", seconds=5)),
    "lost": ("error", Message("the run no longer exists: the machine or its runner was restarted")),
    "failed": ("error", "exit code 1"),
    "pruned": ("error", Message("cancelled")),
    "": ("running", ""),
}


@pytest.mark.django_db
def test_how_the_objects_of_earlier_releases_have_ended_is_read_from_their_reasons(alice):
    own = {"user": alice, "tenant": alice.tenant, "entry": "a.py"}
    jobs = {
        outcome: Job.objects.create(name=f"job{'abcdefg'[number]}", state=state, reason=reason, **own)
        for number, (outcome, (state, reason)) in enumerate(ENDS.items())
    }
    code = Snapshot.objects.create(user=alice, digest="0" * 64, manifest=[])
    unused = {"parameters": [], "pass_as": "options", "objectives": [], "sampler": {}, "pruner": {}, "stop": {}}
    sweep = Sweep.objects.create(
        user=alice, name="s", job={}, snapshot=code, trials_wanted=1, parallel=1, state="error", reason="cancelled",
        **unused,
    )  # fmt: skip
    Trial.objects.create(sweep=sweep, number=0, state="pruned", params={}, job=jobs["pruned"])
    for job in jobs.values():
        record_change(job, transition="fail", source="running", target=job.state, by="x", reason=job.reason)
    for name in ("jobs.migrations.0038_outcome_of_ended", "kernel.migrations.0005_outcome_of_cancelled"):
        for _twice in range(2):
            import_module(name).fill(None, connection.schema_editor())
    with connection.cursor() as cursor:
        of_automation = import_module("automation.migrations.0007_outcome")
        cursor.execute(of_automation.FILL.format(table="sweep"))
        cursor.execute(of_automation.PRUNED)
    assert {outcome: Job.objects.get(pk=job.pk).outcome for outcome, job in jobs.items()} == {end: end for end in ENDS}
    assert Sweep.objects.get().outcome == "cancelled"
    changes = StateChange.objects.exclude(outcome="").values_list("object_id", "outcome")
    assert set(changes) == {(jobs[outcome].pk, "cancelled") for outcome in ("cancelled", "pruned")}
