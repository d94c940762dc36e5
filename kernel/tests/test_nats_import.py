"""The client of NATS is loaded without aiohttp, which others still get."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from django.conf import settings

from mlp.tests.patience import LIMIT_S

LOADS = """
import json, sys
import django

django.setup()
import kernel.bus
loaded = "aiohttp" in sys.modules
import aiohttp
print(json.dumps([loaded, aiohttp.ClientSession.__name__]))
"""


def test_the_message_bus_does_without_aiohttp():
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    command = [sys.executable, "-c", LOADS]
    done = subprocess.run(
        command, cwd=settings.BASE_DIR, env=environment, timeout=LIMIT_S, check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == [False, "ClientSession"]
