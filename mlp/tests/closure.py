"""Which modules the packages of a requirements file bring, with all that these require; a process without others."""

from __future__ import annotations

import json
import subprocess
from importlib import metadata

from django.conf import settings
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ONLY = """
import importlib.machinery, json, sys
allowed, values = json.load(sys.stdin)
class Only:
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if "." not in name and "-packages/" in (getattr(spec, "origin", None) or "") and name not in allowed:
            raise ImportError(f"{name} is not among the packages")
        return spec
sys.meta_path.insert(0, Only())
"""


def modules_of(*files: str) -> set[str]:
    """Return the modules of the packages that requirements files name, and of all that they require."""
    lines = [line for file in files for line in (settings.BASE_DIR / file).read_text().splitlines()]
    waiting = [(Requirement(line), "") for line in lines if not line.startswith("#")]
    known: set[tuple[str, str]] = set()
    modules: set[str] = set()
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in {"", *requirement.extras} - {each for package, each in known if package == name}:
            known.add((name, wanted))
            distribution = metadata.distribution(name)
            modules |= {file.parts[0].partition(".")[0] for file in distribution.files or ()}
            waiting += [(Requirement(line), wanted) for line in distribution.requires or ()]
    return modules


def only_with(python: str, allowed: set[str], program: str, values=None, **options) -> subprocess.CompletedProcess:
    """Run a program, which finds `values`, in a Python that imports no installed module but these."""
    given = json.dumps([sorted(allowed), values])
    command = [python, "-W", "ignore", "-c", ONLY + program]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, **options)
