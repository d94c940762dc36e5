"""Short ways to write the library's metric families."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Row = tuple[Sequence[str], float]  # the values of the labels, and the metric's


def gauge(name: str, help: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Return a gauge with a sample for each row."""
    return _filled(GaugeMetricFamily(name, help, labels=labels), rows)


def counter(name: str, help: str, labels: Sequence[str], rows: Iterable[Row]) -> Metric:
    """Return a counter with a sample for each row; the library adds `_total` to its name."""
    return _filled(CounterMetricFamily(name, help, labels=labels), rows)


def _filled(family: Metric, rows: Iterable[Row]) -> Metric:
    for labels, value in rows:
        family.add_metric([str(label) for label in labels], float(value))
    return family
