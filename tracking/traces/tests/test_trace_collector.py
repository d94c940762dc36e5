"""Spans by an unmodified OpenTelemetry collector, which gathers, compresses, and tries again while we answer 503."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from aiops.intake.tests.test_shipper import collector  # noqa: F401 (a fixture)
from jobs.models import Span, Trace
from kernel.errors import Fault
from kernel.tests.nats_tools import until

from .. import recording

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.long]  # beside test_intake.py

TRACES = 50


@pytest.fixture
def tracer(collector):  # noqa: F811
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{collector}/v1/traces")))
    yield provider.get_tracer("shop")
    provider.shutdown()


def test_every_span_is_stored_once(tracer):
    for number in range(TRACES):
        with tracer.start_as_current_span(f"order {number}"), tracer.start_as_current_span("pay"):
            pass
    until(lambda: Span.objects.count() >= 2 * TRACES)
    stored = sorted(Trace.objects.values_list("name", "status", "spans_kept"))
    assert stored == sorted((f"order {number}", "ok", 2) for number in range(TRACES))


def test_during_an_outage_the_collector_keeps_its_spans(tracer, monkeypatch):
    asked = []

    def away(*given):
        asked.append(given)
        raise Fault("the database is not available; try again later")

    with monkeypatch.context() as patch:
        patch.setattr(recording, "store", away)
        with tracer.start_as_current_span("order"):
            pass
        until(lambda: len(asked) >= 2)
    until(lambda: Trace.objects.count() == 1)
    assert Trace.objects.get().name == "order"
