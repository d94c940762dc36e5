"""The settings that limit what one address, one user or one job may have at the same time. Read once by settings.py."""

from __future__ import annotations

from kernel.environment import Section

LIMITS = Section("Limits")


def read(*, proxied: bool) -> tuple[int, int, int, int]:
    """Return the limits of connections, websockets, followed logs and values of a job. `proxied`: all users have one
    address.
    """
    connections = LIMITS.integer(
        "MLP_CONNECTIONS_PER_ADDRESS",
        0 if proxied else 1000,
        0,
        65535,
        shown="`1000`; `0` where `MLP_URL` is `https://…` without `MLP_TRUSTED_PROXIES`",
        help="requests and websockets that one IP address may have open at the same time at the gateways; `0`: any "
        "number, for a platform behind a proxy, whose address all of them have",
    )
    websockets = LIMITS.integer(
        "MLP_WEBSOCKETS_PER_USER",
        1000,
        1,
        help="websockets that one user may have open at the same time; a page has one",
    )
    followed_logs = LIMITS.integer(
        "MLP_FOLLOWED_LOGS_PER_USER", 100, 1, help="logs that one user may follow at the same time"
    )
    values = LIMITS.integer(
        "MLP_JOB_VALUES",
        5_000_000,
        1,
        help="metrics and values that are kept of one job; later ones are not stored, and the job's page says so",
    )
    return connections, websockets, followed_logs, values
