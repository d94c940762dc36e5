"""A real LDAP server on the loopback interface: Debian's slapd, with TLS by a certificate of its own."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kernel.environment import Secret
from mlp.ldap_settings import Directory
from mlp.signin_settings import Rules
from mlp.tests.patience import LIMIT_S
from mlp.tests.servers import free_port

PROGRAM = shutil.which("slapd", path=os.environ.get("PATH", "") + ":/usr/sbin")
MISSING = "slapd is not installed: apt-get install slapd"
BASE = "dc=corp,dc=example"
# names of groups, and as they are written in DNs
GROUPS = {
    "ML, Berlin": r"ML\, Berlin",
    "C# + Go": r"C# \+ Go",
    "F# fans": "F# fans",
    "a=b": r"a\=b",
    "x; y": r"x\; y",
    'the "best"': r"the \"best\"",
    "Müller": "Müller",
    "back\\slash": r"back\\slash",
}
CONF = """include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/pid
TLSCACertificateFile {folder}/cert.pem
TLSCertificateFile {folder}/cert.pem
TLSCertificateKeyFile {folder}/key.pem
database mdb
suffix "{base}"
rootdn "cn=root,{base}"
rootpw secret
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="cn=search,{base}" read by self read by * none
"""
LDIF = """dn: {base}
objectClass: dcObject
objectClass: organization
o: corp
dc: corp

dn: cn=search,{base}
objectClass: organizationalRole
objectClass: simpleSecurityObject
cn: search
userPassword: search secret

dn: ou=people,{base}
objectClass: organizationalUnit
ou: people

dn: ou=groups,{base}
objectClass: organizationalUnit
ou: groups

dn: uid=anna.m2,ou=people,{base}
objectClass: inetOrgPerson
uid: anna.m2
cn: Anna
sn: M
mail: anna@corp.example
userPassword: directory password

dn: cn=ml,ou=groups,{base}
objectClass: groupOfNames
cn: ml
member: uid=anna.m2,ou=people,{base}
""" + "".join(
    f"""
dn: cn={dn},ou=groups,{{base}}
objectClass: groupOfNames
cn: {name}
member: uid=anna.m2,ou=people,{{base}}
"""
    for name, dn in GROUPS.items()
)


class Slapd:
    """The running server; `change` gives it LDIF."""

    def __init__(self, folder: Path):
        self.folder, self.port, self.tls_port = folder, free_port(), free_port()
        (folder / "data").mkdir()
        self._certificate()
        conf = folder / "slapd.conf"
        conf.write_text(CONF.format(folder=folder, base=BASE))
        ldif = folder / "people.ldif"
        ldif.write_text(LDIF.format(base=BASE))
        add = ["slapadd", "-f", str(conf), "-l", str(ldif)]
        environment = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin"}
        subprocess.run(add, check=True, capture_output=True, env=environment)
        urls = f"ldap://127.0.0.1:{self.port} ldaps://127.0.0.1:{self.tls_port}"
        self.process = subprocess.Popen(
            [PROGRAM, "-h", urls, "-f", str(conf), "-d", "0"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + LIMIT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                assert self.process.poll() is None, "slapd has ended"
                assert time.monotonic() < end, "slapd does not come up"
                time.sleep(0.05)

    def _certificate(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
        now, names = datetime.now(UTC), x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1),
                                       now + timedelta(1))  # fmt: skip
        builder = builder.add_extension(names, False).add_extension(x509.BasicConstraints(True, None), True)
        certificate = builder.sign(key, hashes.SHA256())
        (self.folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (self.folder / "key.pem").write_bytes(key.private_bytes(*plain))

    def settings(self, **changes) -> Directory:
        rules = {"allowed": (), "administrators": (), "tenants": (), "create": True, **changes.pop("rules", {})}
        usual = Directory(
            "127.0.0.1", self.port, "starttls", str(self.folder / "cert.pem"), f"cn=search,{BASE}",
            Secret("search secret"), "", f"ou=people,{BASE}", "(uid={username})", "entryUUID", f"ou=groups,{BASE}",
            "(|(member={dn})(memberUid={username}))", Rules(**rules),
        )  # fmt: skip
        return usual._replace(**changes)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def need() -> None:
    """Leave the tests out where slapd is not installed; CI installs it."""
    if PROGRAM is None:
        pytest.fail(MISSING) if os.environ.get("CI") else pytest.skip(MISSING)
