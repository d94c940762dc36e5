"""`manage.py clock`: whether the clock is believed where something is deleted because it is old (kernel.clock).

Exit code 0: it is believed; 1: it has jumped ahead, and nobody has confirmed it.
"""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from kernel import clock


class Command(BaseCommand):
    help = "Say whether the clock has jumped ahead, so that nothing is deleted for its age; --confirm believes it."
    requires_system_checks = ()

    def add_arguments(self, parser):
        parser.add_argument("--confirm", action="store_true", help="the clock is right: delete by it again")

    def handle(self, *args, confirm: bool = False, **options):
        ahead = clock.confirm() if confirm else clock.ahead_s()
        if confirm or not ahead:
            self.stdout.write("the clock is believed" + (f"; it was ahead by {ahead:.0f} s" if ahead else ""))
            return
        self.stdout.write(f"the clock has jumped ahead by {ahead:.0f} s; confirm it with: manage.py clock --confirm")
        sys.exit(1)
