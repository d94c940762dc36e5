"""All addresses of the MLflow protocol, read from the URL configuration: another user's objects answer as those that do
not exist, and what is shared can be read by its id, and not be changed.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest
from django.apps import apps
from django.db import connection, transaction
from django.urls import URLResolver, get_resolver

from accounts.models import Share
from jobs.models import Assessment, Job, Project, Scorer, ScorerVersion, Span, Trace
from mlp.tests.tiers import TENTH
from models_app.models import RegistryWebhook
from tracking.evaluations import datasets, records
from tracking.mlflow.tests.conftest import Mlflow, mlflow, mlflow_of_bob  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db

BASES = ("mlflow/api/2.0/mlflow/", "mlflow/api/3.0/mlflow/", "mlflow/api/2.0/", "mlflow/")
# Addresses that are no calls of the protocol: pages, and what needs no token.
PAGES = {
    "mlflow/", "mlflow/experiments/<int:experiment>", "mlflow/runs/<str:run>", "mlflow/health", "mlflow/version",
    "mlflow/api/3.0/mlflow/server-info", "mlflow/ajax-api/3.0/mlflow/server-info",
    "mlflow/v1/traces",  # OpenTelemetry's protocol: tracking/traces/tests/test_intake.py
}  # fmt: skip
# Calls that create an object of the caller's, or list these.
OWN = {
    "POST experiments/create", "POST experiments/search", "GET experiments/search", "GET experiments/list",
    "POST registered-models/create", "POST registered-models/search", "GET registered-models/search",
    "POST model-versions/search", "GET model-versions/search", "POST webhooks", "GET webhooks", "GET workspaces",
    "POST workspaces", "POST runs/search", "POST traces/search", "GET traces/batchGet", "POST traces/batchGetInfos",
    "POST datasets/search", "GET datasets/search", "GET scorers/online-configs", "POST traces/metrics",
}  # fmt: skip
# Calls that read an object by the id of its run or experiment, which a share allows.
READS = {
    "GET experiments/get", "GET runs/get", "POST runs/search", "GET metrics/get-history",
    "GET metrics/get-history-bulk", "GET metrics/get-history-bulk-interval", "GET traces/get", "GET traces/batchGet",
    "POST traces/batchGetInfos", "POST traces/search", "GET traces/<str:trace>",
    "GET traces/<str:trace>/assessments/<str:key>", "GET datasets/<str:dataset>", "GET datasets/<str:dataset>/records",
    "GET datasets/<str:dataset>/experiment-ids", "POST datasets/search", "GET datasets/search", "GET scorers/get",
    "GET scorers/list", "GET scorers/versions", "POST traces/metrics",
}  # fmt: skip
FILES = {
    "GET artifacts/list", "GET get-artifact", "GET mlflow-artifacts/artifacts",
    "GET mlflow-artifacts/artifacts/<path:path>",
}  # fmt: skip
SHARED = (  # the beginnings of addresses about what is in a project
    "runs/", "experiments/", "metrics/", "mlflow-artifacts/", "artifacts/", "get-artifact", "traces", "datasets/",
    "scorers/",
)  # fmt: skip
SECRET = "sesame"
POINT = {"key": "loss", "value": 0.5, "timestamp": 1_700_000_000_000, "step": 0}
# What calls read besides the ids of objects.
FIELDS = {
    "key": "k", "value": "1", "timestamp": 5, "step": 1, "metric_key": "loss", "status": "FINISHED", "new_name": "mine",
    "metrics": [POINT], "params": [{"key": "p", "value": "v"}], "tags": [{"key": "t", "value": "v"}],
    "datasets": [{"dataset": {"name": "n", "digest": "d", "source_type": "s", "source": "{}"}}], "version": "1",
    "alias": "champion", "stage": "Archived", "source": "s3://bucket/2", "description": "mine",
    "assessment": {"assessment_name": "a", "feedback": {"value": 1}},
    "view_type": "TRACES", "metric_name": "trace_count", "aggregations": [{"aggregation_type": "COUNT"}],
    "dimensions": ["trace_name"], "serialized_scorer": "{}",
    "records": '[{"inputs": {"q": 1}}]', "dataset_record_ids": ["dr-1"],
    "url": "https://example.com/hook", "events": [{"entity": "MODEL_VERSION", "action": "CREATED"}],
}  # fmt: skip


def patterns(resolver=None, before: str = "") -> Iterator[tuple[str, object]]:
    """Yield the addresses below mlflow/ with their views."""
    for pattern in (resolver or get_resolver()).url_patterns:
        address = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from patterns(pattern, address) if address.startswith("mlflow/") or not address else ()
        elif address.startswith("mlflow/"):
            yield address, pattern.callback


def calls() -> list[tuple[str, str]]:
    """Return the method and the address of each call, without the second addresses for MLflow's web interface."""
    calls = []
    for address, view in patterns():
        if address not in PAGES and "/ajax-api/" not in address:
            calls += [(method, address) for method in view.methods]
    return calls


