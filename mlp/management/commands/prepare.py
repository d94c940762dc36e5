"""`manage.py prepare`: what must be there before the platform serves: the operator, the tenant, the streams.

Called by `up` after the migrations, at every start; does nothing that is done already.
"""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand

from accounts import lifecycle
from accounts.models import User
from jobs.metrics import recording
from kernel import bus
from kernel.secrets import secret
from resources.inventory import prepare_default_tenant

OPERATOR = "admin"


class Command(BaseCommand):
    help = "Makes the operator, the default tenant and the message streams, where they are missing."

    def handle(self, *args, **options):
        tenant = prepare_default_tenant()
        self.stdout.write(f"tenant default: {tenant.cpu.normalize():f} CPU, {tenant.gpu} GPU, {tenant.ram} Mi RAM")
        self._operator()
        bus.ensure_streams([recording.STREAM])

    def _operator(self) -> None:
        """The operator's password is MLP_ADMIN_PASSWORD as long as that is given, else the one kept in the root."""
        given = settings.ADMIN_PASSWORD
        operator = User.objects.filter(username=OPERATOR).first()
        if operator is None:
            password = given or secret(settings.MLP_ROOT, "admin-password", 20)
            lifecycle.register(username=OPERATOR, password=password, is_staff=True, judge=False, by="platform")
            self.stdout.write(f"operator {OPERATOR}: made")
        elif given and not operator.check_password(given):
            operator.set_password(given)
            operator.save(update_fields=["password"])
            self.stdout.write(f"operator {OPERATOR}: password set from MLP_ADMIN_PASSWORD")
