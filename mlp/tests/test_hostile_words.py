"""Text from users and programs is shown as text everywhere: to its owner, to other users and to operators."""

from __future__ import annotations

import html
import json
import time
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.contrib.sessions.models import Session
from django.urls import reverse
from django.utils import timezone

from accounts.models import Delivery, Notice, Preference, Share, User, Visit
from aiops import logstore
from aiops.models import Alert, AlertRule, Feedback, SavedSearch, Template
from apps.models import AppKey, Application, Rollout, Shadow
from automation.models import Pipeline, Schedule, Sweep
from conftest import add_user
from datasets.models import Dataset
from jobs.models import Capture, EvaluationDataset, Job, LoggedModel, ModelUse, Project, RunInput, Value
from kernel import storage
from kernel.admin_display import list_address, url_of
from kernel.models import StateChange
from mlp.operators.tests import admin_world
from mlp.tests.tiers import TENTH
from models_app.models import Alias, Model, ModelVersion, RegisteredModel, RegistryDelivery, RegistryWebhook

from .page_world import EVIL, PAGES, Markup, fill, markup, visitor

pytestmark = pytest.mark.django_db

OPERATORS_PAGES = [
    "/aiops",
    "/aiops?namespace=alice",
    "/aiops/templates",
    "/aiops/alerts",
    "/aiops/searches",
    "/aiops/watched",
    "/aiops/watchlist",
    "/aiops/models",
    "/aiops/line?id=evil",
    "/aiops/line?id=far",
    "/admin/",
    "/admin/audit/",
    "/admin/audit/?q=script",
    "/admin/parts/",
    "/admin/machine/",
    "/admin/settings/",
    "/admin/largest/",
    "/admin/logs/?part=evil",
    "/admin/search/?s=script&extended=1",
]


@pytest.fixture(scope="module")
def hostile_files(keep_files):
    return keep_files(lambda alice: put_hostile(alice, add_user("oscar", is_staff=True)))


@pytest.fixture
def hostile(hostile_files):
    return hostile_files()


@pytest.fixture
def staff(hostile_files):
    return User.objects.get(username="oscar")


def put_hostile(alice, staff) -> dict:
    """Put markup in every text of every table that users, scripts, log shippers or visitors can fill."""
    rows = admin_world.fill(alice, staff)
    RegistryWebhook.objects.filter(user=alice).delete()
    for model in (Application, RegisteredModel, Model, Job, Dataset, EvaluationDataset):
        model.objects.filter(user=alice).delete()
    fill(alice, evil=True)
    now = timezone.now()
    for job in Job.objects.filter(user=alice):
        Value.objects.create(job=job, name=EVIL[:100], step=9, value=1.0, at=now, msg_id="evil")
    notice = Notice.objects.create(user=alice, kind="job", name=EVIL[:64], event="error", reason=EVIL)
    describe(alice)
    Delivery.objects.create(notice=notice, channel="webhook", not_before=now, open=False, error=EVIL)
    Session.objects.create(session_key="evil", session_data="", expire_date=now + timedelta(days=1))
    Visit.objects.create(user=alice, session_key="evil", agent=EVIL, address=EVIL[:50])
    Preference.objects.update_or_create(user=alice, defaults={"email": f"{EVIL}@x.example", "webhook": EVIL})
    StateChange.objects.update(reason=EVIL, by=EVIL[:80])
    StateChange.objects.create(
        kind="job", owner=EVIL[:64], name=EVIL[:64], object_id=0, transition="x", source=EVIL[:16], target=EVIL[:16],
        by=EVIL[:80], reason=EVIL,
    )  # fmt: skip
    kind = ContentType.objects.get_for_model(User)
    LogEntry.objects.create(
        user=staff, content_type=kind, object_id=alice.pk, object_repr=EVIL, action_flag=2, change_message=EVIL
    )
    watched(staff)
    folder = storage.log_dir("evil")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "current.log").write_text(f"ERROR {EVIL}\n")
    rows["jobs.job"], rows["accounts.notice"] = Job.objects.filter(user=alice).first(), notice
    rows["jobs.metrics"] = rows["jobs.job"].metrics.first()
    project = Project.objects.create(user=alice, name=EVIL, readme=EVIL, board=[{"kind": "text", "text": EVIL}])
    rows["accounts.share"] = Share.objects.create(
        owner=alice, kind="project", object_id=project.pk, name=EVIL, audience="user", user=staff
    )
    rows |= {
        "datasets.dataset": Dataset.objects.get(user=alice, name="broken"),
        "models_app.model": Model.objects.get(user=alice, name="broken"),
        "apps.application": Application.objects.get(user=alice, name="broken"),
        "apps.rollout": Rollout.objects.create(
            app=Application.objects.get(user=alice, name="calc"), model=Model.objects.get(user=alice, name="net"),
            phase="failed", reason=EVIL,
        ),
    }  # fmt: skip
    for model in (RegisteredModel, ModelVersion, Alias, RegistryWebhook, RegistryDelivery, AppKey, Shadow,
                  EvaluationDataset):  # fmt: skip
        rows[model._meta.label_lower] = model.objects.first()
    return rows


