"""Applications and workspaces that name the type of their GPUs, as jobs do. There are one A100 and one V100."""

from __future__ import annotations

import pytest

import runners
from accounts.models import User
from apps import launching as app_launching
from apps import lifecycle as apps
from apps import queueing, second_runs
from apps.models import Application, Rollout
from apps.tests.conftest import adder
from datasets.models import Dataset
from jobs.models import Job
from jobs.notebooks.tests.books import book
from kernel import storage
from mlp.operators.tests.admin_world import put
from mlp.tests.page_world import visitor
from resources import inventory, products
from runners.gpus import Device
from workspaces import launching, lifecycle, notebooks, place
from workspaces.models import Workspace

__all__ = ["adder"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("tasks")]
A100, V100 = "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-16GB"
INSTALLED = [Device("GPU-a", "NVIDIA A100-SXM4-80GB", 80_000, 0), Device("GPU-v", "Tesla V100-SXM2-16GB", 16_000, 1)]
APP = {"name": "calc", "model_name": "adder", "cpu": 0.1, "ram": 400}
LAB = {"name": "lab", "cpu": 0.1, "ram": 400}
KINDS = pytest.mark.parametrize(("calls", "body"), [("apps", APP), ("workspaces", LAB)])


@pytest.fixture(autouse=True)
def installed(monkeypatch, adder):
    monkeypatch.setattr(runners.get(), "devices", lambda: INSTALLED)
    inventory.follow_products()


@KINDS
def test_a_type_is_refused_with_the_words_of_jobs(as_alice, calls, body):
    for fields, words in (
        ({"gpu": 1, "gpu_type": "h100"}, f"gpu_type: no GPU here is of this type; there are: {A100}, {V100}"),
        ({"gpu": 2, "gpu_type": "a100"}, "gpu_type: requested 2 × a100, but there are 1"),
        ({"gpu_type": "a100"}, "gpu_type: names the type of GPUs, but no GPU is requested"),
        ({"gpu": 1, "gpu_type": 5}, "gpu_type: must be a string"),
        ({"gpu": 1, "gpu_type": "\u202ea100"}, "gpu_type: must be valid text"),
        ({"gpu": 1, "gpu_type": "a100\tx"}, "gpu_type: must be valid text"),
    ):
        answer = as_alice.call("post", f"users/alice/{calls}", body | fields)
        assert (answer.status_code, answer.json()["msg"]) == (403, words)
    answer = as_alice.call("post", f"users/alice/{calls}", body | {"gpu": 1, "gpu_type": " A100\n"})
    assert (answer.status_code, answer.json()["gpu_type"]) == (201, "A100")
    page = visitor(User.objects.get(username="alice"))
    name = body["name"]
    assert "<dd>A100</dd>" in "".join(page.get(f"/{calls}/{name}").text.split())
    assert A100 in page.get(f"/{calls}?new=1").text


def test_runs_get_nodes_or_devices_of_the_type(as_alice, alice):
    as_alice.call("post", "users/alice/apps", APP | {"gpu": 1, "gpu_type": "a100"})
    as_alice.call("post", "users/alice/workspaces", LAB | {"gpu": 1, "gpu_type": "v100"})
    app, lab = apps.note_order(Application.objects.get().pk), lifecycle.note_order(Workspace.objects.get().pk)
    assert app_launching.spec_of(app).gpu_type == "a100"
    assert place.spec_of(lab).gpu_type == "v100"
    assert products.current().left("a100") == products.current().left("v100") == 0


def test_jobs_that_they_start_have_the_type_too(as_alice, alice, home):
    as_alice.call("post", "users/alice/workspaces", LAB | {"gpu": 1, "gpu_type": "v100"})
    lab = Workspace.objects.get()
    folder = notebooks.home_of(lab)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.ipynb").write_text(book("print(1)"))
    notebooks.submit(lab, "train.ipynb", [], by="alice")
    put(Dataset, alice, "digits", "ready")
    as_alice.call("post", "users/alice/apps", APP | {"gpu": 1, "gpu_type": "a100"})
    scoring = {"dataset": "digits", "output": "scores", "gpu": 1, "gpu_type": "a100", "cpu": 0.1}
    assert as_alice.call("post", "users/alice/apps/calc:score", scoring).status_code == 201
    assert dict(Job.objects.values_list("name", "gpu_type")) == {"train": "v100", "scores": "a100"}
    page = visitor(alice).get("/apps/calc/score").text
    assert '<option value="a100" selected>' in " ".join(page.split())


