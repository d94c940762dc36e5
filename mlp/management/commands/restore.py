"""`manage.py restore DIR|s3://bucket/prefix`: brings a backup back to an empty MLP_ROOT; docs/backup.md.

Exit code 0: restored, `make up` starts it; 1: failed, with the reason. A restore that was interrupted is run again.
"""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from kernel.units import count
from operations.backup import refilling, restoring
from operations.backup.bucket import open_place
from operations.backup.places import BackupError
from operations.backup.repository import Repository


class Command(BaseCommand):
    help = "Restore a backup to an empty MLP_ROOT."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("place", nargs="?", metavar="DIR|s3://BUCKET/PREFIX")
        parser.add_argument("--backup", default="", help="the name of the backup, by default the latest")
        # The second half, in a process with the settings of the restored root; not for users.
        parser.add_argument("--refill", action="store_true", help="for internal use")
        parser.add_argument("--checks-only", action="store_true", help="for internal use")

    def handle(self, *args, place: str | None, backup: str, refill: bool, checks_only: bool, **options):
        try:
            if refill:
                refilling.refill(checks_only)
            elif place:
                self._restore(place, backup)
            else:
                raise CommandError("name the destination of the backups")
        except (BackupError, OSError) as problem:
            raise CommandError(str(problem)) from problem

    def _restore(self, place: str, backup: str) -> None:
        repository = Repository.open(open_place(place), settings.BACKUP_PASSPHRASE.reveal())
        head = repository.head(backup)
        self.stdout.write(f"restoring {head.name}, the platform of {head.moment}")
        report = restoring.restore(repository, head, self.stdout.write)
        self.stdout.write(
            f"restored: {count(head.file_count, 'file')}, {count(report['rows'], 'row')} in "
            f"{count(report['tables'], 'table')}, {count(report['messages'], 'message')} in "
            f"{count(report['streams'], 'stream')}"
        )
        for name in report["runs"]:
            self.stdout.write(f"was running and is lost; it gets that reason at the next start: {name}")
        for line in report["repairs"]:
            self.stdout.write(f"changed while the files were copied: {line}")
        for line in report["books"]:
            self.stdout.write(f"books: {line}; `manage.py books --repair` corrects it")
        if not report["secret"]:
            self.stderr.write(
                "MLP_SECRET_KEY is not that of the backup: tokens and sessions are revoked, and secrets of webhooks "
                "and keys of buckets have to be set again. Give the old one before the first start to keep them."
            )