def describe(alice: User) -> None:
    """Put markup in what people and scripts write about objects: titles, notes, tags, and what runs have used."""
    for model in (Application, Dataset, Job, Model, RegisteredModel, Sweep, Pipeline, Schedule):
        model.objects.filter(user=alice).update(title=EVIL[:200])
    for model in (Dataset, Job, Sweep, Pipeline, Schedule):
        model.objects.filter(user=alice).update(notes=f"{EVIL}\n\n[a](javascript:alert(1)) ![x](x)")
    Job.objects.filter(user=alice).update(tags={EVIL: EVIL}, system_tags={"mlflow.user": EVIL}, group=EVIL[:100])
    Project.objects.filter(user=alice).update(tags={EVIL: EVIL}, readme=EVIL)
    for job in Job.objects.filter(user=alice):
        RunInput.objects.create(
            job=job, name=EVIL, digest="1", source_type=EVIL, source=f"javascript:alert(1)//{EVIL}",
            schema=json.dumps({"mlflow_colspec": [{"name": EVIL, "type": EVIL}]}), profile=EVIL, tags={EVIL: EVIL},
            context=EVIL,
        )  # fmt: skip
        logged = LoggedModel.objects.create(
            user=alice, job=job, name=EVIL, model_type=EVIL, tags={EVIL: EVIL}, params={EVIL: EVIL}, metrics={EVIL: 1.0}
        )
        ModelUse.objects.create(job=job, model=logged, kind="input")
        Capture.objects.update_or_create(
            job=job,
            defaults={
                "git": {"commit": EVIL, "branch": EVIL, "dirty": True},
                "datasets": [{"name": EVIL, "digest": EVIL}],
            },
        )


def watched(staff: User) -> None:
    """Store AIOps data: lines of any program, with names chosen by a log shipper."""
    line = {"time": int(time.time() * 1000), "log": EVIL, "log_type": "workload", "pod_name": EVIL}
    names = {"namespace_name": "alice", "deployment": EVIL, "service": EVIL}
    verdict = {"masked_log": EVIL, "anomaly_level": "Anomaly", "template_matched": EVIL, "opnilog_confidence": 0.1}
    for name, cluster in (("evil", "local"), ("far", EVIL)):
        logstore.get().append([{"_id": name, "cluster_id": cluster, **line, **names}])
        logstore.get().update_many([(name, {**verdict, "template_cluster_id": 8, "unexpected": [[0, EVIL]]})])
    Template.objects.update(text=EVIL, sample=EVIL)
    Feedback.objects.update(masked=EVIL, sample=EVIL)
    AlertRule.objects.update(name=EVIL[:64], cluster=EVIL, namespace=EVIL, deployment=EVIL)
    sample = {"id": EVIL, "time": line["time"], "log": EVIL}
    Alert.objects.update(words=EVIL, workload=EVIL, samples=[sample], link=f"/aiops?q={quote(EVIL)}")
    SavedSearch.objects.update(name=EVIL[:64], filters={"q": EVIL, "deployment": EVIL})


