"""HTTP for gunicorn: REST, pages and admin; the gateway's own questions are answered before the middleware."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
django_application = get_wsgi_application()

from accounts.auth import FastAuth  # noqa: E402 (needs Django set up)
from apps.gateway_urls import FastApps  # noqa: E402
from datasets.data_urls import FastData  # noqa: E402

application = FastAuth(FastData(FastApps(django_application)))
