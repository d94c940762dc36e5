"""`manage.py datasets check`: lists files without a row, rows without files and stale uploads; `--repair` fixes them.

Exit code 0: no problems, or all were fixed; 1: there are problems; 2: problems remain after the repair, or the storage
is missing.
"""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from datasets import orphans
from kernel.errors import Refused


class Command(BaseCommand):
    help = "Check that the datasets' rows and files match; --repair fixes the differences."

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["check"])
        parser.add_argument("--repair", action="store_true", help="fix each problem")

    def handle(self, *args, what: str, repair: bool = False, **options):
        findings = self._find()
        if not findings:
            self.stdout.write("no problems found: the datasets' rows and files match")
            return
        for finding in findings:
            self.stdout.write(f"{finding.where}: {finding.what}; fix: {finding.fix}")
            if repair and finding.repair:
                try:
                    finding.repair()
                except (Refused, OSError) as problem:
                    self.stdout.write(f"  not repaired: {problem}")
        if not repair:
            self.stdout.write(f"problems: {len(findings)}; run with --repair to fix them")
            sys.exit(1)
        left = self._find()
        if left:
            self.stdout.write(f"problems that remain: {len(left)}")
            sys.exit(2)
        self.stdout.write("repaired")

    @staticmethod
    def _find() -> list[orphans.Finding]:
        try:
            return orphans.find()
        except orphans.NoStorage as problem:
            raise CommandError(str(problem), returncode=2)
