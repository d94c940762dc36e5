"""The packages that a model is loaded with: its job's, or those that requirements.txt beside it names."""

from __future__ import annotations

import codecs
import time

import pytest

import runners
from jobs import reconcile as jobs_reconcile
from jobs.models import Job
from jobs.packages import building, store
from jobs.packages.tests.wheels import wheel
from kernel import storage
from mlp.tests.page_world import visitor
from mlp.tests.patience import LIMIT_S, rest
from models_app import reconcile
from models_app.models import Model
from resources.models import Network, Tenant

pytestmark = pytest.mark.django_db(transaction=True)

NEEDY = """
import colours, sys

class Predictor:
    inputs = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    outputs = [{"name": "colours-" + colours.__version__, "datatype": "FP32", "shape": [-1]}]

    def predict(self, inputs):
        (x,) = inputs
        return [{"name": "colours-" + colours.__version__, "datatype": "FP32", "shape": x["shape"], "data": x["data"]}]
"""
TRAINS = f"""
import colours, os
os.makedirs("model")
open("model/predictor.py", "w").write({NEEDY!r})
"""


@pytest.fixture(autouse=True)
def wheels(settings, tmp_path):
    """Return a folder with wheels, which is the administrator's index, and forget all environments."""
    folder = tmp_path / "wheels"
    wheel(folder, "colours", "1.0")
    wheel(folder, "colours", "2.0", requires=("hues",))
    wheel(folder, "hues", "0.3")
    settings.PIP_INDEX_URL = folder.as_uri()
    storage.remove(store.top())
    return folder


@pytest.fixture
def installations(monkeypatch) -> list[str]:
    """Return the names of the installations that start."""
    started: list[str] = []
    real = building._spec

    def spec(environment, need):
        started.append(environment.run_name)
        return real(environment, need)

    monkeypatch.setattr(building, "_spec", spec)
    return started


@pytest.fixture
def trained(as_alice, home, tasks):
    """Return a function that trains a model in a job with these packages and returns the job, which has finished."""

    def train(requirements: str, script: str = TRAINS) -> Job:
        (home / "train.py").write_text(script)
        made = as_alice.call(
            "post", "users/alice/jobs", {"name": "fit", "entry": "train.py", "requirements": requirements}
        )
        assert made.status_code == 201, made.content
        job, end = Job.objects.get(name="fit"), time.monotonic() + LIMIT_S
        while (job.state != "finished" or job.run_name) and time.monotonic() < end:
            assert job.state != "error", job.reason
            tasks.run()
            jobs_reconcile.run()
            job.refresh_from_db()
            rest(0.1)
        return job

    return train


def outputs(model: Model) -> list[str]:
    return [output["name"] for output in model.signature["outputs"]]


def test_a_model_is_checked_with_the_packages_of_its_job(as_alice, trained, make_model, settled, installations):
    job = trained("colours")
    model = settled(make_model("jobs/fit/model"))
    assert (model.state, model.reason) == ("ready", "")
    assert outputs(model) == ["colours-2.0"]
    assert (installations, model.packages) == ([f"pkg-{job.user_id}-{job.packages}"], job.packages)
    shown = as_alice.call("get", "users/alice/models/net").json()
    assert shown["requirements"] == "colours==2.0\nhues==0.3\n"


@pytest.mark.long
def test_what_was_removed_is_installed_again_in_the_versions_of_the_training(trained, make_model, settled, wheels):
    trained("colours")
    wheel(wheels, "colours", "3.0")
    storage.remove(store.top())
    model = settled(make_model("jobs/fit/model"))
    assert outputs(model) == ["colours-3.0"]  # nobody has seen what the job had
    storage.remove(store.top())
    wheel(wheels, "colours", "4.0")
    Model.objects.filter(pk=model.pk).update(state="creating", run_name=f"model-{model.pk}", run_ordered=None)
    assert outputs(settled(Model.objects.get(pk=model.pk))) == ["colours-3.0"]


