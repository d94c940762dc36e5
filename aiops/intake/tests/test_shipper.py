"""Log shipping with an unmodified OpenTelemetry collector (Rotel, from its wheel).

An application's logging goes to the collector, which gathers, compresses and sends to the platform's endpoint, and
tries again while that answers 503.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource

from accounts import lifecycle as accounts
from aiops import logstore
from aiops.intake import accept
from aiops.models import LogLine
from kernel.errors import Fault
from kernel.tests.nats_tools import until
from mlp.tests import servers

pytestmark = pytest.mark.django_db(transaction=True)

LINES = 300


@pytest.fixture
def collector(live_server, alice, tmp_path):
    """Yield the address of a collector that sends to the platform as alice."""
    grpc, port = servers.free_port(), servers.free_port()
    options = {
        "otlp-grpc-endpoint": f"{servers.HOST}:{grpc}",
        "otlp-http-endpoint": f"{servers.HOST}:{port}",
        "otlp-exporter-endpoint": live_server.url,
        "otlp-exporter-protocol": "http",
        "otlp-exporter-custom-headers": f"Authorization=Bearer {accounts.token_of(alice)}",
        "otlp-exporter-retry-initial-backoff": "100ms",
        "otlp-exporter-retry-max-backoff": "300ms",
        "batch-timeout": "100ms",
    }
    program = Path(find_spec("rotel").origin).with_name("rotel-agent")
    command = [str(program), "start", *(word for name, value in options.items() for word in (f"--{name}", value))]
    process = servers.start(tmp_path, "rotel", command, port)
    yield f"http://{servers.HOST}:{port}"
    servers.stop(process)


@pytest.fixture
def logger(collector):
    provider = LoggerProvider(Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{collector}/v1/logs")))
    shop = logging.Logger("shop")
    shop.addHandler(LoggingHandler(logger_provider=provider))
    yield shop
    provider.shutdown()


def test_every_collected_line_is_stored_once(logger):
    for number in range(LINES):
        logger.warning("order %s is paid", number)
    until(lambda: LogLine.objects.count() >= LINES)
    stored = LogLine.objects.values_list("cluster", "namespace", "deployment", "log")
    assert sorted(stored) == sorted(("local", "alice", "shop", f"order {number} is paid") for number in range(LINES))


def test_during_an_outage_the_collector_keeps_its_lines(logger, monkeypatch):
    asked = []

    def away(lines):
        asked.append(len(lines))
        raise Fault("the log store is not available; try again later")

    with monkeypatch.context() as patch:
        patch.setattr(accept, "store", away)
        logger.warning("order 1 is paid")
        until(lambda: len(asked) >= 2)
    until(lambda: logstore.get().count({}) == 1)
    assert LogLine.objects.get().log == "order 1 is paid"
