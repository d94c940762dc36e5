"""The services at rest: torch is not loaded before there is a line to score, also where a model serves."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.conf import settings

from opnilog.store import NEEDED, SERVING

MAX_MIB = 150
AT_REST = """
import sys
import django
django.setup()

class Torch:
    asked = False

    def find_spec(self, name, *rest):
        if name == "torch":
            Torch.asked = True
            raise ImportError("loading it takes seconds, and that it is wanted is enough")

sys.meta_path.insert(0, Torch())
from aiops.services.registry import SERVICES, make
services = {name: make(name) for name in SERVICES}
for name in ("inference", "gpu-controller"):
    services[name].model.poll()
assert services["inference"].model.version is None
loaded = sorted({"torch", "numpy", "opensearchpy", "kubernetes", "opnilog.score"} & sys.modules.keys())
# Not getrusage: its maximum is also that of the process that started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(loaded, Torch.asked, int(peak.split()[1]) // 1024)
try:
    services["inference"].model.judge([type("Line", (), {"masked_log": "one"})()])
except ImportError:
    pass
print(Torch.asked)
"""


@pytest.mark.long
def test_torch_is_loaded_with_the_first_line_to_score(tmp_path):
    version = tmp_path / "aiops" / "models" / "v000001"
    version.mkdir(parents=True)
    for name in NEEDED:
        (version / name).write_text("{}")
    (version.parent / SERVING).write_text("v000001")
    environment = {**os.environ, "MLP_ROOT": str(tmp_path), "DJANGO_SETTINGS_MODULE": "mlp.settings"}
    done = subprocess.run(
        [sys.executable, "-c", AT_REST], cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    at_rest, after = done.stdout.splitlines()[-2:]
    loaded, memory = at_rest.rsplit(" ", 1)
    assert (loaded, after) == ("[] False", "True")
    assert int(memory) <= MAX_MIB