def test_without_its_packages_the_model_does_not_load(uploaded, make_model, settled):
    model = settled(make_model(uploaded("net/predictor.py", NEEDY)))
    assert model.state == "error"
    assert "No module named 'colours'" in model.reason


def test_requirements_beside_an_uploaded_model_are_installed(as_alice, uploaded, make_model, settled):
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", "# what it needs\ncolours==1.0  # exactly\nnumpy\n-r more.txt\n")
    uploaded("net/more.txt", "hues\n")
    model = settled(make_model("home/net"))
    assert (model.state, model.reason) == ("ready", "")
    assert outputs(model) == ["colours-1.0"]
    assert as_alice.call("get", "users/alice/models/net").json()["requirements"] == "colours==1.0\nhues==0.3\n"


@pytest.mark.long
def test_packages_that_are_given_count_before_all_others(as_alice, uploaded, settled, trained):
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", "colours==2.0")
    body = {"name": "net", "src": "home/net", "requirements": "# these\ncolours==1.0"}
    assert as_alice.call("post", "users/alice/models", body).status_code == 201
    assert outputs(settled(Model.objects.get(name="net"))) == ["colours-1.0"]
    trained("colours==2.0")
    body = {"name": "other", "src": "jobs/fit/model", "requirements": "colours==1.0"}
    assert as_alice.call("post", "users/alice/models", body).status_code == 201
    assert outputs(settled(Model.objects.get(name="other"))) == ["colours-1.0"]


def test_passwords_in_addresses_are_not_shown(as_alice, alice, uploaded, tasks):
    lines = "\n".join(
        [
            "x @ https://ann:s3cret@host.test/x-1-py3-none-any.whl",
            "y @ git+https://t0ken@host.test/y",
            "z @ git+ssh://git@host.test/z",
        ]
    )
    body = {"name": "net", "src": uploaded("net/predictor.py"), "requirements": lines}
    answer = as_alice.call("post", "users/alice/models", body)
    page = visitor(alice).get("/models/net").content.decode()
    for text in (answer.json()["requirements"], page):
        assert "s3cret" not in text
        assert "t0ken" not in text
        assert "git+ssh://git@host.test/z" in text
    assert Model.objects.get().requirements.startswith("x @ https://ann:s3cret@host.test/")


@pytest.mark.parametrize("lines", ["-r more.txt", "--pre x", "./x", "x\n" * 1001])
def test_what_is_no_requirement_makes_no_model(as_alice, uploaded, lines):
    body = {"name": "net", "src": uploaded("net/predictor.py"), "requirements": lines}
    assert as_alice.refused("post", "users/alice/models", body).startswith("requirements: ")
    assert not Model.objects.exists()


def test_the_form_takes_packages_and_says_what_is_none(alice, uploaded, settled):
    page = visitor(alice)
    fields = {"name": "net", "src": uploaded("net/predictor.py", NEEDY), "requirements": "--pre colours"}
    refused = page.post("/models", fields).content.decode()
    assert "--pre colours is not a requirement" in refused
    assert page.post("/models", fields | {"requirements": "colours==1.0"}).status_code == 302
    assert outputs(settled(Model.objects.get(name="net"))) == ["colours-1.0"]


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ("colours==9.9\n", "there is no version of colours==9.9"),
        ("-r ../secret.txt\n", "requirements.txt: ../secret.txt is not below the folder"),
        ("--index-url https://other.test/simple\ncolours\n", "requirements.txt: --index-url"),
        ("-r gone.txt\n", "gone.txt is not among the files of the model"),
        ("colours; python_version ~= 'three'\n", "its packages could not be installed"),
    ],
)
def test_what_cannot_be_installed_is_named(uploaded, make_model, settled, requirements, words):
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", requirements)
    model = settled(make_model("home/net"))
    assert model.state == "error"
    assert words in model.reason


