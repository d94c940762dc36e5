"""The always-on part of the AIOps gateway: creates the key-value buckets, which Opni's own services only open.

Its REST calls are the web server's (training_api.py, opni_api.py); their common work is in aiops/training/requests.py.
"""

from __future__ import annotations

from aiops.wire import kv

ENSURE_EVERY_S = 30


class Gateway:
    name = "gateway"

    def __init__(self):
        self.subjects = {}
        self.ticks = ((ENSURE_EVERY_S, self.ensure),)

    def start(self) -> None:
        self.ensure()

    def ensure(self) -> None:
        kv.ensure()
