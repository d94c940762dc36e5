"""`manage.py datasets check`: files without a row, rows without files, stale uploads; `--repair` fixes them.

Exit code 0: nothing is wrong, or all was repaired; 1: something is wrong; 2: something is still wrong after the repair,
or the storage is missing.
"""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from datasets import orphans
from kernel.errors import Refused


class Command(BaseCommand):
    help = "Check that the datasets' rows and files match; --repair fixes what does not."

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["check"])
        parser.add_argument("--repair", action="store_true", help="apply the remedy of each finding")

    def handle(self, *args, what: str, repair: bool = False, **options):
        findings = self._find()
        if not findings:
            self.stdout.write("no problems found: the datasets' rows and files match")
            return
        for finding in findings:
            self.stdout.write(f"{finding.where}: {finding.what}; remedy: {finding.remedy}")
            if repair and finding.repair:
                try:
                    finding.repair()
                except (Refused, OSError) as problem:
                    self.stdout.write(f"  not repaired: {problem}")
        if not repair:
            self.stdout.write(f"findings: {len(findings)}; --repair applies the remedies")
            sys.exit(1)
        left = self._find()
        if left:
            self.stdout.write(f"still wrong: {len(left)}")
            sys.exit(2)
        self.stdout.write("repaired")

    @staticmethod
    def _find() -> list[orphans.Finding]:
        try:
            return orphans.find()
        except orphans.NoStorage as problem:
            raise CommandError(str(problem), returncode=2)
