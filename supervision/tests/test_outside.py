"""Servers of one's own that cannot be used: `make up` says which setting names which address, and why it fails."""

from __future__ import annotations

import pytest

from mlp.tests.tiers import later
from supervision.tests.running import Platform


@pytest.mark.parametrize(
    ("setting", "address"),
    [
        ("DATABASE_URL", "postgresql://someone:secret@127.0.0.1:1/mlp"),
        later("REDIS_URL", "redis://:secret@127.0.0.1:1/0"),
        later("NATS_URL", "nats://someone:secret@127.0.0.1:1"),
    ],
)
def test_a_server_of_ones_own_that_does_not_answer_is_named_by_its_setting(tmp_path, setting, address):
    platform = Platform(tmp_path / "root")
    refused = platform.call(**{setting: address})
    assert refused.returncode != 0
    [line] = [line for line in refused.stdout.splitlines() if "could not be started" in line]
    scheme, host = address.partition(":")[0], address.rpartition("@")[2]
    assert f"{setting}: the server at {scheme}://{host} cannot be used" in line
    assert "refused" in line
    assert "secret" not in refused.stdout
    assert platform.everything() == []
