"""Applications run with the packages that their models were checked with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import requests

from apps.models import Application, Rollout
from jobs.models import EnvironmentVersion
from jobs.packages import building, store
from jobs.packages.tests.wheels import wheel
from kernel import storage
from mlp.tests.patience import LIMIT_S
from models_app import reconcile as models_reconcile
from models_app.models import Model

from .conftest import NAMES, bearer_of
from .test_apps import infer

pytestmark = pytest.mark.django_db(transaction=True)

NEEDY = """
import colours

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        add = float(colours.__version__)
        return [{"name": "y", "datatype": "FP32", "shape": x["shape"], "data": [v + add for v in x["data"]]}]
"""


MLFLOW = """
flavors:
  python_function: {loader_module: mlflow.sklearn, model_path: model.pkl, python_version: 3.11.2}
  sklearn: {pickled_model: model.pkl, serialization_format: pickle}
"""
PICKLES = """
import pickle
import colours
from sklearn.dummy import DummyRegressor
model = DummyRegressor(constant=1, strategy="constant").fit([[1]], [1])
model.shade = colours.Shade()
pickle.dump(model, open("model.pkl", "wb"))
"""


@pytest.fixture(autouse=True)
def wheels(settings, tmp_path):
    folder = tmp_path / "wheels"
    for version in ("10.0", "20.0"):
        wheel(folder, "colours", version)
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


@pytest.fixture
def needy(alice):
    """Return a function that makes a ready model which needs that version of a package."""

    def make(name: str, version: str) -> Model:
        folder = storage.model_dir("alice", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "predictor.py").write_text(NEEDY)
        return Model.objects.create(
            user=alice, tenant=alice.tenant, name=name, src="home/p.py", size=len(NEEDY), state="ready", reserved=False,
            requirements=f"colours=={version}\n",
        )  # fmt: skip

    return make


@pytest.mark.long
def test_it_is_served_with_its_packages_which_are_installed_again_where_they_are_gone(
    as_alice, deploy, ready, until, needy, settings
):
    settings.PACKAGES_DAYS = 0
    model = needy("shades", "10.0")
    app = ready(deploy(model_name="shades"))
    assert infer(app, [1, 2]) == [11, 12]
    model.refresh_from_db()
    environment = store.Environment(model.user_id, model.packages)
    building.evict()
    assert environment.is_ready  # it is in use
    as_alice.call("put", "users/alice/apps/calc:stop")
    until(lambda: not Application.objects.get(pk=app.pk).run_name)
    building.evict()
    assert not environment.folder.exists()
    as_alice.call("put", "users/alice/apps/calc:start")
    assert infer(ready(app), [1]) == [11]


def through(front: str, app: Application, user, values: list) -> list:
    """Return what the application answers a request through the gateway."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(values)], "data": values}
    answer = requests.post(f"{front}/alice/{app.name}/v2/models/{app.served_name}/infer", json={"inputs": [tensor]},
                           headers=bearer_of(user), timeout=LIMIT_S)  # fmt: skip
    assert answer.status_code == 200, answer.text
    return answer.json()["outputs"][0]["data"]


@pytest.mark.long
def test_with_a_named_environment_it_answers_through_the_gateway_and_names_the_package_that_is_gone(
    as_alice, alice, deploy, ready, until, needy, settings, front, wheels
):
    settings.PACKAGES_DAYS = 0
    settings.APP_MAX_FAILURES = 1
    needy("shades", "10.0")
    given = {"name": "paint", "requirements": "colours==20.0"}
    assert as_alice.call("post", "users/alice/named_environments", given).status_code == 201
    until(lambda: EnvironmentVersion.objects.get().state == "ready")
    app = ready(deploy(name=next(NAMES), model_name="shades", environment="paint"))
    assert through(front, app, alice, [1, 2]) == [21, 22]  # not the model's own 10.0
    version = EnvironmentVersion.objects.get()
    environment = store.Environment(version.user_id, version.packages)
    building.evict()
    assert environment.is_ready  # it is in use
    as_alice.call("put", f"users/alice/apps/{app.name}:stop")
    until(lambda: not Application.objects.get(pk=app.pk).run_name)
    building.evict()
    assert not environment.folder.exists()
    for file in wheels.glob("colours-20.0*"):
        file.unlink()
    as_alice.call("put", f"users/alice/apps/{app.name}:start")

    def has_failed() -> bool:
        app.refresh_from_db()
        return app.state == "error"

    until(has_failed)
    assert "there is no version of colours==20.0" in app.reason


