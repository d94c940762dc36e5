"""What a worker loads: Django, the broker, and every app's actors. `dramatiq mlp.worker` would do with it, too."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
django.setup()

from kernel.broker import broker as make_broker  # noqa: E402 (needs Django set up)

broker = make_broker()

import accounts.actors  # noqa: E402, F401
import aiops.actors  # noqa: E402, F401
import apps.actors  # noqa: E402, F401
import automation.actors  # noqa: E402, F401
import datasets.actors  # noqa: E402, F401
import jobs.actors  # noqa: E402, F401
import kernel.actors  # noqa: E402, F401
import models_app.actors  # noqa: E402, F401
import workspaces.actors  # noqa: E402, F401
