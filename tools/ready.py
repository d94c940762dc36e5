"""Whether .runs-venv has the packages that requirements-runs.txt names, and .venv those of requirements.txt, or with
the argument `dev` also those of requirements-dev.txt. Run at each make by .venv's own Python; bootstrap.py writes the
stamps that are compared here.

An environment whose Python was upgraded or is gone, or that lacks its packages, is not ready, and bootstrap.py repairs
it. Which Python `make` itself would take does not matter as long as .venv works.
"""

import hashlib
import importlib.util
import os
import sys

BASE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(BASE, ".venv")
# Of jobs, applications and other runs. Its path must not begin with that of .venv: pip takes for part of an environment
# whatever begins with its path, and would remove packages of runs where the platform needs another version.
RUNS_VENV = os.path.join(BASE, ".runs-venv")


def included(path):
    """Yield a requirements file and those that it includes."""
    yield path
    with open(path) as file:
        for line in file:
            if line.startswith("-r "):
                yield from included(os.path.join(BASE, line[3:].strip()))


def python_of(venv):
    return os.path.join(venv, "bin", "python")


class PackageSet:
    """A requirements file with those it includes, and the stamp that says it is installed in an environment.

    `base` is the package set that this one builds on.
    """

    def __init__(self, name, venv, stamp, package, base=None):
        self.requirements, self.venv, self.base = os.path.join(BASE, name), venv, base
        self.stamp = os.path.join(venv, stamp)
        self.package = package  # one that is looked for to see that the stamp is true

    def stamped(self):
        """Return the content of the stamp, "" where there is none."""
        try:
            with open(self.stamp) as file:
                return file.read()
        except OSError:
            return ""

    def wanted(self):
        """Return what the stamp holds when the environment is right for the requirements and this Python."""
        digest = hashlib.sha256()
        for path in self.files():
            with open(path, "rb") as file:
                digest.update(file.read())
        return f"{digest.hexdigest()} {sys.version.split()[0]}\n"

    def files(self):
        """Return the paths of all requirements files that it is made from."""
        return [*included(self.requirements), *(self.base.files() if self.base else ())]

    def is_stamped(self):
        """Return whether it is installed, and all that it builds on, by the stamps."""
        return (self.base is None or self.base.is_stamped()) and self.stamped() == self.wanted()


RUNS = PackageSet("requirements-runs.txt", RUNS_VENV, ".ready", "numpy")
PLATFORM = PackageSet("requirements.txt", VENV, ".ready", "django", RUNS)
DEV = PackageSet("requirements-dev.txt", VENV, ".ready-dev", "pytest", RUNS)  # it includes those of the platform


def asked():
    """Return the package set that the command line names."""
    return DEV if sys.argv[1:] == ["dev"] else PLATFORM


def main():
    packages = asked()
    if not packages.is_stamped() or not os.access(python_of(RUNS_VENV), os.X_OK):
        return 1
    return int(any(importlib.util.find_spec(name) is None for name in (RUNS.package, packages.package)))


if __name__ == "__main__":
    sys.exit(main())