def test_what_finds_no_gpu_of_its_type_waits_and_holds_nothing(as_alice, alice, home):
    first = as_alice.call("post", "users/alice/workspaces", LAB | {"gpu": 1, "gpu_type": "a100"}).json()
    as_alice.call("post", "users/alice/apps", APP | {"gpu": 1, "gpu_type": "a100"})
    second = as_alice.call("post", "users/alice/workspaces", LAB | {"name": "two", "gpu": 1, "gpu_type": "a100"}).json()
    assert (first["queued"], second["queued"], second["reason"]) == (False, True, "queued: needs 1 × a100, 0 free")
    app = Application.objects.get()
    words = "Not enough free resources: needs 1 × a100, 0 free."
    assert (app.reserved, str(queueing.explain(app).reason)) == (False, words)
    assert app.tenant.left("gpu") == 1
    (storage.home_dir("alice") / "train.py").write_text("pass")
    job = {"name": "fit", "entry": "train.py", "gpu": 1, "gpu_type": "a100"}
    assert as_alice.call("post", "users/alice/jobs", job).status_code == 201
    assert Job.objects.get().reserved is False
    lifecycle.stop_workspace(user=alice, name="lab", by="test")
    queueing.admit()
    lifecycle.admit()
    app.refresh_from_db()
    assert (app.reserved, Workspace.objects.get(name="two").reserved) == (True, False)


def test_a_second_run_needs_a_gpu_of_the_type_too(as_alice, alice, adder):
    as_alice.call("post", "users/alice/apps", APP | {"gpu": 1, "gpu_type": "a100"})
    app = Application.objects.get()
    rollout = Rollout.objects.create(app=app, model=adder)
    refused = second_runs.reserve(app, rollout)
    assert (str(refused.problem), rollout.reserved) == ("needs 1 × a100, 0 free", False)
    Rollout.objects.filter(pk=rollout.pk).update(reserved=True)
    assert dict(second_runs.held_gpus()) == {"a100": 1}
    assert len(second_runs.held_gpus()) == 2


def test_a_taken_device_is_waited_for_at_the_start(as_alice, alice, monkeypatch):
    """A run that has named no type may have it: the platform does not know which devices those have."""

    def need(kind: str, count: int) -> None:
        raise runners.NoGpus("needs 1 × %(type)s, 0 free on this machine now", type=kind)

    as_alice.call("post", "users/alice/apps", APP | {"gpu": 1, "gpu_type": "a100"})
    as_alice.call("post", "users/alice/workspaces", LAB | {"gpu": 1, "gpu_type": "v100"})
    monkeypatch.setattr(runners.get(), "need_gpus", need)
    app, lab = apps.note_order(Application.objects.get().pk), lifecycle.note_order(Workspace.objects.get().pk)
    assert not app_launching.RUNS.prepare(app)
    assert not launching.RUNS.prepare(lab)
    words = "waiting to start: needs 1 × {}, 0 free on this machine now"
    assert [str(each.reason) for each in (Application.objects.get(), Workspace.objects.get())] == [
        words.format("a100"), words.format("v100"),
    ]  # fmt: skip


def test_the_types_are_listed(as_alice, settings):
    settings.GPU_TYPES = {"big": (A100, V100)}
    answer = as_alice.call("get", "gpu_types")
    assert answer.json() == [
        {"name": "big", "gpus": 2, "products": [A100, V100]},
        {"name": A100, "gpus": 1, "products": [A100]},
        {"name": V100, "gpus": 1, "products": [V100]},
    ]
    assert answer["X-Total-Count"] == "3"
    assert len(as_alice.call("get", "gpu_types?limit=1&offset=1").json()) == 1


def test_an_application_that_waits_for_a_type_says_so(as_alice):
    for name in ("calc", "other"):
        answer = as_alice.call("post", "users/alice/apps", APP | {"name": name, "gpu": 1, "gpu_type": "a100"})
        assert answer.status_code == 201
    waiting = as_alice.call("get", "users/alice/apps/other").json()
    assert (waiting["queued"], waiting["reason"]) == (True, "queued: needs 1 × a100, 0 free")
