"""`manage.py backup DIR|s3://bucket/prefix`: backs the platform up while it runs; docs/backup.md.

`manage.py backup verify|list|prune PLACE` proves that a backup can be restored, lists the backups, removes old ones.
Exit code 0: done; 1: failed, with the reason.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kernel.units import count
from operations.backup import taking, verifying
from operations.backup.bucket import open_place
from operations.backup.places import BackupError
from operations.backup.repository import Head, Repository

VERBS = ("create", "verify", "list", "prune")


class Command(BaseCommand):
    help = "Back up the platform, verify, list or prune its backups."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("words", nargs="+", metavar="[create|verify|list|prune] DIR|s3://BUCKET/PREFIX")
        parser.add_argument("--backup", default="", help="verify: the name of the backup, by default the latest")
        parser.add_argument("--keep", type=int, help="remove all but the latest N backups when this one is complete")
        parser.add_argument("--full", action="store_true", help="read and write everything, also what is there already")
        parser.add_argument("--scratch", type=Path, help="verify: where to restore to, by default the temporary folder")
        parser.add_argument("--json", action="store_true", help="list: as JSON")

    def handle(self, *args, words: list[str], keep: int | None, **options):
        *verbs, place = words
        verb = verbs[0] if verbs else "create"
        if len(verbs) > 1 or verb not in VERBS:
            raise CommandError(f"give one of {', '.join(VERBS)}, and one destination")
        if (keep is None and verb == "prune") or (keep is not None and keep < 1):
            raise CommandError("--keep: give how many backups to keep, at least 1")
        try:
            getattr(self, f"_{verb}")(place, keep, options)
        except (BackupError, OSError) as problem:
            raise CommandError(str(problem)) from problem

    def _create(self, place: str, keep: int | None, options: dict) -> None:
        with taking.servers():
            repository = Repository.open(open_place(place), settings.BACKUP_PASSPHRASE.reveal(), create=True)
            with repository.locked():
                head = taking.create(repository, self.stdout.write, options["full"])
                self.stdout.write(
                    f"backup {head.name}: {_size(head.size)} in {count(head.file_count, 'file')}, "
                    f"{_size(head.added)} added to {place}{', encrypted' if repository.encrypted else ''}"
                )
                for problem in head.facts["unreadable"]:
                    self.stderr.write(f"not read: {problem}")
                if keep is not None:
                    self._tell_pruned(*repository.prune(keep))
            repository.close()

    def _prune(self, place: str, keep: int, options: dict) -> None:
        repository = Repository.open(open_place(place), settings.BACKUP_PASSPHRASE.reveal())
        with repository.locked():
            self._tell_pruned(*repository.prune(keep))

    def _tell_pruned(self, backups: int, objects: int) -> None:
        self.stdout.write(f"removed {count(backups, 'old backup')}, {count(objects, 'object')} without a backup")

    def _list(self, place: str, keep: None, options: dict) -> None:
        heads = Repository.open(open_place(place), settings.BACKUP_PASSPHRASE.reveal()).heads()
        if options["json"]:
            self.stdout.write(json.dumps([_row(head) for head in heads], indent=1))
            return
        for head in heads:
            at = datetime.fromisoformat(head.moment)
            self.stdout.write(
                f"{head.name}  {at:%Y-%m-%d %H:%M:%S} UTC  {_size(head.size):>10}  {_size(head.added):>10} added  "
                f"{count(head.file_count, 'file')}  {head.version}"
            )
        self.stdout.write(f"backups: {len(heads)}")

    def _verify(self, place: str, keep: None, options: dict) -> None:
        repository = Repository.open(open_place(place), settings.BACKUP_PASSPHRASE.reveal())
        head = repository.head(options["backup"])
        report = verifying.verify(repository, head, options["scratch"], self.stdout.write)
        self.stdout.write(
            f"backup {head.name} restores completely: {count(head.file_count, 'file')}, "
            f"{count(report['rows'], 'row')} in {count(report['tables'], 'table')}, "
            f"{count(report['messages'], 'message')} in {count(report['streams'], 'stream')}; the books add up"
        )


def _row(head: Head) -> dict:
    names = ("name", "moment", "completed", "version", "size", "added", "file_count")
    return {name: getattr(head, name) for name in names}


def _size(count: int) -> str:
    """Return bytes in a unit for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
