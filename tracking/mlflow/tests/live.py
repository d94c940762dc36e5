"""The real gateway for tests of MLflow's clients: nginx and gunicorn."""

from __future__ import annotations

import pytest

from datasets.tests.live import Service
from kernel import storage


@pytest.fixture(scope="module")
def front(tmp_path_factory, django_db_setup):
    service = Service(tmp_path_factory.mktemp("artifacts"))
    service.start_requests()
    service.start_nginx()
    yield service
    for process in (service.nginx, service.web):
        service.stop(process)
    service.end()


@pytest.fixture
def site(front, transactional_db, default_tenant, settings):
    """The running gateway; this process sees the same files."""
    settings.MLP_ROOT = front.root
    for folder in ("jobs", "datasets"):
        storage.remove_tree(front.root / folder)
    storage.spool_dir()
    return front
