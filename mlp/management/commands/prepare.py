"""`manage.py prepare`: creates the administrator, the default tenant and the message streams.

Called by `up` after the migrations, at every start. Idempotent.
"""

from __future__ import annotations

from django.conf import settings
from django.core.management.base import BaseCommand

from accounts import lifecycle
from accounts.models import User
from accounts.tenancy import members
from kernel import bus
from kernel.secrets import secret
from resources.inventory import prepare_default_tenant
from tracking.metrics import recording

OPERATOR = "admin"


class Command(BaseCommand):
    help = "Creates the administrator, the default tenant and the message streams where they are missing."

    def handle(self, *args, **options):
        tenant = prepare_default_tenant()
        self.stdout.write(f"tenant default: {tenant.cpu.normalize():f} CPU, {tenant.gpu} GPU, {tenant.ram} MiB RAM")
        self._operator()
        members.mend()
        bus.ensure_streams([recording.STREAM])

    def _operator(self) -> None:
        """Create the administrator, or set its password; without MLP_ADMIN_PASSWORD it is the one kept in the root."""
        configured = settings.ADMIN_PASSWORD
        operator = User.objects.filter(username=OPERATOR).first()
        if operator is None:
            password = configured or secret(settings.MLP_ROOT, "admin-password", 20)
            lifecycle.register(username=OPERATOR, password=password, is_staff=True, judge=False, by="platform")
            self.stdout.write(f"created administrator {OPERATOR}")
        elif configured and not operator.check_password(configured):
            operator.set_password(configured)
            operator.save(update_fields=["password"])
            self.stdout.write(f"set the password of {OPERATOR} from MLP_ADMIN_PASSWORD")
