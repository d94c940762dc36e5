"""The certificate by which the embedded NATS server proves to the platform's processes who it is.

NATS listens on a port, which any process of the machine may take while the server is being restarted. The platform's
own connections therefore begin with TLS, before a byte of NATS is exchanged, and accept this one certificate only: an
impostor is sent nothing. Other clients may connect without TLS, as those of Opni do.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from pathlib import Path
from urllib.parse import ParseResult

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from django.conf import settings
from nats.aio.client import Client
from nats.aio.transport import TcpTransport

HOSTNAME = "nats.platform"
LIFETIME = datetime.timedelta(days=3650)
RENEWED = datetime.timedelta(days=365)  # before its end, at the server's next start


def certificate_path() -> Path:
    """Return the path of the certificate that the platform's processes accept."""
    return settings.MLP_ROOT / "run" / "nats" / "certificate.pem"


def key_path() -> Path:
    """Return the path of its private key, which only the server reads."""
    return certificate_path().with_name("key.pem")


def ensure() -> None:
    """Create key and certificate, unless there are some that are valid for long enough."""
    if _is_good():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOSTNAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # clocks may be set back
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOSTNAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The certificate last: an incomplete pair, left by a kill, is replaced.
    certificate_path().unlink(missing_ok=True)
    _write(key_path(), private)
    _write(certificate_path(), certificate.public_bytes(serialization.Encoding.PEM))


def _is_good() -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path().read_bytes())
        key = serialization.load_pem_private_key(key_path().read_bytes(), None)
    except (FileNotFoundError, ValueError):
        return False
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return left > RENEWED and key.public_key() == certificate.public_key()


def _write(path: Path, data: bytes) -> None:
    """Write a file that only the platform's user may read, whole or not at all."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def context() -> ssl.SSLContext:
    """Return what accepts the embedded server and nobody else. Raises OSError while it has never been started."""
    return ssl.create_default_context(cafile=str(certificate_path()))


class OwnServerOnly(TcpTransport):
    """A connection that begins with TLS and ends there unless the embedded server answers.

    The library's own ways will not do: by default it drops TLS when the server's greeting does not ask for it, and
    with `tls_handshake_first` it waits for ever after a handshake that failed.
    """

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        opening = asyncio.open_connection(
            uri.hostname,
            uri.port,
            limit=buffer_size,
            ssl=context(),
            server_hostname=HOSTNAME,
            ssl_handshake_timeout=connect_timeout,
            ssl_shutdown_timeout=1,
        )
        async with asyncio.timeout(connect_timeout):
            self._io_reader, self._io_writer = await opening

    async def connect_tls(self, *_) -> None:
        """Do nothing: the library asks for TLS, which is there since the connection began."""

    def __bool__(self) -> bool:
        return True  # the library replaces a transport that is false


def client() -> Client:
    """Return a NATS client, not connected yet, that talks to the embedded server and nobody else."""
    connection = Client()
    connection._transport = OwnServerOnly()
    return connection
