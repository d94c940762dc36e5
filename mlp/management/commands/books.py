"""`manage.py books`: compares the resource accounting (tenants and requests) with the platform's objects.

Exit code 0: they agree, or all differences were repaired; 1: they differ; 2: a difference remains after the repair.
"""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand, CommandError

from operations.accounting import SOURCES
from resources import books
from resources.models import Tenant

HEADINGS = ("TENANT", "ITEM", "RECORDED", "EXPECTED")


class Command(BaseCommand):
    help = "List the differences between the resource accounting and the platform's objects; --repair corrects them."

    def add_arguments(self, parser):
        parser.add_argument("--tenant", help="only this tenant")
        parser.add_argument(
            "--repair", action="store_true", help="correct the differences, in one transaction for each tenant"
        )

    def handle(self, *args, tenant: str | None = None, repair: bool = False, **options):
        tenants = list(Tenant.objects.filter(**({"name": tenant} if tenant else {})).order_by("name"))
        if tenant and not tenants:
            raise CommandError(f"there is no tenant {tenant}", returncode=2)
        differences = [line for tenant in tenants for line in books.explain(tenant, SOURCES)]
        if not differences:
            self.stdout.write(
                f"the accounting of {', '.join(row.name for row in tenants) or 'no tenant'} is consistent"
            )
            return
        self._table(differences)
        if not repair:
            self.stdout.write(f"differences: {len(differences)}; run with --repair to correct them")
            sys.exit(1)
        for row in tenants * 2:  # twice: one tenant may have to release what another one reserves
            books.repair(row, SOURCES)
        left = [line for tenant in tenants for line in books.explain(tenant, SOURCES)]
        if left:
            self.stdout.write("these differences remain; run the command again:")
            self._table(left)
            sys.exit(2)
        self.stdout.write("repaired; the accounting is consistent")

    def _table(self, lines: list[books.Difference]) -> None:
        rows = [HEADINGS, *((line.tenant, line.what, line.recorded, line.expected) for line in lines)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        for row in rows:
            self.stdout.write("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
