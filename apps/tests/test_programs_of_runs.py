"""The platform's programs in runs need what runs have, and nothing that only the platform has."""

from __future__ import annotations

import json

import pytest
from django.conf import settings

from apps.launching import SERVING
from jobs.environment import REPORT_DIR
from jobs.packages.building import PROGRAM as INSTALLER
from mlp.tests.closure import modules_of, only_with
from mlp.tests.tiers import later
from models_app.launching import LOADER_FILES, PROGRAM

OF_USERS = {"lightning", "keras"}  # packages that a user's script brings
WITH_TORCH = {"train", "chat_transformers"}  # whose import takes seconds
IMPORTS = """
folders, modules = values
sys.path[:0] = folders
print(json.dumps([name for name in modules if importlib.import_module(name)]))
"""


@pytest.mark.parametrize("left_out", [WITH_TORCH, later(set(), id="all")])
def test_each_program_imports_with_the_packages_of_runs(left_out):
    report = REPORT_DIR / "mlp_report"
    modules = [
        *(path.stem for path in SERVING.glob("*.py")),
        *(name.removesuffix(".py") for name in LOADER_FILES),
        *(f"mlp_report.{path.stem}" for path in report.glob("[!_]*.py")),
        *("mlp_report", "opnilog.train", "install"),
    ]
    modules = sorted(name for name in modules if name.rpartition(".")[2] not in {*OF_USERS, *left_out, "__init__"})
    folders = [str(folder) for folder in (SERVING, PROGRAM.parent, REPORT_DIR, INSTALLER, settings.BASE_DIR)]
    done = only_with(
        settings.RUN_PYTHON, modules_of("requirements-runs.txt"), IMPORTS, [folders, modules], cwd="/", env={}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == modules
    assert {"server", "loading", "chat", "mlp_report.sending"} <= set(modules)
