"""`manage.py datasets check`: files without a row, rows without files, stale uploads. `--repair` puts them right.

Ends with 0 when there is nothing wrong (or all was repaired), 1 when there is, 2 when something outlived the repair or
the storage is not there.
"""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from datasets import orphans
from kernel.errors import Refused


class Command(BaseCommand):
    help = "Explains what does not belong together among the datasets' rows and files; --repair puts it right."

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["check"])
        parser.add_argument("--repair", action="store_true", help="do what each line says")

    def handle(self, *args, what: str, repair: bool = False, **options):
        found = self._find()
        if not found:
            self.stdout.write("the datasets' rows and files belong together")
            return
        for finding in found:
            self.stdout.write(f"{finding.where}: {finding.what}; remedy: {finding.remedy}")
            if repair and finding.repair:
                try:
                    finding.repair()
                except (Refused, OSError) as problem:
                    self.stdout.write(f"  not repaired: {problem}")
        if not repair:
            self.stdout.write(f"findings: {len(found)}; --repair does what each line says")
            sys.exit(1)
        left = self._find()
        if left:
            self.stdout.write(f"left: {len(left)}")
            sys.exit(2)
        self.stdout.write("repaired")

    @staticmethod
    def _find() -> list[orphans.Finding]:
        try:
            return orphans.find()
        except orphans.NoStorage as problem:
            raise CommandError(str(problem), returncode=2)
