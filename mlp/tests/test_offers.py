"""What a page offers is what the server would do: a button that would be refused is disabled and says why."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.utils import timezone

from accounts.models import Identity
from aiops.models import AlertRule, SavedSearch
from apps.models import Application, Rollout
from automation.models import Pipeline, Schedule, Sweep
from datasets.models import Dataset
from jobs.models import Job, Project
from kernel import storage
from mlp.operators.tests.admin_world import put, put_sweep
from mlp.tests.page_world import visitor
from models_app.models import Model, ModelVersion, RegisteredModel
from resources.models import Tenant

pytestmark = pytest.mark.django_db

BUTTON = re.compile(r"<button(?P<attrs>[^>]*)>(?P<inside>.*?)</button>(?=(?P<after>.{0,400}))", re.S)
WHY = re.compile(r'\s*(?:<small class="hint why">|<small>)(?P<why>.*?)</small>', re.S)
CRON = {"cron": "0 3 * * *", "time_zone": "UTC", "kind": "job"}


@pytest.fixture
def look(alice, home):
    return visitor(alice).get


def reasons(response, word: str) -> list[str]:
    """Return the reason beside each button with that text, "" for a button that is enabled."""
    texts = []
    for button in BUTTON.finditer(response.content.decode()):
        if (
            re.sub(
                r"<[^>]*>|\s+", " ", re.sub(r"<svg.*?</svg>|<span.*?</span>", "", button["inside"], flags=re.S)
            ).strip()
            != word
        ):
            continue
        title = re.search(r'\bdisabled\s+title="([^"]*)"', button["attrs"])
        told = WHY.match(button["after"])
        assert (told["why"] if told else "") == (title[1] if title else ""), "the reason is read and seen"
        texts.append(unescape(title[1]) if title else "")
    return texts


def deployed(user, model: Model, name: str = "calc", **fields) -> Application:
    given = {"port": 31000 + Application.objects.count(), "reserved": False, "state": "ready", **fields}
    return Application.objects.create(user=user, tenant=user.tenant, model=model, name=name, **given)


def test_what_is_in_use_is_not_deleted(look, alice):
    model, dataset = put(Model, alice, "net", "ready"), put(Dataset, alice, "photos", "ready")
    put(Dataset, alice, "more", "ready")
    versions = [dataset.versions.create(number=number, size=1, by="alice") for number in (1, 2)]
    Dataset.objects.filter(pk=dataset.pk).update(version=len(versions), stored=5)
    Model.objects.update(size=5)
    Job.objects.create(user=alice, tenant=alice.tenant, name="fit", entry="train.py", datasets=["photos@1"])
    app = deployed(alice, model)
    served = "The application calc uses this model. Delete it first."
    read = "The job fit uses this dataset. Cancel it or wait until it has ended."
    assert reasons(look("/models/net"), "Delete") == [served]
    assert reasons(look("/datasets/photos"), "Delete") == [read, read], "the dataset, and its version 1"
    assert "photos" not in re.findall(r"<option>(\w+)", look("/datasets/more").content.decode()), "as a new version"
    assert sorted(reasons(look("/largest"), "Move to the trash")) == sorted([read, served])

    registered = RegisteredModel.objects.create(user=alice, name="digits")
    ModelVersion.objects.create(registered=registered, number=1, model=model, owns_model=True)
    assert reasons(look("/registry/digits"), "Delete") == [served]
    assert reasons(look("/registry/digits"), "Delete version") == [served]
    app.delete()
    assert reasons(look("/registry/digits"), "Delete") == reasons(look("/registry/digits"), "Delete version") == [""]


def test_what_cannot_leave_the_trash_says_so(look, alice):
    now, project = timezone.now(), Project.objects.create(user=alice, name="old", trashed=timezone.now())
    Project.objects.create(user=alice, name="old")
    job, model = put(Job, alice, "fit", "finished"), put(Model, alice, "net", "ready")
    Job.objects.filter(pk=job.pk).update(project=project, trashed=now)
    app = deployed(alice, model, state="error", trashed=now)
    Model.objects.update(trashed=now)
    project_first = "Its project old is in the trash. Restore the project."
    model_first = "The model net is in the trash. Restore it first."
    app_first = "The application calc in the trash uses this model. Delete it from there first."
    assert sorted(reasons(look("/trash"), "Restore")) == sorted(["", project_first, model_first])
    assert sorted(reasons(look("/trash"), "Delete permanently")) == sorted(["", "", app_first])
    assert reasons(look("/jobs/fit"), "Restore") == [project_first]
    assert reasons(look("/apps/calc"), "Restore") == [model_first]
    assert reasons(look("/models/net"), "Delete permanently") == [app_first]
    assert reasons(look("/projects?trash=1"), "Restore") == [
        "Another project has this name now. Rename that project first."
    ]
    app.delete()
    assert reasons(look("/models/net"), "Delete permanently") == [""]


def test_what_has_no_script_is_not_submitted(look, alice):
    Schedule.objects.create(user=alice, name="gone", spec={"entry": "gone.py"}, since=timezone.now(), **CRON)
    flow = Pipeline.objects.create(
        user=alice, name="flow", steps=[["prepare", {"job": {"entry": "gone.py"}, "needs": []}]]
    )
    after = {"kind": "pipeline", "spec": {"name": "flow", "params": {}}}
    Schedule.objects.create(user=alice, name="after", since=timezone.now(), **{**CRON, **after})
    (why,) = reasons(look("/schedules/gone"), "Submit now")
    assert "gone.py" in why
    assert why[0].isupper()
    assert reasons(look("/pipelines/flow"), "Run") == reasons(look("/schedules/after"), "Submit now") == [why]
    (storage.home_dir("alice") / "gone.py").write_text("print(1)\n")
    offered = [("/schedules/gone", "Submit now"), ("/schedules/after", "Submit now"), ("/pipelines/flow", "Run")]
    assert [reasons(look(path), word) for path, word in offered] == [[""]] * 3
    flow.delete()
    assert reasons(look("/schedules/after"), "Submit now") != [""]


def test_an_application_that_moves_takes_no_other_move(look, alice):
    app = deployed(alice, put(Model, alice, "net", "ready"), run_name="app-1-1")
    rollout = Rollout.objects.create(app=app, model=put(Model, alice, "other", "ready"), phase="starting", by="alice")
    why = "The application is moving to the model other already"
    assert reasons(look("/apps/calc"), "Restart") == reasons(look("/apps/calc"), "Change the model") == [why]
    rollout.delete()
    Tenant.objects.update(ram=1)
    assert reasons(look("/apps/calc"), "Restart") == [""]
    Application.objects.update(state="error", run_name="")
    (why,) = reasons(look("/apps/calc"), "Start")
    assert "MiB" in why


def test_projects_searches_and_accounts(look, alice):
    project = Project.objects.create(user=alice, name="vision")
    job = put(Job, alice, "fit", "running")
    Job.objects.update(project=project)
    busy = "Jobs of the project are queued or running: fit. Cancel them first."
    assert reasons(look("/projects/vision"), "Delete")[0] == busy
    put_ended = Job.objects.filter(pk=job.pk)
    put_ended.update(state="error")
    assert reasons(look("/projects/vision"), "Delete")[0] == ""

    search = SavedSearch.objects.create(owner=alice, name="errors", filters={"q": "error"})
    rule = AlertRule.objects.create(
        owner=alice,
        name="loud; often",
        kind="search",
        search=search,
        **{"created": (now := timezone.now()), "checked": now, "next_check": now},
    )
    assert reasons(look("/aiops/searches"), "Delete") == ["Alert rules use this search: loud; often"], "its name stays"
    rule.delete()
    assert reasons(look("/aiops/searches"), "Delete") == [""]

    Identity.objects.create(user=alice, issuer="https://sso.example.com", subject="1", name="alice")
    assert reasons(look("/account"), "Disconnect") == [""]
    only = "This is the only tenant of alice. Add them to another one first, or deactivate the account."
    assert reasons(look("/tenants/in/default"), "Leave") == [only]


def test_the_admin_says_so_too(alice, staff, home):
    look = visitor(staff).get
    model = put(Model, alice, "net", "ready")
    deployed(alice, model)
    served = "The application calc uses this model. Delete it first."
    shown = look(f"/admin/models_app/model/{model.pk}/change/")
    assert reasons(shown, "Move to the trash") == reasons(shown, "Delete") == [served]
    selected = visitor(staff).post("/admin/models_app/model/", {"action": "do_delete", "_selected_action": [model.pk]})
    assert served in selected.content.decode(), "the page that asks for several says which will be refused"
    Application.objects.all().delete()
    shown = look(f"/admin/models_app/model/{model.pk}/change/")
    assert reasons(shown, "Move to the trash") == [""]
    assert 'data-verb="delete"' in shown.content.decode()
    assert reasons(shown, "Delete") == [], "a link to the page that asks"


def test_a_grid_without_points_left_takes_no_more_trials(look, alice):
    space = [["lr", {"type": "categorical", "choices": [0.1, 0.2]}]]
    for name, wanted in (("some", 1), ("all", 2)):
        sweep = put_sweep(alice, put(Job, alice, f"{name}x", "finished"), name=name)
        sweep.trials.all().delete()
        Sweep.objects.filter(pk=sweep.pk).update(sampler={"type": "grid"}, parameters=space, trials_wanted=wanted)
    assert "more-trials" in look("/sweeps/some").content.decode()
    page = look("/sweeps/all").content.decode()
    assert ("more-trials" in page, re.findall(r"hint why\">([^<]*)", page)) == (False, ["The grid has no more points"])


def test_runs_whose_project_is_in_the_trash_are_told_apart(look, alice):
    for name, trashed in (("kept", None), ("gone", timezone.now())):
        project = Project.objects.create(user=alice, name=name, trashed=trashed)
        job = put(Job, alice, name, "finished")
        Job.objects.filter(pk=job.pk).update(project=project, trashed=timezone.now())
    page = look("/jobs?trash=1").content.decode()
    rows = re.findall(r"<tr[^>]*>", page[page.index("<tbody") :])
    assert ["data-without-project" in row for row in rows] == [True, False]
