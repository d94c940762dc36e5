"""The live service's fixtures, for the tests of the data service and of the data client."""

from __future__ import annotations

from datasets.tests.live import alice_there, bob_there, photos, servers, service, staff_there

__all__ = ["alice_there", "bob_there", "photos", "servers", "service", "staff_there"]
