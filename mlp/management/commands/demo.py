"""`manage.py demo`: runs the demo of `make demo`, for a platform that was installed with pip."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.management.base import BaseCommand

PROGRAM = settings.BASE_DIR / "examples" / "demo.py"


class Command(BaseCommand):
    help = "Tries every part of the product on the running platform."

    def run_from_argv(self, argv: list[str]) -> None:
        """Replace this process with the demo, which has options of its own (`demo --help`)."""
        environment = {**os.environ, "MLP_ROOT": str(settings.MLP_ROOT), "MLP_RUN_PYTHON": settings.RUN_PYTHON}
        os.execve(sys.executable, [sys.executable, str(PROGRAM), *argv[2:]], environment)