def harmless(response, address: str) -> Markup:
    """Assert that the page, parsed as a browser does, has no script, image or handler from the text; return it. (The
    admin's theme has inline scripts and handlers; these are allowed.)
    """
    assert response.status_code == 200, address
    text = response.content.decode()
    assert "<script>alert" not in text.lower(), address
    page = markup(response)
    for tag, attrs in page.tags:
        assert not (tag == "img" and attrs.get("src") == "x"), address
        assert "alert(2)>" not in attrs, (address, tag)
        for name, value in attrs.items():
            handled = name.startswith(("on", "x-", "@", ":", "hx-on")) or name in {"hx-vals", "hx-vars", "style"}
            assert not (handled and "alert(" in (value or "")), (address, tag, name)
            led = name in {"href", "src", "action", "formaction"}
            assert not (led and (value or "").lower().lstrip().startswith("javascript:")), (address, value)
    return page


@pytest.mark.parametrize("part", TENTH)
def test_hostile_text_on_the_owners_pages(hostile, alice, part):
    owner = visitor(alice)
    for address in [*PAGES, "/aiops/line?id=evil"][part]:
        assert harmless(owner.get(address), address).inline == [], address


def test_hostile_text_is_shown_unchanged(hostile, alice, staff):
    for address in ("/notifications", "/account", "/settings", "/aiops", "/jobs/broken", "/models/net"):
        assert EVIL[:20] in html.unescape(visitor(alice).get(address).content.decode()), address
    operator = visitor(staff)
    for address in ("/admin/", "/admin/audit/", "/admin/logs/?part=evil", "/aiops/alerts"):
        assert EVIL[:20] in html.unescape(operator.get(address).content.decode()), address


@pytest.mark.long
def test_hostile_text_on_the_operators_pages(hostile, staff):
    operator = visitor(staff)
    for address in OPERATORS_PAGES:
        harmless(operator.get(address), address)


def history(label: str, row) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_history", args=[row.pk])


@pytest.mark.parametrize("part", TENTH)
def test_hostile_text_in_the_admin(hostile, staff, part):
    operator, models = visitor(staff), list(admin.site._registry)[part]
    assert models
    for label in (model._meta.label_lower for model in models):
        for address in (list_address(label.replace(".", "_")), url_of(hostile[label])):
            harmless(operator.get(address), address)
    for label in ("accounts.user", "jobs.job"):  # what operators have done, and what an object went through
        address = history(label, hostile[label])
        harmless(operator.get(address), address)


@pytest.mark.long
def test_hostile_text_in_the_admins_searches_and_histories(hostile, staff):
    operator = visitor(staff)
    for label in (model._meta.label_lower for model in admin.site._registry):
        for address in (f"{list_address(label.replace('.', '_'))}?q=script", history(label, hostile[label])):
            harmless(operator.get(address), address)


def test_hostile_text_is_not_shown_to_other_users(hostile, bob):
    other = visitor(bob)
    for address in ("/jobs/fit", "/datasets/digits", "/models/net", "/apps/calc", "/notifications"):
        assert "alert(1)" not in html.unescape(other.get(address).content.decode()), address


def test_api_responses_are_never_html(hostile, as_alice):
    of_a_job = ("jobs/fit", "jobs/fit/metrics", "jobs/fit/artifacts", "jobs/fit/log")
    for resource in (*of_a_job, "jobs", "datasets", "models", "apps"):
        response = as_alice.call("get", f"users/alice/{resource}")
        assert response.status_code == 200, resource
        assert response["Content-Type"].partition(";")[0] in {"application/json", "text/plain"}, resource
        assert response["X-Content-Type-Options"] == "nosniff", resource


@pytest.mark.parametrize("address", ["/scripts/file/{}.py", "/datasets/digits/files/{}"])
def test_files_are_downloaded_and_never_rendered(hostile, alice, address):
    name = "page.html"
    (storage.home_dir("alice") / f"{name}.py").write_text(EVIL)
    (storage.dataset_dir("alice", "digits") / name).write_text(EVIL)
    response = visitor(alice).get(address.format(name))
    assert response.status_code in {200, 302}
    if response.status_code == 200:
        assert "attachment" in response["Content-Disposition"]
        assert "default-src" in response["Content-Security-Policy"]
