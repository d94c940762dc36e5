"""The test files that `make attack` runs: each tries to break out, to get in, or to do harm.

Each name is a pattern of a path below the root of the repository.
"""

from __future__ import annotations

from fnmatch import fnmatch
from functools import cache

ATTACKS = (
    # Written for it, on one platform with an attacker and a victim.
    "mlp/tests/attack/*",
    "mlp/tests/test_attack_browser.py",
    "mlp/tests/test_apart_browser.py",
    # What a script, a model or an application can reach, fill up and leave behind.
    "runners/tests/test_confinement.py",
    "runners/tests/test_unprivileged.py",
    "runners/tests/test_bounds.py",
    "runners/tests/test_exchange.py",
    "runners/tests/test_network*.py",
    "jobs/tests/test_hostile.py",
    "jobs/tests/test_attach.py",
    "jobs/packages/tests/test_hostile_packages.py",
    "workspaces/tests/test_gateway.py",
    "workspaces/tests/test_guests.py",
    "workspaces/tests/test_lifecycle.py",
    "workspaces/tests/test_origins.py",
    "workspaces/tests/test_sizes.py",
    "workspaces/tests/test_ssh.py",
    "jobs/tests/test_outputs_limit.py",
    "datasets/tests/test_simultaneous_live.py",
    "mlp/tests/test_database_limit.py",
    "mlp/tests/test_disk_gate.py",
    "mlp/tests/test_full_disk.py",
    "jobs/tests/test_lifecycle.py",
    "jobs/tests/test_limits.py",
    "jobs/tests/test_idle.py",
    "jobs/tests/test_auth.py",
    "tracking/metrics/tests/test_kafka.py",
    "tracking/metrics/tests/test_nats_auth.py",
    "tracking/metrics/tests/test_journal.py",
    "tracking/mlflow/tests/test_artifacts_live.py",
    "operations/backup/tests/test_tree.py",
    "mlp/trash/tests/test_clock.py",
    "models_app/tests/test_hostile.py",
    "apps/tests/test_proof.py",
    # Clients from outside: tokens, passwords, sessions, addresses, markup, requests to foreign servers; those that do
    # not read what they ask for.
    "kernel/tests/test_streams.py",
    "models_app/tests/test_downloads_live.py",
    "mlp/tests/test_reference.py",
    "accounts/tests/test_passwords.py",
    "accounts/tests/test_users.py",
    "accounts/tests/test_auth.py",
    "accounts/tests/test_guessing.py",
    "apps/tests/test_route.py",
    "datasets/tests/test_webdav_paths.py",
    "accounts/tests/test_webhook_targets.py",
    "kernel/tests/test_outbound.py",
    "kernel/tests/test_nats_tls.py",
    "supervision/tests/test_gateway_limits.py",
    "mlp/operators/tests/test_admin_access.py",
    "mlp/operators/tests/test_operator_logs.py",
    "mlp/tests/test_foreign_hosts.py",
    "mlp/tests/test_hostile_words.py",
    "accounts/tests/test_sessions.py",
    "supervision/tests/test_client_address.py",
)


@cache
def is_attack(path: str) -> bool:
    """Whether `make attack` runs this file."""
    return any(fnmatch(path, pattern) for pattern in ATTACKS)
