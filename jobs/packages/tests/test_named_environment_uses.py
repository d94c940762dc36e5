"""What names an environment besides jobs: models, applications, sweeps, schedules and pipelines; and its pages."""

from __future__ import annotations

import re

import pytest

from apps.models import Application
from automation.models import Sweep
from jobs import reconcile
from jobs.models import EnvironmentVersion, Job
from jobs.packages import store
from mlp.tests.patience import rest
from models_app import reconcile as models_reconcile
from models_app.models import Model

from .test_named_environments import NAMED, USES, make, settled, wheels  # noqa: F401 (fixtures)
from .wheels import wheel

pytestmark = pytest.mark.django_db(transaction=True)

PREDICTOR = """
import colours

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "colours-" + colours.__version__, "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        return []
"""


@pytest.fixture
def model(as_alice, home, tasks, make):  # noqa: F811
    """Return a ready model that names an environment."""
    make()
    (home / "net").mkdir()
    (home / "net" / "predictor.py").write_text(PREDICTOR)
    (home / "net" / "requirements.txt").write_text("no-such-package-at-all")
    made = as_alice.call("post", "users/alice/models", {"name": "net", "src": "home/net", "environment": "paint-cpu"})
    assert made.status_code == 201, made.content
    assert made.json()["environment"] == "paint-cpu@1"
    row = Model.objects.get(name="net")
    while row.state == "creating":
        tasks.run()
        reconcile.run()
        models_reconcile.run()
        row.refresh_from_db()
        rest(0.1)
    assert row.state == "ready", row.reason
    return row


def test_a_model_is_loaded_with_it_and_keeps_it(model, as_alice, settings):
    assert model.signature["outputs"][0]["name"] == "colours-1.0"
    shown = as_alice.call("get", "users/alice/models/net").json()
    assert (shown["environment"], shown["requirements"]) == ("paint-cpu@1", "colours==1.0\nhues==0.3\n")
    assert as_alice.refused("delete", f"{NAMED}/paint-cpu@1") == "state: the model net of alice uses this environment"
    as_alice.call("delete", "users/alice/models/net")
    assert as_alice.call("delete", f"{NAMED}/paint-cpu@1").status_code == 200


@pytest.mark.long
def test_an_application_is_served_with_its_own_in_place_of_the_models(model, make, as_alice):  # noqa: F811
    make("colours==2.0")
    body = {"name": "calc", "model_name": "net", "cpu": 0.1, "ram": 256, "environment": "paint-cpu"}
    made = as_alice.call("post", "users/alice/apps", body)
    assert (made.status_code, made.json().get("environment")) == (201, "paint-cpu@2"), made.content
    second = EnvironmentVersion.objects.get(number=2)
    from_disk = store.Environment(second.user_id, second.packages)
    assert from_disk.is_ready
    refusal = as_alice.refused("delete", f"{NAMED}/paint-cpu@2")
    assert refusal == "state: the application calc of alice uses this environment"
    refusal = as_alice.refused("delete", f"users/alice/environments/{second.packages}")
    assert refusal == "state: the environment paint-cpu@2 uses this environment"
    assert Application.objects.get(name="calc").environment_version == second


@pytest.mark.long
def test_a_sweep_keeps_the_version_that_it_began_with(make, as_alice, script):  # noqa: F811
    make()
    script(USES)
    body = {"name": "tune", "job": {"entry": "train.py", "environment": "paint-cpu"},
            "objective": {"metric": "loss", "direction": "minimize"},
            "space": {"lr": {"type": "float", "low": 0, "high": 1}}, "trials": 2}  # fmt: skip
    made = as_alice.call("post", "users/alice/sweeps", body)
    assert made.status_code == 201, made.content
    assert Sweep.objects.get().job["environment"] == "paint-cpu@1"
    make("colours==2.0")
    assert set(Job.objects.values_list("environment", flat=True)) == {"paint-cpu@1"}
    assert as_alice.refused("delete", f"{NAMED}/paint-cpu@1").startswith("state: the ")
    body["job"]["environment"] = "none"
    refusal = as_alice.refused("post", "users/alice/sweeps", {**body, "name": "other"})
    assert refusal == "job.environment: there is no environment none in the tenant default"


@pytest.mark.long
def test_a_schedule_means_the_newest_and_a_pipeline_keeps_it(make, as_alice, script):  # noqa: F811
    make()
    script(USES)
    job = {"entry": "train.py", "environment": "paint-cpu"}
    body = {"name": "night", "cron": "0 3 * * *", "job": job}
    made = as_alice.call("post", "users/alice/schedules", body)
    assert made.status_code == 201, made.content
    refusal = as_alice.refused("delete", f"{NAMED}/paint-cpu@1")
    assert refusal == "state: the schedule night of alice uses this environment"
    make("colours==2.0")
    assert as_alice.call("put", "users/alice/schedules/night:run").status_code == 200
    assert Job.objects.get().environment == "paint-cpu@2"
    flow = {"name": "flow", "steps": {"one": {**job, "environment": "paint-cpu@1"}}}
    made = as_alice.call("post", "users/alice/pipelines", flow)
    assert made.status_code == 201, made.content
    refusal = as_alice.refused("delete", f"{NAMED}/paint-cpu@1")
    assert refusal == "state: the pipeline flow of alice uses this environment"
    bad = {"name": "other", "steps": {"one": {**job, "environment": "none"}}}
    assert "there is no environment none" in as_alice.refused("post", "users/alice/pipelines", bad)


@pytest.mark.long
def test_the_pages_make_show_try_again_and_delete_a_version(client, alice, settled, wheels, home):  # noqa: F811
    client.force_login(alice)
    page = client.get("/environments/named").content.decode()
    assert "No named environments yet" in page
    made = client.post("/environments/named", {"name": "paint-cpu", "requirements": "colours==9"})
    assert made.status_code == 302, made.content.decode()
    settled()
    page = client.get(made["Location"]).content.decode()
    assert "colours==9: the index has no such version" in page
    assert "Try again" in page
    wheel(wheels, "colours", "9")
    client.post("/environments/named/paint-cpu@1/retry", {"tenant": "default"})
    settled()
    page = client.get(made["Location"]).content.decode()
    assert "Nothing uses it." in page
    assert " + colours==9" in page
    assert 'value="paint-cpu@1"' in client.get("/jobs?new=1").content.decode()
    (home / "train.py").write_text(USES)
    answer = client.post("/jobs", {"name": "fit", "entry": "train.py", "environment": "paint-cpu", "cpu": 1, "ram": 128,
                                   "find_requirements": "true"})  # fmt: skip
    assert answer.status_code == 302, re.findall('field-error.*|role="alert".*', answer.content.decode())
    assert Job.objects.get().environment == "paint-cpu@1"
    assert "paint-cpu@1" in client.get("/jobs/fit").content.decode()
    assert "The job fit of alice uses this environment" in client.get(made["Location"]).content.decode()
    assert "colours==9" in client.get("/environments/named?like=paint-cpu").content.decode()
    Job.objects.all().delete()
    answer = client.post("/environments/named/paint-cpu@1/delete", {"tenant": "default"}, follow=True)
    assert "paint-cpu@1 is being deleted." in answer.content.decode()
    settled()
    assert client.get(made["Location"]).status_code == 404
    assert not any(store.top().glob("*/*"))


def test_a_page_refuses_what_is_no_environment_beside_its_field(client, alice):
    client.force_login(alice)
    answer = client.post("/environments/named", {"name": "Paint CPU", "requirements": "colours"})
    assert "must be 1 to 50 characters" in answer.content.decode()
    assert not EnvironmentVersion.objects.exists()
