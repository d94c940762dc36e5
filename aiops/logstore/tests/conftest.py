"""The stores that the tests of this package ask the same of."""

from __future__ import annotations

import pytest
from osmem_server import resolve_binary

from aiops.logstore.database import DatabaseStore
from aiops.logstore.opensearch import OpenSearchStore
from mlp.tests import servers


@pytest.fixture(scope="module")
def osmem(tmp_path_factory):
    port = servers.free_port()
    command = [resolve_binary(), "-addr", f"{servers.HOST}:{port}"]
    process = servers.start(tmp_path_factory.mktemp("osmem"), "osmem", [*command, "-no-stdin-watch"], port)
    yield f"http://{servers.HOST}:{port}"
    servers.stop(process)


@pytest.fixture(params=["database", "opensearch"])
def store(request):
    if request.param == "database":
        return DatabaseStore()
    opensearch = OpenSearchStore(request.getfixturevalue("osmem"), refresh=True)
    opensearch.client.indices.delete(index="*", ignore=404)
    return opensearch
