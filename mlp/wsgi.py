"""HTTP for gunicorn: REST, pages and admin, with the gateway's question answered before Django is reached."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
django_application = get_wsgi_application()

from accounts.auth import FastAuth  # noqa: E402 (needs Django set up)

application = FastAuth(django_application)
