"""Mutual authentication of the platform and an application's process. Used by launching, gateway_access, playground.

Each run has a secret, derived from the server's key and the run's name, in the environment of its process. The platform
sends it with each request, and the process rejects requests without it (apps/serving/caller.py). Before an address is
accepted, the process there has to prove by a challenge that it has the secret, which is not sent for that. So no other
process at an application's address gets a request, and no request of others reaches an application: also over a
network, and where the isolation of runs does not separate their sockets.
"""

from __future__ import annotations

import hmac
import http.client
import secrets

from django.utils.crypto import salted_hmac

from kernel import outbound
from kernel.sockets import Address

HEADER = "X-App-Secret"
VARIABLE = "MLP_APP_SECRET"
CHALLENGES = "/-proof/"
LOAD = "/-load"  # apps/serving/load.py


def secret(run_name: str) -> str:
    """Return the secret of the run."""
    return salted_hmac("apps.proof", run_name, algorithm="sha256").hexdigest()


def headers(run_name: str) -> dict[str, str]:
    """Return the headers that a request to the run needs."""
    return {HEADER: secret(run_name)}


def is_given(address: Address, run_name: str, limit_s: float) -> bool:
    """Return whether this very run answers at the address: it has to compute a value that needs its secret."""
    challenge = secrets.token_hex(32)
    expected = hmac.new(secret(run_name).encode(), challenge.encode(), "sha256").hexdigest()
    try:
        status, answer = outbound.exchange(address, "GET", f"{CHALLENGES}{challenge}", limit_s=limit_s, most=100)
    except (OSError, http.client.HTTPException):
        return False
    return status == 200 and hmac.compare_digest(answer, expected.encode())
