"""An image per job: a name that the cluster's administrator offers in place of the image of the runtime."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ImproperlyConfigured

import runners
from automation.models import Schedule
from jobs import reconcile
from jobs.models import EnvironmentVersion, Job
from kernel.tests.nats_tools import until as wait_for
from mlp import cluster_settings
from mlp.tests.page_world import visitor
from runners.tests.on_cluster import platform_on_cluster

pytestmark = pytest.mark.django_db(transaction=True)
PYTHON, TORCH = "registry.test/python:1", f"registry.test:5000/team/torch@sha256:{'a' * 64}"
IMAGES = {"torch-2.8": TORCH, "cuda": "registry.test/cuda:1"}
NAMES = "image: must be one of: cuda, torch-2.8"
FORM = {"name": "fit", "entry": "train.py", "runtime": "python", "cpu": "1", "gpu": "0", "ram": "512"}


@pytest.fixture
def cluster(settings, tmp_path):
    settings.RUN_GATEWAY_URL = "http://10.0.0.7:30001"
    with platform_on_cluster(settings, tmp_path, images={"python": PYTHON}, job_images=IMAGES) as fake:
        yield fake


@pytest.fixture
def held(cluster):
    """The cluster, in which no pod starts."""
    cluster.node.held = True
    return cluster


def offer(settings, images: dict[str, str]) -> None:
    """Start the platform again with other images."""
    settings.MLP_K8S = settings.MLP_K8S | {"job_images": images}
    runners._runner.cache_clear()


def images_of_pods(cluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in cluster.store.list("pods")}


def test_a_job_runs_in_the_image_that_it_names_and_so_does_its_rerun(cluster, as_alice, submit, until):
    job = until(submit("import getpass, os\nprint(os.environ['MLP_IMAGE'], getpass.getuser())", image="torch-2.8"),
                "finished")  # fmt: skip
    assert as_alice.call("get", "users/alice/jobs/fit/log").content.decode() == f"{TORCH} mlp\n"
    assert as_alice.call("get", "users/alice/jobs/fit").json()["image"] == "torch-2.8"
    page = visitor(job.user).get("/jobs/fit").text
    assert "<dt>Image</dt><dd>torch-2.8</dd>" in "".join(page.split())
    again = as_alice.call("post", "users/alice/jobs/fit:rerun", {}).json()
    assert again["image"] == "torch-2.8"
    other = as_alice.call("post", "users/alice/jobs/fit:rerun", {"image": ""}).json()
    assert other["image"] == ""
    assert as_alice.refused("post", "users/alice/jobs/fit:rerun", {"image": "jax"}) == NAMES


def test_the_pod_differs_in_the_image_only(held, submit, tasks):
    submit("print(1)", cpu=0.1, ram=100)
    submit("print(1)", name="fitb", image="cuda", cpu=0.1, ram=100)
    wait_for(lambda: (tasks.run(), len(held.store.list("pods")) == 2)[-1])
    pods = {pod["spec"]["containers"][0]["image"]: pod["spec"] for pod in held.store.list("pods")}
    own, usual = pods["registry.test/cuda:1"], pods[PYTHON]
    container = own["containers"][0]
    assert {key for key in container if container[key] != usual["containers"][0].get(key)} <= {
        "image", "command", "envFrom", "volumeMounts"
    }  # fmt: skip
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == [
        mount["mountPath"] for mount in usual["containers"][0]["volumeMounts"]
    ]
    assert {key for key in own if own[key] != usual.get(key)} == {"containers"}


def test_packages_are_installed_in_the_image_of_the_job(held, submit, tasks):
    submit("print(1)", image="torch-2.8", requirements="colours==1.0")
    wait_for(lambda: (tasks.run(), held.store.list("pods"))[-1])
    assert images_of_pods(held) == {TORCH}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("jobs", {"entry": "train.py", "image": "jax"}, ""),
        ("sweeps", {"job": {"entry": "train.py", "image": "jax"}, "space": {"lr": {"choices": [1, 2]}},
                    "objective": {"metric": "loss", "direction": "minimize"}}, "job."),
        ("pipelines", {"steps": {"fit": {"entry": "train.py", "image": "jax"}}}, "steps.fit."),
        ("schedules", {"job": {"entry": "train.py", "image": "jax"}, "cron": "0 3 * * *"}, "job."),
    ],
)  # fmt: skip
def test_an_image_that_is_not_offered_is_refused_with_those_that_are(cluster, as_alice, script, path, body, place):
    script("print(1)")
    assert as_alice.refused("post", f"users/alice/{path}", {"name": "fit", **body}) == f"{place}{NAMES}"


def test_the_form_offers_the_images(cluster, alice, script):
    script("print(1)")
    mine = visitor(alice)
    page = mine.get("/jobs").text
    assert '<option value="cuda" >cuda</option>' in page
    for path in ("/sweeps", "/schedules"):
        assert '<option value="torch-2.8" >torch-2.8</option>' in mine.get(path).text
    assert NAMES.removeprefix("image: ") in mine.post("/jobs", {**FORM, "image": "jax"}).text
    assert mine.post("/jobs", {**FORM, "image": "cuda"}).status_code == 302
    assert Job.objects.get(name="fit").image == "cuda"
    assert '<option value="cuda" selected>cuda</option>' in mine.get("/jobs?from=fit").text
    nightly = {**FORM, "name": "nightly", "cron": "0 3 * * *", "image": "torch-2.8"}
    assert mine.post("/schedules", nightly).status_code == 302
    assert Schedule.objects.get().spec["image"] == "torch-2.8"


def test_an_image_that_is_withdrawn_fails_what_waits_for_it(held, settings, as_alice, submit, until):
    job = submit("print(1)", image="cuda")
    offer(settings, {})
    assert until(job, "error").reason == "could not be started: image cuda: no longer offered; see MLP_K8S_IMAGES"
    words = "image: this platform offers no images; an administrator can list them in MLP_K8S_IMAGES"
    assert as_alice.refused("post", "users/alice/jobs/fit:rerun", {}) == words
    assert '<option value="cuda" selected>cuda</option>' in visitor(job.user).get("/jobs?from=fit").text


def test_runs_are_found_by_their_image(held, as_alice, submit):
    submit("print(1)", image="cuda")
    submit("print(1)", name="fitb")
    found = as_alice.call("get", "users/alice/runs?filter=image%20%3D%20%22cuda%22").json()["runs"]
    assert [run["name"] for run in found] == ["fit"]
    table = visitor(Job.objects.get(name="fit").user).get("/jobs?col=image&sort=image").text
    assert re.findall(r"<td[^>]*>\s*cuda\s*</td>", table)


def test_a_named_environment_is_deleted_where_runtimes_have_no_image(held, as_alice, tasks):
    as_alice.call("post", "users/alice/named_environments", {"name": "paint", "requirements": "colours==1.0"})
    assert as_alice.call("delete", "users/alice/named_environments/paint@1").status_code == 200
    wait_for(lambda: (tasks.run_once(), reconcile.run(), not EnvironmentVersion.objects.exists())[-1])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("torch", "must be like key=value"),
        ("Torch=registry.test/torch:1", "a name is like torch-2.8"),
        ("torch=registry.test/Team/torch:1", "torch must be like registry/path"),
        ("torch=https://registry.test/torch", "torch must be like registry/path"),
        ("torch=registry.test/torch@sha256:abc", "torch must be like registry/path"),
        ("torch=", "torch must be like registry/path"),
        ("torch=a:1,torch=a:2", "has a name twice"),
    ],
)
def test_a_list_of_images_that_no_cluster_could_pull_is_refused_at_the_start(monkeypatch, value, problem):
    monkeypatch.setenv("MLP_K8S_IMAGES", value)
    with pytest.raises(ImproperlyConfigured) as refused:
        cluster_settings.job_images()
    assert str(refused.value).startswith("MLP_K8S_IMAGES")
    assert problem in str(refused.value)


def test_a_list_of_images_is_read(monkeypatch):
    monkeypatch.setenv("MLP_K8S_IMAGES", ", ".join(f"{name}={image}" for name, image in IMAGES.items()))
    assert cluster_settings.job_images() == IMAGES


def test_on_one_machine_it_says_where_images_are(as_alice, alice, script):
    fields = {"name": "fit", "entry": script("print(1)"), "image": "cuda"}
    assert as_alice.refused("post", "users/alice/jobs", fields) == (
        "image: images are for jobs on a Kubernetes cluster; here a job gets its packages by a named environment"
    )
    assert as_alice.call("post", "users/alice/jobs", {**fields, "image": ""}).json()["image"] == ""
    assert 'name="image"' not in visitor(alice).get("/jobs").text
