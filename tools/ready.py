"""Whether .venv has the packages that requirements.txt names, or with the argument `dev` also those of
requirements-dev.txt. Run at each make by .venv's own Python; bootstrap.py writes the stamps that are compared here.

A .venv whose Python was upgraded or is gone, or that lacks its packages, is not ready, and bootstrap.py repairs it.
Which Python `make` itself would take does not matter as long as .venv works.
"""

import hashlib
import os
import sys

BASE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(BASE, ".venv")


def included(path):
    """Yield a requirements file and those that it includes."""
    yield path
    with open(path) as file:
        for line in file:
            if line.startswith("-r "):
                yield from included(os.path.join(BASE, line[3:].strip()))


class PackageSet:
    """A requirements file with those it includes, and the stamp that says it is installed in .venv."""

    def __init__(self, name, stamp, package):
        self.files = list(included(os.path.join(BASE, name)))
        self.stamp = os.path.join(VENV, stamp)
        self.package = package  # one that is imported to see that the stamp is true

    def stamped(self):
        """Return the content of the stamp, "" where there is none."""
        try:
            with open(self.stamp) as file:
                return file.read()
        except OSError:
            return ""

    def wanted(self):
        """Return what the stamp holds when .venv is right for the requirements and this Python."""
        digest = hashlib.sha256()
        for path in self.files:
            with open(path, "rb") as file:
                digest.update(file.read())
        return f"{digest.hexdigest()} {sys.version.split()[0]}\n"


RUN = PackageSet("requirements.txt", ".ready", "django")
DEV = PackageSet("requirements-dev.txt", ".ready-dev", "pytest")


def asked():
    """Return the package set that the command line names."""
    return DEV if sys.argv[1:] == ["dev"] else RUN


def main():
    packages = asked()
    if packages.stamped() != packages.wanted():
        return 1
    try:
        __import__(packages.package)
    except ImportError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
