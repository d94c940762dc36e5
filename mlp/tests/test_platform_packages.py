"""The platform needs no package of runs: it imports, and sweeps search, with the packages of requirements.txt alone."""

from __future__ import annotations

import sys

import pytest
from django.conf import settings

from mlp.tests.closure import modules_of, only_with
from mlp.tests.test_architecture import product
from mlp.tests.test_requirements import EXTRAS

pytestmark = pytest.mark.long

OF_RUNS = (
    "apps/batch/program/",
    "apps/serving/",
    "jobs/notebooks/program/",
    "jobs/report/",
    "workspaces/program/",
    "runners/shim/",
)
LOADERS = ("models_app/loading.py", "models_app/mlmodel.py", "models_app/hugging_face.py", "models_app/pyfunc.py")
IMPORTS = """
import django
sys.path.insert(0, values[0])
django.setup()
for name in values[1]:
    importlib.import_module(name)
"""
SEARCHES = """
import optuna
samplers = optuna.samplers
for sampler in (samplers.TPESampler, samplers.GPSampler, samplers.QMCSampler, samplers.CmaEsSampler,
                samplers.NSGAIISampler):
    study = optuna.create_study(sampler=sampler(seed=1))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=12)
    optuna.importance.get_param_importances(study, evaluator=optuna.importance.PedAnovaImportanceEvaluator())
"""


def test_every_module_of_the_platform_is_imported_without_them(tmp_path):
    names = [
        str(path.relative_to(settings.BASE_DIR).with_suffix("")).replace("/", ".").removesuffix(".__init__")
        for path in product()
        if not str(path.relative_to(settings.BASE_DIR)).startswith((*OF_RUNS, *LOADERS, "client/"))
    ]
    assert len(names) > 500
    extras = (f"requirements-{extra}.txt" for extra in EXTRAS)
    given = {"DJANGO_SETTINGS_MODULE": "mlp.settings", "MLP_ROOT": str(tmp_path)}
    done = only_with(
        sys.executable, modules_of("requirements.txt", *extras), IMPORTS, [str(settings.BASE_DIR), names],
        env=given, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_sampler_of_sweeps_works_without_them():
    done = only_with(sys.executable, modules_of("requirements.txt"), SEARCHES)
    assert done.returncode == 0, done.stderr[-2000:]
