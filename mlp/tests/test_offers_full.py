"""Who has as many objects as are allowed is offered no more: the button that creates one is disabled and says why."""

from __future__ import annotations

import re

import pytest
from django.test import override_settings
from django.utils import timezone

from accounts import named_tokens, service_accounts
from accounts.models import Token
from aiops.models import AlertRule, SavedSearch
from automation.models import Pipeline, PipelineRun, Schedule
from automation.pipelines import lifecycle as pipelines
from automation.sweeps import lifecycle as sweeps
from jobs.models import Comparison, Job, Project, View
from kernel import storage
from mlp.operators.tests.admin_world import put, put_sweep
from mlp.tests.page_world import visitor
from mlp.tests.test_offers import CRON, reasons
from models_app.models import RegisteredModel, RegistryWebhook
from models_app.registry import registered, versions, webhooks
from tracking.compare import saved
from tracking.runs import board, projects, views

pytestmark = pytest.mark.django_db
STEPS = [["fit", {"job": {"entry": "train.py"}, "needs": []}]]


@pytest.fixture
def one_at_most(monkeypatch):
    for module, name in (
        (named_tokens, "MAX"), (service_accounts, "MAX"), (registered, "MAX"), (versions, "MAX"), (webhooks, "MAX"),
        (saved, "MAX_COMPARISONS"), (projects, "MAX_PROJECTS"), (views, "MAX_VIEWS"), (pipelines, "MAX_PIPELINES"),
        (pipelines, "MAX_OPEN"), (sweeps, "MAX_OPEN"), (board, "MAX"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1)
    with override_settings(
        SCHEDULES_PER_USER=1, AIOPS_RULES_PER_USER=1, AIOPS_SEARCHES_PER_USER=1, SHARES_PER_USER=0
    ):  # fmt: skip
        yield


def fill(alice) -> None:
    """Give alice one of everything."""
    now = timezone.now()
    (storage.home_dir("alice") / "train.py").write_text("print(1)\n")
    put_sweep(alice, put(Job, alice, "fit", "finished"), name="search")
    flow = Pipeline.objects.create(user=alice, name="flow", steps=STEPS)
    PipelineRun.objects.create(pipeline=flow, user=alice, number=1, state="running")
    Schedule.objects.create(user=alice, name="daily", spec={"name": "flow"}, since=now, **{**CRON, "kind": "pipeline"})
    project = Project.objects.create(user=alice, name="vision", board=[{"kind": "text", "text": "a"}])
    View.objects.create(user=alice, name="view", query="")
    Comparison.objects.create(user=alice, name="both", query="")
    row = RegisteredModel.objects.create(user=alice, name="digits")
    row.versions.create(number=1)
    RegistryWebhook.objects.create(user=alice, name="hook", url="https://a.example", events=["x"])
    named_tokens.create(user=alice, name="ci", scope="read", by="alice")
    service_accounts.create(owner=alice, name="robot", by="alice")
    search = SavedSearch.objects.create(owner=alice, name="errors", filters={"q": "error"})
    AlertRule.objects.create(owner=alice, name="loud", kind="search", search=search, created=now, checked=now,
                             next_check=now)  # fmt: skip
    Job.objects.update(project=project)


def test_a_reached_limit_is_said_before_the_click(alice, home, one_at_most):
    look = visitor(alice).get
    offered = {
        ("/schedules", "Create schedule"): "You have 1 schedule, which is the limit",
        ("/schedules?like=daily", "Create schedule"): "You have 1 schedule, which is the limit",
        ("/schedules/daily", "Submit now"): "1 run of your pipelines has not ended. Wait, or cancel one.",
        ("/pipelines", "Create pipeline"): "You have 1 pipeline, which is the limit",
        ("/pipelines/flow", "Run"): "1 run of your pipelines has not ended. Wait, or cancel one.",
        ("/sweeps", "Begin the sweep"): "You have 1 sweep that runs or pauses. End one first.",
        ("/sweeps?like=search", "Begin the sweep"): "You have 1 sweep that runs or pauses. End one first.",
        ("/projects", "Create project"): "You have 1 project, the most that are allowed",
        ("/projects/vision", "Add panel"): "Must be a list of at most 1 panel",
        ("/jobs", "Save view"): "You have 1 view, the most that are allowed",
        ("/registry", "Register model"): "You have 1 registered model, the most that are allowed",
        ("/registry/digits", "Register version"): "The model has 1 version, the most that are allowed",
        ("/webhooks", "Add webhook"): "You have 1 webhook, the most that are allowed",
        ("/account/tokens", "Create token"): "You have 1 token, the most that are allowed",
        ("/account/service", "Create service account"): "You have 1 service account, the most that are allowed",
        ("/aiops/alerts", "Create"): "At most 1 alert rule of a user",
        ("/share/job/fit", "Share"): "You have 0 shares. Revoke one first.",
    }
    fill(alice)
    assert Token.objects.filter(user=alice, kind="named").count() == 1
    assert {key: set(reasons(look(key[0]), key[1])) for key in offered} == {key: {why} for key, why in offered.items()}
    replaced = {"/compare?job=fit": "You have 1 comparison", "/aiops?q=x": "At most 1 saved search of a user"}
    for path, why in replaced.items():
        page = look(path).content.decode()
        assert why in page
        assert re.search(r'name="replace"[^>]*\brequired', page), "only replacing is left"


def test_below_the_limit_everything_is_offered(alice, home):
    look = visitor(alice).get
    fill(alice)
    paths = {"/schedules": "Create schedule", "/pipelines": "Create pipeline", "/sweeps": "Begin the sweep",
             "/projects": "Create project", "/registry": "Register model", "/webhooks": "Add webhook",
             "/pipelines/flow": "Run", "/schedules/daily": "Submit now", "/aiops/alerts": "Create"}  # fmt: skip
    assert {path: set(reasons(look(path), word)) for path, word in paths.items()} == {path: {""} for path in paths}
