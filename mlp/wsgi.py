"""The WSGI application for gunicorn: REST, pages and admin. The gateway's subrequests bypass Django's middleware."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
django_application = get_wsgi_application()

from accounts.urls import DIRECT as ACCOUNTS  # noqa: E402 (needs Django set up)
from accounts.urls import LAST  # noqa: E402
from aiops.web.quick_logs import DIRECT as LOGS  # noqa: E402
from apps.gateway_urls import DIRECT as APPS  # noqa: E402
from datasets.data_urls import DIRECT as DATA  # noqa: E402
from kernel import unreadable  # noqa: E402
from kernel.dispatch import Dispatcher  # noqa: E402
from models_app.mlflow.urls import DIRECT as REGISTRY  # noqa: E402
from tracking.evaluations.mlflow_urls import DIRECT as EVALUATIONS  # noqa: E402
from tracking.mlflow.urls import DIRECT as MLFLOW  # noqa: E402
from tracking.traces.mlflow_urls import DIRECT as TRACES  # noqa: E402
from workspaces.gateway_urls import DIRECT as WORKSPACES  # noqa: E402

DIRECT = {**ACCOUNTS, **DATA, **APPS, **WORKSPACES, **MLFLOW, **REGISTRY, **LOGS, **TRACES, **EVALUATIONS}
unreadable.install()
application = Dispatcher(django_application, DIRECT, LAST)
