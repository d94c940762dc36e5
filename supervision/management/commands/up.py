"""`manage.py up`: the whole platform in the foreground; `--down` stops one that runs elsewhere on the same MLP_ROOT."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from supervision import run


class Command(BaseCommand):
    help = "Runs every part of the platform under one supervisor until Ctrl-C or SIGTERM."
    requires_system_checks = []  # the database does not run yet, and `make test` runs the checks

    def add_arguments(self, parser):
        parser.add_argument("--down", action="store_true", help="end the platform that runs on this MLP_ROOT")

    def handle(self, *args, down: bool = False, **options):
        sys.exit(run.down() if down else run.up())