@dataclass
class World:
    """Objects of one user, by what a call names them with; and others of the same names that do not exist."""

    theirs: dict = field(default_factory=dict)
    nothing: dict = field(default_factory=dict)


@pytest.fixture
def world(mlflow, alice):  # noqa: F811
    note = [{"key": "mlflow.note.content", "value": SECRET}]
    key = mlflow.call("post", "experiments/create", name="hidden", tags=note)["experiment_id"]
    run = mlflow.call("post", "runs/create", experiment_id=key, run_name="hidden", tags=note)["run"]["info"]["run_id"]
    mlflow.call("post", "runs/log-batch", run_id=run, metrics=[POINT], params=[{"key": SECRET, "value": SECRET}])
    mlflow.call("post", "registered-models/create", name="hidden", description=SECRET)
    mlflow.call("post", "model-versions/create", name="hidden", source=f"s3://{SECRET}/1", run_id=run)
    mlflow.call("post", "registered-models/alias", name="hidden", alias="champion", version="1")
    hook = RegistryWebhook.objects.create(
        user=alice, name=SECRET, url="https://example.com/", events=["model_version.created"]
    )
    model = mlflow.call("post", "logged-models", experiment_id=key, name=SECRET, source_run_id=run)["model"]["info"]
    trace = Trace.objects.create(user=alice, project_id=key, key=uuid.uuid4().hex, name="hidden", request=SECRET)
    said = Assessment.objects.create(user=alice, trace=trace, name="hidden", value=SECRET)
    Span.objects.create(user=alice, trace=trace, key="a" * 16, name=SECRET, started_ns=1, ended_ns=2)
    theirs = {"model": model["model_id"], "run": run, "webhook": str(hook.key), "experiment": key, "name": "hidden"}
    theirs |= {"trace": f"tr-{trace.key}", "said": said.key, "dataset": dataset_of(alice, key)}
    nothing = {
        "model": f"m-{uuid.uuid4().hex}",
        "run": uuid.uuid4().hex,
        "webhook": str(uuid.uuid4()),
        "experiment": "987654321",
        "name": "nothing",
        "trace": f"tr-{uuid.uuid4().hex}",
        "said": f"a-{uuid.uuid4().hex}",
        "dataset": f"d-{uuid.uuid4().hex}",
    }
    return World(theirs, nothing)


def dataset_of(user, project: int) -> str:
    """Make an evaluation dataset, and a scorer named hidden; return the id of the dataset."""
    row = datasets.create(user, "hidden", [Project.objects.get(pk=project)], {SECRET: SECRET})
    datasets.merge(row, records.given(f'[{{"inputs": {{"name": "{SECRET}"}}}}]'))
    scorer = Scorer.objects.create(user=user, project_id=project, name="hidden")
    ScorerVersion.objects.create(user=user, scorer=scorer, number=1, serialized=f'{{"{SECRET}": 1}}')
    return row.key


def send(client: Mlflow, method: str, address: str, ids: dict):
    """Send a call about the objects with these ids."""
    place = {"experiment_id": ids["experiment"]}
    fields = {
        **FIELDS, "run_id": ids["run"], "run_ids": ids["run"], "experiment_id": ids["experiment"],
        "experiment_ids": [ids["experiment"]],
        "experiment_name": ids["name"], "name": ids["name"], "path": "a.txt", "upload_id": "x",
        "trace_id": ids["trace"], "trace_ids": [ids["trace"]],
        "trace": {"trace_info": {"trace_id": ids["trace"], "trace_location": {"mlflow_experiment": place}}},
    }  # fmt: skip
    folder = f"{ids['experiment']}/{ids['run']}/artifacts"
    if address.endswith("mlflow-artifacts/artifacts"):
        fields["path"] = folder
    if address.endswith("logged-models/search"):
        fields["datasets"] = []
    if "/datasets/" in address:
        fields["tags"] = '{"t": "v"}'
    key = ids["model"] if "logged-models" in address else ids["said" if "assessments" in address else "webhook"]
    for name, value in (
        ("<str:key>", key), ("<path:tag>", "t"), ("<str:name>", ids["name"]), ("<path:path>", f"{folder}/a.txt"),
        ("<str:trace>", ids["trace"]), ("<str:dataset>", ids["dataset"]),
    ):  # fmt: skip
        address = address.replace(name, value)
    assert "<" not in address, f"this test does not know what {address} is about"
    if method == "GET":
        fields = {name: value for name, value in fields.items() if isinstance(value, str)}
        of_one = address.endswith("scorers/list")  # which takes one experiment, or several
        fields |= {} if of_one else {"experiment_ids": [ids["experiment"]], "trace_ids": [ids["trace"]]}
        return client.get(f"/{address}", fields, HTTP_AUTHORIZATION=f"Bearer {client.token}")
    send_as = getattr(client, method.lower())
    return send_as(f"/{address}", fields, content_type="application/json", HTTP_AUTHORIZATION=f"Bearer {client.token}")


