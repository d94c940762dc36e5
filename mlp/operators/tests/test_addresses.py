"""The operators' pages are routed in a process that has imported only the settings."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.conf import settings

CODE = "from django.urls import reverse; print(reverse('admin:audit'))"


@pytest.mark.long
def test_a_fresh_process_routes_the_admins_pages():
    command = [sys.executable, "manage.py", "shell", "--no-imports", "-c", CODE]
    done = subprocess.run(command, cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "/admin/audit/", done.stderr
