"""The settings of monitoring: who may scrape `/metrics`, and where traces go."""

from __future__ import annotations

from kernel.environment import Section

MONITORING = Section("Monitoring")


def read() -> tuple[str, str]:
    """Return the token that a scraper sends, "" for the one that is kept in the root; and where traces go."""
    token = MONITORING.text(
        "MLP_METRICS_TOKEN",
        shown="random, kept in `{root}/metrics-token` (mode 600)",
        help="the token with which Prometheus scrapes `/metrics`; tokens of administrators work, too "
        "([monitoring.md](monitoring.md))",
    )
    endpoint = MONITORING.url(
        "MLP_OTLP_ENDPOINT",
        ("http", "https"),
        help="a receiver of traces by OTLP over HTTP, `http://collector:4318`; without it, and without the standard "
        "`OTEL_EXPORTER_OTLP_ENDPOINT`, there are no traces ([monitoring.md](monitoring.md#traces))",
    )
    return token, endpoint
