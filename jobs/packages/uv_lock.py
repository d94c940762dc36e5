"""The requirements that a `uv.lock` names: what `uv sync --no-dev` would install of an index, an address or a git
repository here, each in its version.

The format is that of lock version 1, https://docs.astral.sh/uv/concepts/projects/layout/#the-lockfile: packages with
their dependencies, of which those count whose markers hold for this Python and its platform.
"""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import parse_qs, urlsplit

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from kernel.errors import Refused
from kernel.messages import Message
from runners import interpreter

VERSION = 1
HERE = ({"virtual": "."}, {"editable": "."})  # the project itself
LOCAL = ("editable", "directory", "path")


class Malformed(Exception):
    """It is not a lock of this format."""


def pins(lock: dict, project: str) -> list[str]:
    """Return one requirement for each package that the project needs, sorted. `lock` is the parsed file, `project` the
    name in pyproject.toml. Raises Refused for packages that are folders of the user's, and for what is no such lock.
    """
    try:
        return _pins(lock, project)
    except (Malformed, KeyError, TypeError, AttributeError, ValueError) as problem:
        raise Refused("not a lock that is understood here (version 1)") from problem


def _pins(lock: dict, project: str) -> list[str]:
    if lock["version"] != VERSION:
        raise Malformed
    packages: dict[str, list[dict]] = defaultdict(list)
    for package in lock.get("package", []):
        packages[package["name"]].append(package)
    root = _root(packages, project)
    lines: dict[str, str] = {}
    seen: set[tuple[int, str]] = set()
    waiting: list[tuple[dict, str]] = [(root, "")]
    while waiting:
        package, extra = waiting.pop()
        if (id(package), extra) in seen:
            continue
        seen.add((id(package), extra))
        if package is not root and (line := _line(package)):
            lines[package["name"]] = line
        needed = package.get("optional-dependencies", {}).get(extra, []) if extra else package.get("dependencies", [])
        for dependency in needed:
            if _holds(dependency.get("marker", ""), extra):
                chosen = _chosen(packages[dependency["name"]], dependency)
                waiting += [(chosen, each) for each in ("", *dependency.get("extra", []))]
    return [lines[name] for name in sorted(lines)]


def _root(packages: dict[str, list[dict]], project: str) -> dict:
    everything = [package for versions in packages.values() for package in versions]
    for package in everything:
        if package["source"] in HERE:
            return package
    for package in packages[canonicalize_name(project)]:
        return package
    raise Malformed


def _chosen(versions: list[dict], dependency: dict) -> dict:
    """Return the package that a dependency means, of those with its name."""
    for key in ("version", "source"):
        if key in dependency:
            versions = [package for package in versions if package.get(key) == dependency[key]]
    here = [package for package in versions if any(map(_holds, package.get("resolution-markers", [""])))]
    if len(here) != 1:
        raise Malformed
    return here[0]


def _holds(marker: str, extra: str = "") -> bool:
    try:
        return not marker or Marker(marker).evaluate({"extra": extra, **interpreter.of_runs().marks})
    except InvalidMarker as problem:
        raise Malformed from problem


def _line(package: dict) -> str:
    """Return the requirement of a package, "" for one that is only a list of others. Raises Refused."""
    name, source = package["name"], package["source"]
    if "registry" in source:
        return f"{name}=={package['version']}"
    if "url" in source:
        return f"{name} @ {source['url']}"
    if "git" in source:
        parts = urlsplit(source["git"])
        folder = parse_qs(parts.query).get("subdirectory", [""])[0]
        address = parts._replace(query="", fragment="").geturl()
        return f"{name} @ git+{address}@{parts.fragment}" + (f"#subdirectory={folder}" if folder else "")
    if any(kind in source for kind in LOCAL):
        raise Refused(Message("%(name)s is a folder or file of your own; only packages of an index, an address or a "
                              "git repository can be installed", name=name))  # fmt: skip
    if "virtual" in source:
        return ""
    raise Malformed