@pytest.mark.long
def test_a_model_of_mlflow_is_served_with_the_requirements_beside_it(
    as_alice, alice, deploy, ready, until, front, wheels, tmp_path
):
    wheel(wheels, "colours", "30.0", "class Shade: pass")
    (whl,) = wheels.glob("colours-30.0*")
    folder = storage.home_dir("alice") / "flow"
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", PICKLES], cwd=folder, env={**os.environ, "PYTHONPATH": str(whl)}, check=True)
    (folder / "MLmodel").write_text(MLFLOW)
    (folder / "requirements.txt").write_text("mlflow==2.9.2\ncolours==30.0\n")
    assert as_alice.call("post", "users/alice/models", {"name": "flow", "src": "home/flow"}).status_code == 201

    def is_checked() -> bool:
        models_reconcile.run()
        return Model.objects.get(name="flow").state != "creating"

    until(is_checked)
    model = Model.objects.get(name="flow")
    assert (model.state, model.reason, model.requirements) == ("ready", "", "colours==30.0\n")
    app = ready(deploy(name=next(NAMES), model_name="flow"))
    answer = requests.post(f"{front}/alice/{app.name}/invocations", json={"inputs": [[1.0], [2.0]]},
                           headers=bearer_of(alice), timeout=LIMIT_S)  # fmt: skip
    assert answer.json()["predictions"] == [1.0, 1.0], answer.text


@pytest.mark.long
def test_it_moves_to_a_model_with_other_packages_while_it_answers(as_alice, deploy, ready, until, needy):
    needy("shades", "10.0")
    needy("tints", "20.0")
    app = ready(deploy(model_name="shades"))
    moved = as_alice.call("put", "users/alice/apps/calc/rollout", {"model_name": "tints"})
    assert moved.status_code == 200, moved.content

    def is_moved() -> bool:
        app.refresh_from_db()
        assert infer(app, [1]) in ([11], [21])
        return app.model.name == "tints" and not Rollout.objects.filter(app=app).exists()

    until(is_moved)
    assert infer(app, [1]) == [21]


@pytest.mark.long
def test_while_it_moves_both_models_packages_are_in_use(as_alice, deploy, ready, until, needy):
    needy("shades", "10.0")
    needy("tints", "20.0")
    app = ready(deploy(model_name="shades"))
    assert as_alice.call("put", "users/alice/apps/calc/rollout", {"model_name": "tints"}).status_code == 200
    until(lambda: Model.objects.get(name="tints").packages != "")
    for name in ("shades", "tints"):
        digest = Model.objects.get(name=name).packages
        address = f"users/alice/environments/{digest}"
        assert as_alice.refused("delete", address) == "state: the application calc uses this environment"
        uses = as_alice.call("get", address).json()["used_by"]
        assert {"kind": "application", "name": "calc"} in uses
    until(lambda: not Rollout.objects.filter(app=app).exists())


@pytest.mark.long
def test_packages_that_cannot_be_installed_leave_it_as_it_is(as_alice, deploy, ready, until, needy):
    needy("shades", "10.0")
    needy("none", "30.0")
    app = ready(deploy(model_name="shades"))
    assert as_alice.call("put", "users/alice/apps/calc/rollout", {"model_name": "none"}).status_code == 200
    until(lambda: Rollout.objects.filter(app=app, phase="failed").exists())
    assert "there is no version of colours==30.0" in Rollout.objects.get(app=app).reason
    assert infer(app, [1]) == [11]


@pytest.mark.long
def test_an_application_whose_packages_cannot_be_installed_ends_with_the_reason(deploy, until, needy, settings):
    settings.APP_MAX_FAILURES = 1
    needy("none", "30.0")
    app = deploy(model_name="none")

    def has_failed() -> bool:
        app.refresh_from_db()
        return app.state == "error"

    until(has_failed)
    assert "there is no version of colours==30.0" in app.reason
    assert not app.reserved
