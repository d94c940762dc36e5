"""Applications run with the packages that their models were checked with."""

from __future__ import annotations

import pytest

from apps.models import Application, Rollout
from jobs.packages import building, store
from jobs.packages.tests.wheels import wheel
from kernel import storage
from models_app.models import Model

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
    assert "No matching distribution found for colours==30.0" in Rollout.objects.get(app=app).reason
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
    assert "No matching distribution found for colours==30.0" in app.reason
    assert not app.reserved
