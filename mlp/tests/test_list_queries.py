"""The number of queries of a list does not grow with its rows, whatever is said of each of them."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts import named_tokens, service_accounts
from aiops.models import AlertRule, SavedSearch
from apps.models import Application
from automation.models import Firing, Pipeline, PipelineRun, Schedule
from datasets.models import Dataset
from jobs.models import Assessment, Comparison, EvaluationDataset, Job, Project, Scorer, Trace
from mlp.operators.tests.admin_world import put, put_sweep
from mlp.tests.page_world import visitor
from mlp.tests.test_offers import CRON
from mlp.tests.tiers import later
from models_app.models import Model, ModelVersion, RegisteredModel, RegistryWebhook
from resources.models import Tenant
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db
PAGES = [
    "/trash", "/largest", "/models", "/datasets", "/apps", "/jobs", "/jobs?trash=1", "/projects", "/projects?trash=1",
    "/sweeps", "/schedules", "/pipelines", "/account/tokens", "/account/service", "/registry", "/registry/modela",
    "/webhooks", "/aiops/searches", "/aiops/alerts", "/shared/mine", "/notifications", "/usage", "/tenants/in/default",
    "/datasets/extra", "/workspaces", "/traces", "/evaluations",
]  # fmt: skip


def fill(alice, letters: str) -> None:
    """Give alice one more of everything for each letter, in use, in the trash, and kept."""
    now = timezone.now()
    port = 31000 + Application.objects.count()
    for number, letter in enumerate(letters):
        model, binned = (put(Model, alice, f"{word}{letter}", "ready") for word in ("model", "old"))
        common = {"user": alice, "tenant": alice.tenant, "reserved": False}
        Application.objects.create(name=f"serve{letter}", model=model, port=port + 2 * number, state="ready", **common)
        Application.objects.create(name=f"gone{letter}", model=binned, port=port + 2 * number + 1, state="error",
                                   trashed=now, resumes=letter > "b", **common)  # fmt: skip
        Model.objects.filter(name__startswith="old").update(trashed=now)
        put(Dataset, alice, f"data{letter}", "ready")
        put(Workspace, alice, f"lab{letter}", "ready")
        desk = put(Workspace, alice, f"desk{letter}", "error")
        Workspace.objects.filter(pk=desk.pk).update(trashed=now)
        put(Job, alice, f"fit{letter}", "finished")
        active = put(Job, alice, f"act{letter}", "running")
        traced = Project.objects.create(user=alice, name=f"traced{letter}")
        trace = Trace.objects.create(user=alice, project=traced, key=f"{ord(letter):032x}")
        Assessment.objects.create(user=alice, trace=trace, name="good", value=True)
        Scorer.objects.create(user=alice, project=traced, name="good")
        EvaluationDataset.objects.create(user=alice, key=f"d-{letter}", name="qa", digest="1", created=now, changed=now)
        project = Project.objects.create(user=alice, name=f"bin{letter}", trashed=now)
        Project.objects.create(user=alice, name=f"bin{letter}")
        for word in ("lost", "away"):
            job = put(Job, alice, f"{word}{letter}", "finished")
            Job.objects.filter(pk=job.pk).update(trashed=now, project=project)
        Job.objects.filter(pk=active.pk).update(datasets=[f"data{letter}"])
        sweep = put_sweep(alice, put(Job, alice, f"try{letter}", "finished"), name=f"sweep{letter}")
        flow = Pipeline.objects.create(user=alice, name=f"flow{letter}", steps=[])
        run = PipelineRun.objects.create(pipeline=flow, user=alice, number=1, state="running")
        daily = Schedule.objects.create(user=alice, name=f"day{letter}", spec={"name": flow.name}, since=now,
                                        **{**CRON, "kind": "pipeline"})  # fmt: skip
        Firing.objects.create(
            schedule=daily, sweep=sweep, run=run, job=active, key="one", state="submitted", planned=now, at=now
        )
        row = RegisteredModel.objects.create(user=alice, name=f"model{letter}")
        ModelVersion.objects.create(registered=row, number=1, model=model, owns_model=True)
        first = RegisteredModel.objects.get(name="modela")
        more = put(Model, alice, f"more{letter}", "ready")
        ModelVersion.objects.create(registered=first, number=2 + first.versions.count(), model=more, owns_model=True)
        Application.objects.create(name=f"more{letter}", model=more, port=31500 + Application.objects.count(), **common)
        RegistryWebhook.objects.create(user=alice, name=f"hook{letter}", url="https://a.example", events=["x"])
        named_tokens.create(user=alice, name=f"ci{letter}", scope="read", by="alice")
        service_accounts.create(owner=alice, name=f"robot{letter}", by="alice")
        search = SavedSearch.objects.create(owner=alice, name=f"find{letter}", filters={"q": "error"})
        AlertRule.objects.create(owner=alice, name=f"loud{letter}", kind="search", search=search, created=now,
                                 checked=now, next_check=now)  # fmt: skip
        Comparison.objects.create(user=alice, name=f"both{letter}", query="")
    for model, field in ((Dataset, "stored"), (Model, "size"), (Job, "output_bytes")):
        model.objects.update(**{field: 5})


@pytest.mark.parametrize("pages", [pytest.param(PAGES[::3], id="a third"), later(PAGES, id="all")])
def test_the_number_of_queries_does_not_grow_with_the_rows(alice, home, pages):
    put(Dataset, alice, "extra", "ready")
    Tenant.objects.update(cpu=100, ram=100_000)
    look = visitor(alice).get
    counts = []
    for letters in ("ab", "cdef"):
        fill(alice, letters)
        if not counts:  # what the first visits keep for the next ones
            assert {path: look(path).status_code for path in pages} == dict.fromkeys(pages, 200)
        counts.append({path: _count(look, path) for path in pages})
    assert {path: (counts[0][path], many) for path, many in counts[1].items() if many > counts[0][path]} == {}


def _count(look, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert look(path).status_code == 200, path
    return len(queries)
