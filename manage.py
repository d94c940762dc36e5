#!/usr/bin/env python
"""Django's command line: `manage.py up`, or `mlp up` when installed with pip, runs the whole platform.

Every other command (`manage.py help` lists them) is in the management/commands/ of an app.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line

BASE_DIR = str(Path(__file__).resolve().parent)


def main() -> None:
    """Run the command that the command line names."""
    if BASE_DIR not in sys.path:  # the installed `mlp` command: our packages lie in a folder of their own
        sys.path.insert(0, BASE_DIR)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
    try:
        _ = settings.MLP_ROOT  # reads the settings: an error in them is reported in one line
    except (ImproperlyConfigured, OSError) as problem:
        sys.exit(f"settings: {problem}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
