"""The settings of TLS. Read once by settings.py; the files are read by supervision.tls."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from django.core.exceptions import ImproperlyConfigured

from kernel.environment import Section

TLS = Section("TLS")


class Tls(NamedTuple):
    """What the settings say. Without a certificate the gateways speak plain HTTP."""

    cert: Path | None
    key: Path | None
    ca: Path | None
    oldest: str
    port: int
    app_port: int
    redirect_port: int
    hsts_s: int

    @property
    def scheme(self) -> str:
        return "https" if self.cert else "http"

    def check(self, gateway: str) -> None:
        """Raise ImproperlyConfigured where users would be sent to an address without TLS."""
        if self.cert and not gateway.startswith("https://"):
            raise ImproperlyConfigured("MLP_URL must begin with https:// where MLP_TLS_CERT is given")


def read() -> Tls:
    """Return the settings. Raises ImproperlyConfigured for a combination that cannot be meant."""
    cert = _file(
        "MLP_TLS_CERT",
        "the gateways' certificate in PEM format, followed by the intermediate ones; the gateways and the embedded "
        "NATS server then speak TLS. A file that is replaced is used within seconds ([tls.md](tls.md))",
    )
    key = _file("MLP_TLS_KEY", "its private key in PEM format, without a passphrase")
    ca = _file(
        "MLP_TLS_CA",
        "certificates in PEM format of an authority of your own, which jobs, installations of packages, and copies "
        "from buckets, trust in addition to the public ones",
    )
    oldest = TLS.choice("MLP_TLS_MIN_VERSION", "1.2", ["1.2", "1.3"], help="the oldest version of TLS that is accepted")
    ports = [
        TLS.integer(name, 0, 0, 65535, help=help, shown="`0`: none")
        for name, help in (
            ("MLP_TLS_PORT", "a port for the gateway beside `{base+1}`, such as 443"),
            ("MLP_TLS_APP_PORT", "a port for the application gateway beside `{base+2}`, such as 8443"),
            (
                "MLP_TLS_REDIRECT_PORT",
                "a port, such as 80, at which plain HTTP is redirected to `MLP_URL` and ACME's challenges in "
                "`{root}/acme` are served",
            ),
        )
    ]
    hsts_s = TLS.integer(
        "MLP_HSTS_S", 31536000, 0, unit="s", help="how long browsers use nothing but TLS for the host; `0`: not said"
    )
    if bool(cert) != bool(key):
        missing, given = ("MLP_TLS_KEY", "MLP_TLS_CERT") if cert else ("MLP_TLS_CERT", "MLP_TLS_KEY")
        raise ImproperlyConfigured(f"{missing} must be given with {given}")
    if not cert and any(ports):
        raise ImproperlyConfigured("MLP_TLS_PORT, MLP_TLS_APP_PORT and MLP_TLS_REDIRECT_PORT need MLP_TLS_CERT")
    return Tls(cert, key, ca, oldest, *ports, hsts_s)


def _file(name: str, help: str) -> Path | None:
    value = TLS.text(name, help=help)
    return Path(value).absolute() if value else None
