"""Whether .venv is as requirements.txt wants it. Run at each make by .venv's own Python; bootstrap.py makes the stamp.

A .venv whose Python was upgraded or is gone, or that lacks its packages, says no (or nothing at all), and is made anew.
Which Python `make` itself would take does not matter as long as .venv works.
"""

import hashlib
import os
import sys

BASE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(BASE, ".venv")
STAMP = os.path.join(VENV, ".ready")
REQUIREMENTS = os.path.join(BASE, "requirements.txt")


def stamped():
    try:
        with open(STAMP) as file:
            return file.read()
    except OSError:
        return ""


def wanted():
    """What the stamp holds when .venv is as requirements.txt and this Python want it."""
    with open(REQUIREMENTS, "rb") as file:
        return f"{hashlib.sha256(file.read()).hexdigest()} {sys.version.split()[0]}\n"


def main():
    if stamped() != wanted():
        return 1
    try:
        import django  # noqa: F401 (only whether it is there)
    except ImportError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
