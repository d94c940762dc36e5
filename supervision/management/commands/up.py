"""`manage.py up`: the whole platform in the foreground; `--down` stops one that runs elsewhere on the same MLP_ROOT."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from supervision import run


class Command(BaseCommand):
    help = "Runs every part of the platform under one supervisor until Ctrl-C or SIGTERM."
    requires_system_checks = []  # the database does not run yet, and `make test` runs the checks

    def add_arguments(self, parser):
        parser.add_argument("--down", action="store_true", help="end the platform that runs on this MLP_ROOT")

        parser.add_argument(
            "--keep-runs", action="store_true", help="with --down: let jobs and applications go on, for an upgrade"
        )

    def handle(self, *args, down: bool = False, keep_runs: bool = False, **options):
        if keep_runs and not down:
            raise CommandError("--keep-runs goes with --down")
        sys.exit(run.down(keep_runs) if down else run.up())
