"""What others could read or reach: files of secrets, the root, ports, certificates."""

from __future__ import annotations

import ipaddress
import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings

from kernel.units import count
from operations.backup.layout import SECRETS
from supervision import tls

from .findings import Finding

FOR_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def permissions() -> Iterator[Finding]:
    """Ask for the modes and owners of all files with secrets."""
    root, wrong = Path(settings.MLP_ROOT), 0
    named = {"MLP_TLS_KEY": settings.TLS.key, "NKEY_SEED_FILENAME": settings.NATS_NKEY_SEED}
    paths = [root / name for name in sorted(SECRETS)] + [Path(path) for path in named.values() if path]
    for path in [*paths, root / "run"]:
        try:
            info = path.stat()
        except FileNotFoundError:
            continue
        if info.st_mode & FOR_OTHERS:
            wrong += 1
            mode = "700" if path.is_dir() else "600"
            yield Finding(
                "secrets", "problem", f"{path} is open to other users of the machine (mode {info.st_mode & 0o777:o})",
                f"chmod {mode} {path}; then consider its content known, and change it",
            )  # fmt: skip
        elif info.st_uid not in {os.geteuid(), 0}:
            wrong += 1
            yield Finding(
                "secrets", "warning", f"{path} belongs to another user (uid {info.st_uid})",
                f"chown {os.geteuid()} {path}, or run the platform as that user",
            )  # fmt: skip
    if not wrong:
        yield Finding("secrets", "ok", "only the platform's user can read them")


def addresses() -> Iterator[Finding]:
    """Ask who can reach the gateways and the servers."""
    if settings.INNER_PORTS:
        yield Finding(
            "addresses", "warning",
            "with MLP_INNER_PORTS the platform's own servers listen on ports of the loopback interface, which every "
            "user of this machine can reach",
            "unset MLP_INNER_PORTS: they listen on unix sockets then",
        )  # fmt: skip
    if settings.EMAIL_HOST and not settings.GATEWAY_URL_GIVEN:
        yield Finding(
            "addresses", "warning",
            f"links in e-mails begin with {settings.GATEWAY_URL}, since MLP_URL is not set",
            "set MLP_URL to the address at which users reach the platform",
        )  # fmt: skip
    if _is_local(settings.MLP_HOST):
        yield Finding("addresses", "ok", f"the gateways listen on this machine only ({settings.MLP_HOST})")
    elif not settings.GATEWAY_URL.startswith("https://"):
        yield Finding(
            "addresses", "problem",
            f"the gateways listen on {settings.MLP_HOST} without TLS: passwords and tokens can be read on the network",
            "set MLP_TLS_CERT and MLP_TLS_KEY, or MLP_URL=https://… behind a proxy that ends TLS (docs/tls.md)",
        )  # fmt: skip
    elif not settings.TLS.cert and not settings.TRUSTED_PROXIES:
        yield Finding(
            "addresses", "warning",
            "TLS ends in front of the gateways, but MLP_TRUSTED_PROXIES is not set: all visitors seem to have the "
            "proxy's address, so limits for each address apply to all of them together",
            "name the proxy's address in MLP_TRUSTED_PROXIES (docs/tls.md)",
        )  # fmt: skip
    else:
        yield Finding("addresses", "ok", f"the gateways listen on {settings.MLP_HOST}, under TLS")


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def certificates() -> Iterator[Finding]:
    if not settings.TLS.cert:
        return
    problem, served = tls.problem(), tls.served()
    if problem:
        yield Finding("certificate", "problem", problem, "put a valid pair in its place: it is used without a restart")
    if served is None:
        return
    left, until = served.ends - datetime.now(UTC), f"{served.ends:%Y-%m-%d %H:%M} UTC"
    if left.total_seconds() < 0:
        yield Finding("certificate", "problem", f"the served one has expired on {until}", "renew it (docs/tls.md)")
    elif served.ends_soon:
        yield Finding(
            "certificate", "warning", f"the served one expires in {count(left.days, 'day')}, on {until}",
            "see why it was not renewed: the timer of the ACME client, its log (docs/tls.md)",
        )  # fmt: skip
    else:
        yield Finding("certificate", "ok", f"valid until {until}")
