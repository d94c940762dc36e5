"""`make fuzz`: sends the platform 100,000 requests that nobody would write by hand. No answer may break the contract.

REQUESTS=2000 sends fewer, SEED=7 others, DOORS=rest,webdav only those. Exit code 1 if anything was found. Ctrl-C and
SIGTERM end it early, with the verdict on what was sent. docs/testing.md describes it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import instance
from fuzzing import raw, verdict
from fuzzing.ledger import Ledger
from fuzzing.rest import Rest
from fuzzing.world import World

# The part of the requests that goes to each door besides the REST interface, which gets the rest.
PARTS = {"bytes": 0.1, "webdav": 0.1}


def doors(home: World, ledger: Ledger, seed: int) -> dict[str, Callable[[int], None]]:
    """Return a function for each door, which sends that many requests."""
    return {
        "bytes": lambda count: raw.malformed(home, ledger, seed, count),
        "webdav": lambda count: raw.webdav(home, ledger, seed, count),
        "rest": lambda count: Rest(home, ledger, seed).run(),
    }


def main() -> int:
    wanted, seed = int(os.environ.get("REQUESTS", "100000")), int(os.environ.get("SEED", "1"))
    ledger = Ledger(wanted)
    chosen = os.environ.get("DOORS", "").split(",")
    print(f"{wanted} requests, seed {seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ledger.stop())
    with instance.running(MLP_REGISTRATIONS_PER_HOUR="1000000") as platform:
        home = World(platform)
        home.make()
        began = time.monotonic()
        for name, send in doors(home, ledger, seed).items():
            if ledger.wanted and (chosen == [""] or name in chosen):
                print(f"  {name}: {ledger.total} so far, {time.monotonic() - began:.0f} s", flush=True)
                send(int(wanted * PARTS.get(name, 1)))
        took = time.monotonic() - began
        home.close()
        verdict.judge(home, ledger)
    ledger.tell()
    print(f"{took:.0f} s, {ledger.total / took:.0f} requests/s")
    return 1 if ledger.findings else 0


if __name__ == "__main__":
    sys.exit(main())
