"""`manage.py packages cache`: what the installers' caches of the users take on the disk; `--empty` removes them.

Exit code 0: done; 2: there is no such user.
"""

from __future__ import annotations

from django.core.management.base import BaseCommand, CommandError

from accounts.models import User
from jobs.packages import cache
from kernel import units


class Command(BaseCommand):
    help = "List the users' caches of packages with their sizes; --empty removes them, and says how much was freed."

    def add_arguments(self, parser):
        parser.add_argument("what", choices=["cache"])
        parser.add_argument("--user", help="only the cache of this user")
        parser.add_argument("--empty", action="store_true", help="remove them; installations download again")

    def handle(self, *args, what: str, user: str | None = None, empty: bool = False, **options):
        sizes, lent = cache.sizes(), cache.lent()
        names = dict(User.objects.filter(pk__in={*sizes, *lent}).values_list("pk", "username"))
        if user is not None:
            pk = User.objects.filter(username=user).values_list("pk", flat=True).first()
            if pk is None:
                raise CommandError(f"there is no user {user}", returncode=2)
            sizes, lent = {number: size for number, size in sizes.items() if number == pk}, lent & {pk}
        for number in sizes:
            if empty:
                sizes[number] = cache.empty(number)
            self.stdout.write(f"{names.get(number, f'#{number}')}: {units.size(sizes[number])}")
        self.stdout.write(f"{'freed' if empty else 'all caches'}: {units.size(sum(sizes.values()))}")
        for number in sorted(lent):
            self.stdout.write(f"{names.get(number, f'#{number}')}: in use by an installation, which returns it")