def test_packages_that_the_platform_has_need_no_installation(uploaded, make_model, settled, installations, settings):
    settings.PIP_INDEX_URL = ""  # the internet, which the tenant does not allow
    Tenant.objects.update(network=Network.NONE)
    uploaded("net/predictor.py")
    uploaded("net/requirements.txt", "numpy>=1.0\ncolours; python_version < '3'\n")
    model = settled(make_model("home/net"))
    assert (model.state, model.reason, installations) == ("ready", "", [])


def test_the_network_policy_of_the_tenant_holds_for_packages(uploaded, make_model, settled, settings):
    settings.PIP_INDEX_URL = "https://index.test/simple"
    Tenant.objects.update(network=Network.NONE)
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", "colours\n")
    model = settled(make_model("home/net"))
    assert model.state == "error"
    assert model.reason == "its packages come from an index, which its network policy does not allow"


MLFLOW = """
flavors:
  python_function: {loader_module: mlflow.sklearn, model_path: model.pkl, python_version: 3.11.2}
  sklearn: {pickled_model: model.pkl, serialization_format: pickle}
"""
PICKLES = """
import pickle, sys
import colours
from sklearn.dummy import DummyRegressor
model = DummyRegressor(constant=1, strategy="constant").fit([[1]], [1])
model.shade = colours.Shade()
pickle.dump(model, open("model.pkl", "wb"))
"""


@pytest.mark.long
def test_requirements_of_mlflow_count_where_a_package_is_missing(
    as_alice, uploaded, make_model, settled, installations, wheels, trained, home
):
    wheel(wheels, "colours", "5.0", "class Shade: pass")
    job = trained("colours==5.0", PICKLES)
    pickled = (storage.job_dir("alice", job.name) / "model.pkl").read_bytes()
    uploaded("flow/MLmodel", MLFLOW)
    uploaded("flow/model.pkl", pickled)
    listed = "mlflow==2.9.2 \\\n    --hash=sha256:00\ncolours==5.0\n-c constraints.txt\n"
    uploaded("flow/requirements.txt", codecs.BOM_UTF16_LE + listed.encode("utf-16-le"))  # as PowerShell writes it
    model = settled(make_model("home/flow"))
    assert (model.state, model.reason, model.format) == ("ready", "", "mlflow/sklearn")
    assert model.requirements == "colours==5.0\n"
    # Other versions of what is here, and an option that MLflow has written down.
    uploaded("flow/requirements.txt", "mlflow==2.9.2\n--extra-index-url https://x.test\nscikit-learn==0.1\n")
    installations.clear()
    model = settled(make_model("home/flow", name="other"))
    assert (model.requirements, installations) == ("", [])
    assert "needs the Python package colours" in model.reason


@pytest.mark.long
def test_an_installation_that_was_killed_is_not_used_and_goes_on(uploaded, make_model, tasks, settled, installations):
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", "colours==1.0\n")
    model = make_model("home/net")
    while not installations:
        tasks.run_once()
    for name in runners.get().names():
        if name.startswith("pkg-"):
            runners.get().discard(name)
    model = settled(model)
    assert (model.state, outputs(model)) == ("ready", ["colours-1.0"])


@pytest.mark.long
def test_an_environment_stays_while_a_model_is_checked_with_it_and_makes_room_afterwards(
    as_alice, uploaded, make_model, tasks, settled, settings
):
    def environments() -> list[tuple[str, bool]]:
        jobs_reconcile.run()  # removes what is not needed
        rows = as_alice.call("get", "users/alice/environments").json()
        return [(row["state"], {"kind": "model", "name": "net"} in row["used_by"]) for row in rows]

    settings.PACKAGES_DAYS = 0
    uploaded("net/predictor.py", NEEDY)
    uploaded("net/requirements.txt", "colours==1.0\n")
    model = make_model("home/net")
    while f"model-{model.pk}" not in runners.get().names():
        tasks.run_once()
        reconcile.run()
    assert as_alice.call("get", "users/alice/models/net").json()["state"] == "creating"
    assert environments() == [("ready", True)]
    model = settled(model)
    assert (model.state, outputs(model)) == ("ready", ["colours-1.0"])
    assert environments() == []
