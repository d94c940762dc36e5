"""Looks up the known vulnerabilities of what the platform runs with, the components of `make sbom`: `make audit`.

OSV.dev collects the advisories of PyPI, GitHub and Go's vulnerability database. It knows Python packages and the NATS
server; for PostgreSQL, Valkey, nginx and OpenSSL give the bill of materials to a scanner that compares CPEs.

The exit status is 0 when nothing is known, 1 when something is, and 2 when the database cannot be reached, which is no
result.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import sbom

DATABASE = "https://api.osv.dev"
KNOWN_HERE = ("pypi", "golang", "npm")
LIMIT_S = 30
AT_ONCE = 500


def vulnerabilities(purls: list[str], database: str) -> dict[str, list[str]]:
    """Return the ids of the known vulnerabilities of each component that has any. Raises OSError."""
    by_purl: dict[str, list[str]] = {}
    for first in range(0, len(purls), AT_ONCE):
        part = purls[first : first + AT_ONCE]
        results = _ask(f"{database}/v1/querybatch", {"queries": [{"package": {"purl": purl}} for purl in part]})[
            "results"
        ]
        if len(results) != len(part):
            raise OSError(f"{database} answered {len(results)} of {len(part)} queries")
        for purl, result in zip(part, results, strict=True):
            if ids := [vuln["id"] for vuln in result.get("vulns", [])]:
                by_purl[purl] = sorted(ids)
    return by_purl


def _ask(url: str, body: dict) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)


def purls() -> list[str]:
    components: Iterable = sbom.make().components
    return sorted(str(component.purl) for component in components if component.purl.type in KNOWN_HERE)


def main() -> int:
    database, asked = os.environ.get("OSV_URL", DATABASE).rstrip("/"), purls()
    try:
        vulnerable = vulnerabilities(asked, database)
    except (OSError, ValueError, KeyError) as problem:
        print(f"make audit: NOT CHECKED: {database} cannot be reached ({problem})", file=sys.stderr)
        return 2
    for purl, ids in vulnerable.items():
        print(f"{purl}: {', '.join(f'https://osv.dev/{vulnerability}' for vulnerability in ids)}")
    print(f"{len(asked)} components checked, {len(vulnerable)} with known vulnerabilities")
    return 1 if vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
