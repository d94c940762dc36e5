"""Prints what a Python interpreter is and where its packages are, as JSON: `python -I facts.py MODULE...`.

`missing` are those of the modules that it lacks. Also imported by the platform, for its own interpreter. Standard
library only, and readable by any Python 3, so that one that is too old can say so.
"""

import importlib.util
import json
import os
import platform
import sys
import sysconfig

PACKAGES = ("site-packages", "dist-packages")


def facts(modules):
    """Return the facts of this interpreter; a module that is named with a dot must not be among them."""
    return {
        "executable": os.path.realpath(sys.executable),
        "version": sys.version,
        "release": platform.python_version(),
        "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "packages": [path for path in sys.path if os.path.basename(path) in PACKAGES],
        "purelib": sysconfig.get_path("purelib"),
        "missing": [name for name in modules if importlib.util.find_spec(name) is None],
    }


if __name__ == "__main__":
    print(json.dumps(facts(sys.argv[1:])))