def answer(response, ids: dict) -> tuple[int, str]:
    text = response.content.decode() if not response.streaming else "bytes"
    for name, value in ids.items():
        text = re.sub(rf"\b{re.escape(value)}\b", name, text)
    return response.status_code, text


@cache
def rows_of_a_user() -> str:
    """Return the query for a user's rows of all tables: one, since it is asked after each call."""
    parts = []
    for model in apps.get_models():
        names = {field.name for field in model._meta.concrete_fields if field.is_relation}
        owner = next((path for path in ("user", "job", "registered", "webhook") if path in names), None)
        if model is Share or owner is None or not model._meta.managed:
            continue
        of_user = model._meta.get_field(owner)
        if owner == "user":
            rows = f'"{of_user.column}" = %(user)s'
        else:
            other = of_user.related_model._meta
            column, key = other.get_field("user").column, of_user.target_field.column
            rows = f'"{of_user.column}" IN (SELECT "{key}" FROM "{other.db_table}" WHERE "{column}" = %(user)s)'
        table = model._meta.db_table
        parts.append(f"SELECT '{table}', to_jsonb(each.*)::text FROM \"{table}\" AS each WHERE {rows}")
    return " UNION ALL ".join(parts) + " ORDER BY 1, 2"


def stored(user) -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(rows_of_a_user(), {"user": user.pk})
        return cursor.fetchall()


def short(address: str) -> str:
    return address.removeprefix(next(base for base in BASES if address.startswith(base)))


def test_every_address_is_a_call_or_a_page_and_the_web_interfaces_is_the_same_call():
    views = dict(patterns())
    without = {address for address, view in views.items() if not hasattr(view, "methods")}
    assert without <= PAGES | {"mlflow/"}, "neither a call of the protocol nor a page that this test knows"
    assert len(calls()) > 50
    for address, view in views.items():
        if "/ajax-api/" in address and address not in PAGES:
            other = views.get(address.replace("/ajax-api/", "/api/")) or views[f"mlflow/{address.rpartition('/')[2]}"]
            assert view.methods == other.methods


@pytest.mark.parametrize("part", TENTH)
def test_another_users_objects_answer_as_those_that_do_not_exist(world, mlflow_of_bob, alice, bob, part):  # noqa: F811
    before, wrong = stored(alice), []
    assert len(before) > 8
    for method, address in list(calls())[part]:
        answers = []
        for ids in (world.theirs, world.nothing):
            with transaction.atomic():
                answers.append(answer(send(mlflow_of_bob, method, address, ids), ids))
                if stored(alice) != before:
                    wrong.append((method, short(address), "changes what is another user's"))
                transaction.set_rollback(True)
        call = f"{method} {short(address)}"
        if SECRET in answers[0][1]:
            wrong.append((call, "shows what is hidden"))
        if call in OWN:
            ok = answers[0][0] in (200, 400, 403)
        else:
            ok = answers[0] == answers[1] and (answers[0][0] == 404 or answers[0][1] in ("{}", '{"files":[]}'))
        if not ok:
            wrong.append((call, answers))
    assert not wrong, "\n".join(map(str, wrong))
    assert not Job.objects.filter(user=bob).exists()


def test_what_is_shared_is_read_by_its_id_and_not_changed(world, mlflow_of_bob, alice, bob):  # noqa: F811
    project = Project.objects.get(pk=world.theirs["experiment"])
    Share.objects.create(
        owner=alice, kind="project", object_id=project.pk, name=project.name, audience="user", user=bob, right="read"
    )
    before, wrong = stored(alice), []
    for method, address in calls():
        call = f"{method} {short(address)}"
        about = not call.endswith(("get-by-name", "/create", "experiments/search", "experiments/list"))
        about = about and call != "GET scorers/online-configs"
        if not about and call != "POST runs/create":
            continue
        if not short(address).startswith(SHARED):
            continue
        with transaction.atomic():
            status, text = answer(send(mlflow_of_bob, method, address, world.theirs), world.theirs)
            if stored(alice) != before:
                wrong.append((call, "changes what is shared to be read"))
            transaction.set_rollback(True)
        if call in READS:
            ok = status == 200 and ("hidden" in text or "name" in text or "loss" in text or "experiment" in text)
        elif call in FILES:
            ok = status == 200 or (status == 404 and "a.txt" in text)
        else:
            ok = (status, "PERMISSION_DENIED" in text) == (403, True)
        if not ok:
            wrong.append((call, status, text))
    assert not wrong, "\n".join(map(str, wrong))
    Share.objects.update(revoked=project.created)
    assert mlflow_of_bob.refused("get", "runs/get", run_id=world.theirs["run"]) == "RESOURCE_DOES_NOT_EXIST"
