"""The settings of monitoring: who may scrape `/metrics`, and where traces go."""

from __future__ import annotations

from kernel.environment import Section

MONITORING = Section("Monitoring")


def token() -> str:
    """Return the token that a scraper sends, "" for the one that is kept in the root."""
    return MONITORING.text(
        "MLP_METRICS_TOKEN",
        shown="random, kept in `{root}/metrics-token` (mode 600)",
        help="the token with which Prometheus scrapes `/metrics`; tokens of administrators work, too "
        "([monitoring.md](monitoring.md))",
    )
