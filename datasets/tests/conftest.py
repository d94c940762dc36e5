"""Fixtures of the tests of the data service and the data client: the running service."""

from __future__ import annotations

from datasets.tests.live import alice_there, bob_there, photos, servers, service, staff_there

__all__ = ["alice_there", "bob_there", "photos", "servers", "service", "staff_there"]
