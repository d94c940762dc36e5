"""The gateways' certificate: checked at the start, and put into use again whenever its files are replaced.

nginx and NATS read a copy, {root}/run/tls/pair.pem: key and certificates in one file, so that they are replaced
together, and only once they have been checked; a program that renews the certificate writes two files, one after the
other. nginx reads the copy at each handshake (`ssl_certificate` with a variable), so it is not reloaded and no
connection is dropped; NATS reads it at SIGHUP and keeps its connections.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from kernel import machine

from .part import run_dir, write_private

SOON = timedelta(days=14)
SHARE = 4  # of its whole time, for certificates that are short-lived
WEAKEST_RSA = 2048
MAX_BYTES = 1 << 20


class BadCertificate(Exception):
    """The files cannot be used; the message names the setting and the file."""


class Pair(NamedTuple):
    """A certificate with its key: the whole text as nginx and NATS read it."""

    text: str
    names: tuple[str, ...]
    begins: datetime
    ends: datetime

    @property
    def ends_soon(self) -> bool:
        """Return whether it should have been renewed by now."""
        return self.ends - datetime.now(UTC) < min(SOON, (self.ends - self.begins) / SHARE)


def pair_path() -> Path:
    """Return the path of the copy that the servers read."""
    return run_dir() / "tls" / "pair.pem"


def trust_path() -> Path:
    """Return the path of the certificates that jobs trust where MLP_TLS_CA is given; any run's user may read it."""
    return run_dir() / "trust" / "ca" / "ca.pem"


# --- the files -------------------------------------------------------------------------------------------------------
def load() -> Pair:
    """Return what MLP_TLS_CERT and MLP_TLS_KEY name now. Raises BadCertificate."""
    cert, key = settings.TLS.cert, settings.TLS.key
    chain = _certificates("MLP_TLS_CERT", cert)
    private = _key(key)
    leaf = chain[0]
    if private.public_key() != leaf.public_key():
        if any(private.public_key() == other.public_key() for other in chain):
            raise BadCertificate(f"MLP_TLS_CERT: the first certificate in {cert} must be the server's own")
        raise BadCertificate(f"MLP_TLS_KEY: the key in {key} does not belong to the certificate in {cert}")
    if isinstance(private, rsa.RSAPrivateKey) and private.key_size < WEAKEST_RSA:
        raise BadCertificate(f"MLP_TLS_KEY: an RSA key must have at least {WEAKEST_RSA} bits, not {private.key_size}")
    now, begins, ends = datetime.now(UTC), leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if now > ends:
        raise BadCertificate(f"MLP_TLS_CERT: the certificate in {cert} has expired on {ends:%Y-%m-%d %H:%M} UTC")
    if now < begins:
        raise BadCertificate(
            f"MLP_TLS_CERT: the certificate in {cert} is not valid before {begins:%Y-%m-%d %H:%M} UTC; is this "
            "machine's clock right?"
        )
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    text = private.private_bytes(*form) + b"".join(certificate.public_bytes(form[0]) for certificate in chain)
    return Pair(text.decode(), _names(leaf), begins, ends)


def _read(setting: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as problem:
        user, why = machine.user_name(), problem.strerror
        raise BadCertificate(f"{setting}: {path} cannot be read by the user {user}: {why}") from problem


def _certificates(setting: str, path: Path) -> list[x509.Certificate]:
    data = _read(setting, path)
    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError as problem:
        raise BadCertificate(f"{setting}: {path} has no valid certificate in PEM format") from problem


def _key(path: Path):
    data = _read("MLP_TLS_KEY", path)
    try:
        return serialization.load_pem_private_key(data, None)
    except TypeError as problem:  # it has a passphrase, which nobody could enter
        raise BadCertificate(f"MLP_TLS_KEY: the key in {path} is encrypted; remove its passphrase") from problem
    except ValueError as problem:
        raise BadCertificate(f"MLP_TLS_KEY: {path} has no valid private key in PEM format") from problem


def _names(leaf: x509.Certificate) -> tuple[str, ...]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value) for name in names)


# --- in use ----------------------------------------------------------------------------------------------------------
def install() -> None:
    """Check the files and write what the servers and the jobs read. Raises ImproperlyConfigured."""
    try:
        if settings.TLS.cert:
            write_private(pair_path(), load().text)
            (settings.MLP_ROOT / "acme").mkdir(mode=0o700, exist_ok=True)
        if settings.TLS.ca:
            _write_trusted()
    except BadCertificate as problem:
        raise ImproperlyConfigured(str(problem)) from problem


def _write_trusted() -> None:
    """Write those of the public authorities and of MLP_TLS_CA to one file, which a program reads instead of its own."""
    own = _certificates("MLP_TLS_CA", settings.TLS.ca)
    public = ssl.get_default_verify_paths().cafile
    text = Path(public).read_text(errors="replace").rstrip("\n") + "\n" if public else ""
    text += "".join(certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in own)
    path = trust_path()
    path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.mkdir(mode=0o755, exist_ok=True)
    path.parent.chmod(0o755)
    write_private(path, text)
    path.chmod(0o644)


def served() -> Pair | None:
    """Return what the servers use now; None without TLS."""
    if not settings.TLS.cert:
        return None
    try:
        text = pair_path().read_text()
        leaf = x509.load_pem_x509_certificates(text.encode())[0]
    except (OSError, ValueError):
        return None
    return Pair(text, _names(leaf), leaf.not_valid_before_utc, leaf.not_valid_after_utc)


def problem() -> str:
    """Return why the files cannot be used now, "" where they can or there are none."""
    if not settings.TLS.cert:
        return ""
    try:
        load()
    except BadCertificate as bad:
        return str(bad)
    return ""


class Watcher:
    """Puts a replaced certificate into use. Files that cannot be used change nothing: the servers keep the old one."""

    def __init__(self, reload: Callable[[], object]):
        self.reload = reload  # what a server needs that does not look by itself
        self.applied = _fingerprint()
        self.said = ""

    def poll(self, say: Callable[[str], None]) -> None:
        """Check the files, and say what came of a change."""
        fingerprint = _fingerprint()
        if fingerprint == self.applied:
            return
        try:
            pair = load()
        except BadCertificate as bad:
            if str(bad) != self.said:
                self.said = str(bad)
                say(f"the new TLS certificate is not used: {bad}")
            return
        write_private(pair_path(), pair.text)
        self.applied, self.said = fingerprint, ""
        self.reload()
        say(f"the TLS certificate was replaced; it is valid until {pair.ends:%Y-%m-%d %H:%M} UTC")


def _fingerprint() -> tuple:
    """Return what changes when one of the files does: they may be links to others, or be written in place."""
    marks = []
    for path in (settings.TLS.cert, settings.TLS.key):
        try:
            info = os.stat(path)
            marks.append((info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns))
        except (OSError, TypeError):  # missing; or there is no TLS
            marks.append(None)
    return tuple(marks)
