"""The certificates that runs trust beside the public ones, where MLP_TLS_CA is given (supervision.tls)."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from kernel import storage
from runners import Mount
from runners.base import Runner

TRUST = "/opt/mlp-trust"
# OpenSSL's and Python's own, that of requests, that of curl.
VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
OF_PIP = ("PIP_CERT", "GIT_SSL_CAINFO")  # pip has certificates of its own, and so has git in some builds


def path() -> Path:
    """Return the file with the certificates, those of the public authorities included."""
    return storage.root() / "run" / "trust" / "ca" / "ca.pem"


def mounts() -> tuple[Mount, ...]:
    """Return what a run sees of it."""
    return (Mount(path().parent, TRUST),) if settings.TLS.ca else ()


def variables(runner: Runner, names: tuple[str, ...] = VARIABLES) -> dict[str, str]:
    """Return the variables by which programs find the file."""
    if not settings.TLS.ca:
        return {}
    return dict.fromkeys(names, f"{runner.place(path().parent, TRUST)}/{path().name}")
