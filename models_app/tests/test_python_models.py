"""Models that only MLflow can load, such as a PythonModel: checked in an environment of their own requirements.txt."""

from __future__ import annotations

import os
import subprocess

import cloudpickle
import pytest
from django.conf import settings as all_settings

from jobs.packages import store
from jobs.packages.tests.wheels import wheel
from kernel import storage
from models_app.launching import PROGRAM

pytestmark = pytest.mark.django_db(transaction=True)

MLMODEL = """
flavors:
  python_function:
    cloudpickle_version: 3.1.1
    env: {conda: conda.yaml, virtualenv: python_env.yaml}
    loader_module: %s
    python_model: python_model.pkl
    python_version: 3.11.2
mlflow_version: 3.17.2
signature:
  inputs: '[{"type": "double", "name": "x", "required": true}]'
  outputs: '[{"type": "double", "name": "y", "required": true}]'
"""
STANDIN = """
# A stand-in for MLflow, which is large: it loads the pickle as mlflow.pyfunc does. `make mlflow` tries the real one.
import sys, types
import cloudpickle

class MlflowException(Exception):
    error_code, message = "INVALID_PARAMETER_VALUE", "the schema does not allow it"

def load_model(folder):
    with open(folder + "/python_model.pkl", "rb") as file:
        return cloudpickle.load(file)

pyfunc, exceptions = types.ModuleType("mlflow.pyfunc"), types.ModuleType("mlflow.exceptions")
pyfunc.load_model, exceptions.MlflowException = load_model, MlflowException
sys.modules |= {"mlflow.pyfunc": pyfunc, "mlflow.exceptions": exceptions}
"""
ADDS = """
class Adds:
    def predict(self, frame):
        import colours
        return {"y": frame["x"] + float(colours.__version__)}
model = Adds()
"""
ANSWERS = """
import sys
sys.path.insert(0, sys.argv[2])
import loading
sys.path.pop(0)

class Model:
    answer = None
    def predict(self, given):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

import mlflow, numpy, pandas
loaded_model = Model()
mlflow.pyfunc.load_model = lambda folder: loaded_model
model = loading.load(sys.argv[1])
for answer in (
    [1, 2], numpy.zeros((2, 3), "float32"), 5, pandas.Series(["a", "b"]), pandas.Series([1, 2], dtype="object"),
    pandas.DataFrame({"a": [1.5], "b": pandas.to_datetime(["2026-01-31"])}), {"t": ["x"]}, [{"deep": 1}], [[1], [2, 3]],
    mlflow.exceptions.MlflowException(),
):
    loaded_model.answer = answer
    try:
        print([(one["name"], one["datatype"], one["data"].tolist()) for one in model.predict(model.example())])
    except Exception as problem:
        print(type(problem).__name__, problem)
"""
ANSWERED = """
[('predict', 'INT64', [1, 2])]
[('predict', 'FP32', [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])]
[('predict', 'INT64', [5])]
[('predict', 'BYTES', ['a', 'b'])]
[('predict', 'INT64', [1, 2])]
[('a', 'FP64', [1.5]), ('b', 'BYTES', ['2026-01-31T00:00:00.
[('t', 'BYTES', ['x'])]
ValueError predict: the model returned dict; what can be answered are numbers and texts
ValueError predict: the model returned what is no array
WrongInput the schema does not allow it
"""


@pytest.fixture
def wheels(settings, tmp_path):
    folder = tmp_path / "wheels"
    wheel(folder, "mlflow", "3.17.2", STANDIN)
    wheel(folder, "colours", "5.0")
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


def pickled() -> bytes:
    """Return the pickle of a model whose class is in no module, as MLflow writes it."""
    names = {"__name__": "__main__"}
    exec(ADDS, names)
    return cloudpickle.dumps(names["model"])


def test_it_is_checked_with_the_packages_of_its_requirements(as_alice, uploaded, make_model, settled, wheels):
    uploaded("flow/MLmodel", MLMODEL % "mlflow.pyfunc.model")
    uploaded("flow/python_model.pkl", pickled())
    uploaded("flow/requirements.txt", "mlflow==3.17.2\ncloudpickle\ncolours==5.0\n")
    model = settled(make_model("home/flow"))
    assert (model.state, model.reason, model.format) == ("ready", "", "mlflow/pyfunc")
    assert [(spec["name"], spec["datatype"]) for spec in model.signature["inputs"]] == [("x", "FP64")]
    shown = as_alice.call("get", "users/alice/models/net").json()
    assert shown["requirements"] == "colours==5.0\nmlflow==3.17.2\n"


@pytest.mark.long
def test_another_version_than_the_platform_has_is_installed(uploaded, make_model, settled, wheels):
    """The pickle may need it: these requirements count as those of an author, unlike MLflow's lists otherwise."""
    wheel(wheels, "yarl", "0.1")
    uploaded("flow/MLmodel", MLMODEL % "mlflow.pyfunc.model")
    uploaded("flow/python_model.pkl", pickled())
    uploaded("flow/requirements.txt", "mlflow==3.17.2\ncolours==5.0\nyarl==0.1\n")
    assert "yarl==0.1\n" in settled(make_model("home/flow")).requirements


@pytest.mark.parametrize("loader", ["mlflow.pyfunc.model", "mlflow.lightgbm"])
def test_without_mlflow_the_error_says_what_to_add(tmp_path, loader):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/MLmodel").write_text(MLMODEL % loader)
    command = [all_settings.RUN_PYTHON, str(PROGRAM), str(tmp_path / "model"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == (
        f"MLmodel: a model that {loader} loads needs the Python package mlflow, which is not installed here; "
        "add mlflow==3.17.2 to requirements.txt beside MLmodel, or to the packages of the model\n"
    )


def test_a_pickle_of_another_python_that_does_not_load_names_both(tmp_path):
    text = (MLMODEL % "mlflow.pyfunc.model").replace("python_version: 3.11.2", "python_version: 3.8.10")
    for name, content in (("model/MLmodel", text), ("model/python_model.pkl", "?"), ("on_path/mlflow.py", STANDIN)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    command = [all_settings.RUN_PYTHON, str(PROGRAM), str(tmp_path / "model"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "on_path")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "the model was saved with Python 3.8.10 and does not load with 3." in done.stdout
    assert "UnpicklingError" in done.stdout


def test_what_such_a_model_may_return(tmp_path):
    for name, text in (("model/MLmodel", MLMODEL % "mlflow.pyfunc.model"), ("on_path/mlflow.py", STANDIN)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    command = [all_settings.RUN_PYTHON, "-c", ANSWERS, str(tmp_path / "model"), str(PROGRAM.parent)]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "on_path")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, start in zip(done.stdout.splitlines(), ANSWERED.strip().splitlines(), strict=True):
        assert line.startswith(start)
