"""Fixtures of the tests of the data service and the data client: the running service."""

from __future__ import annotations

from datasets.tests.live import alice_data, bob_data, photos, servers, service, staff_data

__all__ = ["alice_data", "bob_data", "photos", "servers", "service", "staff_data"]
