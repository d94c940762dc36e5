"""`manage.py part NAME`: runs one part of the platform in the foreground; see supervision/single.py."""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

from supervision import single


class Command(BaseCommand):
    help = "Runs one part of the platform as this process, for containers and other supervisors."
    requires_system_checks = []  # the database may not be there yet

    def add_arguments(self, parser):
        parser.add_argument("name", help="setup, or one of the parts; `list` prints them")

    def handle(self, *args, name: str, **options):
        known = single.names()
        if name == "list":
            self.stdout.write("\n".join(known))
            return
        if name not in known:
            raise CommandError(f"no part is called {name}; there are {', '.join(known)}")
        single.become(name)
