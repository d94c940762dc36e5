"""The test files that `make test-fast` leaves out: those that start platforms, browsers or runs, train, or take long.

Each name is a pattern of a path below the root of the repository.
"""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

SLOW = (
    "*/test_*browser*.py",
    "client/tests/test_*live.py",
    "datasets/tests/test_*live.py",
    "datasets/tests/test_data_client_patience.py",
    "runners/tests/test_bounds.py",
    "runners/tests/test_confinement.py",
    "runners/tests/test_contract.py",
    "runners/tests/test_exchange.py",
    "runners/tests/test_kubernetes_watch.py",
    "runners/tests/test_*races.py",
    "runners/tests/test_workers.py",
    "supervision/tests/*",
    "resources/tests/test_model.py",
    "resources/tests/test_races.py",
    "jobs/tests/test_examples.py",
    "tracking/mlflow/tests/test_clients.py",
    "tracking/mlflow/tests/test_snippets.py",
    "tracking/mlflow/tests/test_*live.py",
    "jobs/tests/test_frameworks.py",
    "jobs/tests/test_hostile.py",
    "jobs/tests/test_limits.py",
    "jobs/tests/test_log_live.py",
    "jobs/tests/test_mlp_report*.py",
    "jobs/tests/test_on_cluster.py",
    "jobs/tests/test_run.py",
    "tracking/media/tests/test_media_live.py",
    "models_app/tests/test_downloads_live.py",
    "tracking/metrics/tests/test_late_metrics.py",
    "tracking/metrics/tests/test_metrics.py",
    "tracking/metrics/tests/test_kafka.py",
    "tracking/metrics/tests/test_nats_auth.py",
    "tracking/metrics/tests/test_usage.py",
    "models_app/tests/test_hostile.py",
    "models_app/tests/test_hugging_face.py",
    "models_app/tests/test_loading.py",
    "models_app/tests/test_models.py",
    "apps/tests/test_apps.py",
    "apps/tests/test_external_models_live.py",
    "apps/tests/test_formats.py",
    "apps/tests/test_gateway.py",
    "apps/tests/test_language_*.py",
    "apps/tests/test_must_hold.py",
    "apps/tests/test_on_cluster.py",
    "apps/tests/test_ports.py",
    "apps/tests/test_proof.py",
    "apps/tests/test_races.py",
    "apps/tests/test_route.py",
    "apps/tests/test_serving.py",
    "aiops/intake/tests/test_shipper.py",
    "opnilog/tests/*",
    "aiops/services/tests/*",
    "aiops/tests/test_end_to_end.py",
    "aiops/training/tests/test_training*.py",
    "aiops/training/tests/test_versions.py",
    "operations/backup/tests/test_restored*.py",
    "operations/backup/tests/test_whole.py",
    "mlp/operators/tests/test_admin_pages.py",
    "mlp/operators/tests/test_addresses.py",
    "mlp/tests/attack/*",
    "mlp/tests/test_demo.py",
    "mlp/tests/test_error_form.py",
    "mlp/tests/test_full_disk.py",
    "mlp/tests/test_hostile_words.py",
    "mlp/tests/test_make.py",
    "mlp/tests/test_page_pace.py",
    "mlp/tests/test_pages.py",
    "mlp/tests/test_reference.py",
    "mlp/tests/test_servers.py",
    "mlp/tests/test_storm.py",
    "mlp/tests/test_upgrade*.py",
    "mlp/tests/test_websockets.py",
)


@cache
def is_slow(path: str) -> bool:
    """Whether `make test-fast` leaves this file out."""
    return any(fnmatch(path, pattern) for pattern in SLOW)
