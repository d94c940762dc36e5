"""An authority of the tests' own, and the certificates that it issues."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
NAMES = ("localhost", "mlp.test")


class Authority:
    """Signs certificates. `path` is a file with its own."""

    def __init__(self, folder: Path):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        self.certificate = self._signed(self.name, self.key, -DAY, 365 * DAY, x509.BasicConstraints(True, 0))
        self.path = folder / "authority.pem"
        self.path.write_bytes(pem(self.certificate))

    def issue(self, begins: timedelta = -DAY, ends: timedelta = 90 * DAY, key=None) -> tuple[bytes, bytes, int]:
        """Return a certificate with the authority's own behind it, its key, and its serial number."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAMES[0])])
        certificate = self._signed(name, key, begins, ends, x509.BasicConstraints(False, None))
        return pem(certificate) + pem(self.certificate), private(key), certificate.serial_number

    def write(self, **options) -> int:
        """Write a new pair to cert.pem and key.pem, one after the other, as a program that renews it does."""
        cert, key, serial = self.issue(**options)
        self.put("cert.pem", cert)
        self.put("key.pem", key)
        return serial

    def put(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)

    def environment(self) -> dict[str, str]:
        """Return the settings of a platform that uses the pair."""
        files = {"MLP_TLS_CERT": "cert.pem", "MLP_TLS_KEY": "key.pem", "MLP_TLS_CA": self.path.name}
        return {name: str(self.folder / file) for name, file in files.items()}

    def _signed(self, name, key, begins, ends, constraints) -> x509.Certificate:
        now = datetime.now(UTC)
        alternatives = [x509.DNSName(name) for name in NAMES] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self.name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now + begins).not_valid_after(now + ends)
        builder = builder.add_extension(constraints, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self.key.public_key())
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False
        )
        if constraints.ca:
            builder = builder.add_extension(identifier, critical=False)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def private(key, passphrase: bytes = b"") -> bytes:
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    hidden = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    return key.private_bytes(*form, hidden)


def weak_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 1024)
