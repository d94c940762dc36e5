#!/usr/bin/env python
"""Django's command line: `manage.py up` runs the whole platform (see mlp/management/commands)."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mlp.settings")
    try:
        _ = settings.MLP_ROOT  # reads the settings: what is wrong with them is told in one line
    except (ImproperlyConfigured, OSError) as problem:
        sys.exit(f"settings: {problem}")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
