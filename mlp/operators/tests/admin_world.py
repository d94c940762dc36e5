"""One object of every kind in every state, for the tests of the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Delivery, Notice, Token, User, Visit
from accounts.sharing import grants
from aiops.models import (
    Alert,
    AlertRule,
    Feedback,
    LogLine,
    ModelVersion,
    SavedSearch,
    Template,
    TrainingRun,
    WatchedWorkload,
)
from apps.models import PORTS, AppKey, Application, Rollout, Shadow
from automation.models import Firing, Pipeline, PipelineRun, Schedule, Step, Sweep, Trial
from datasets.models import Bucket, Dataset
from jobs.models import (
    EnvironmentVersion,
    FailureRule,
    Job,
    Metrics,
    NamedEnvironment,
    Project,
    Scorer,
    Snapshot,
    Trace,
    View,
)  # fmt: skip
from kernel.models import StateChange, record_created
from models_app.models import Alias, RegisteredModel, RegistryDelivery, RegistryWebhook
from models_app.models import Model as TrainedModel
from models_app.models import ModelVersion as Version
from resources import limits, tcc
from resources.models import GpuProduct, ResourceRequest, UsageSample
from tracking.evaluations import datasets as evaluations
from workspaces.models import Workspace

# The transitions that lead to each state from the beginning.
WAYS = {
    Job: {
        "creating": [],
        "running": ["start"],
        "finished": ["start", "finish"],
        "error": ["fail"],
        "deleting": ["fail", "erase"],
    },
    Dataset: {"creating": [], "ready": ["complete"], "error": ["fail"], "deleting": ["complete", "erase"]},
    TrainedModel: {"creating": [], "ready": ["complete"], "error": ["fail"], "deleting": ["complete", "erase"]},
    Application: {"creating": [], "ready": ["up"], "error": ["fail"], "deleting": ["fail", "erase"]},
    Workspace: {"creating": [], "ready": ["up"], "error": ["fail"], "deleting": ["fail", "erase"]},
}
MORE = {
    Job: {"entry": "train.py", "env": {"SECRET": "hush"}},
    Dataset: {"size": 1000},
    TrainedModel: {"size": 1000, "src": "home/model.pt"},
    Workspace: {},
}


def put(model: type[Model], user: User, name: str, state: str) -> Model:
    """Create a job, dataset, model or application in the state, by its transitions."""
    obj = model.objects.create(
        user=user, tenant=user.tenant, name=name, **(_served(user) if model is Application else MORE[model])
    )
    record_created(obj, by=user.username)
    for step in WAYS[model][state]:
        getattr(obj, step)(by="test", reason="for the test")
    obj.save()
    return obj


def _served(user: User) -> dict:
    """Return what an application needs: a model, one for all of a user's, and a port."""
    model = TrainedModel.objects.filter(user=user, state="ready").first() or put(TrainedModel, user, "net", "ready")
    return {"model": model, "port": PORTS.start + Application.objects.count(), "reserved": False}


def fill(alice: User, staff: User) -> dict[str, Model]:
    """Create at least one row for each model that the admin shows; return them by `app.model`."""
    job, dataset = put(Job, alice, "train", "running"), put(Dataset, alice, "digits", "ready")
    model, app = put(TrainedModel, alice, "net", "ready"), put(Application, alice, "calc", "ready")
    put(Workspace, alice, "desk", "ready")
    tcc.try_(id="ext-1", applier="mm", request_type="request", cpu=1)
    accounts.create_service_token(user=staff, name="shipper", by="test")
    Metrics.objects.create(job=job, seq=1, epoch=1, accuracy=0.5, loss=1.0, progress=10, msg_id="one")
    UsageSample.objects.create(tenant=alice.tenant, at=job.created, owner="alice", applier="jm", cpu=1)
    GpuProduct.objects.create(name="NVIDIA-A100-SXM4-80GB", count=2)
    limit = limits.set_limit(tenant="default", user="alice", by="test", gpu=1)
    watch(staff)
    notice = Notice.objects.create(user=alice, kind="job", name="train", event="error", reason="exit code 1")
    Delivery.objects.create(notice=notice, channel="mail", not_before=notice.at, open=False, error="no such host")
    FailureRule.objects.create(title="Ours", pattern="boom", example="boom", explanation="It broke.")
    grants.make(row=job, audience="link", by="alice")
    project = Project.objects.create(user=alice, name="sweeps", board=[{"kind": "count"}])
    View.objects.create(user=alice, project=project, name="best", query="sort=min:loss")
    files = {"folder": "", "files": [["train.py", "0" * 64, 7]], "skipped": [], "open": [], "more": 0}
    Snapshot.objects.create(user=alice, digest="0" * 64, manifest=files)
    put_sweep(alice, job, name="tuning")
    put_schedule(alice, name="weekly", job=job)
    put_pipeline(alice, job, name="train")
    Visit.objects.get_or_create(user=alice, session_key="none", agent="Firefox", address="10.0.0.1")
    registry(alice, model, app)
    AppKey.objects.create(app=app, name="shop", by="alice")
    put_environment(alice)
    Trace.objects.create(user=alice, project=Project.objects.default_of(alice), key="f" * 32, name="0 < 1")
    Scorer.objects.create(user=alice, project=Project.objects.default_of(alice), name="0 < 1")
    evaluations.create(alice, "0 < 1", [], {})
    rows = {
        "jobs.job": job,
        "jobs.metrics": job.metrics.get(),
        "datasets.dataset": dataset,
        "models_app.model": model,
        "apps.application": app,
        "resources.tenant": alice.tenant,
        "resources.resourcerequest": ResourceRequest.objects.get(pk="ext-1"),
        "resources.userlimit": limit,
        "resources.usagesample": UsageSample.objects.get(),
        "datasets.bucket": Bucket.objects.create(name="photos", bucket="photos", region="us-east-1", signing="none"),
        "accounts.user": alice,
        "accounts.token": Token.objects.get(name="shipper"),
        "kernel.statechange": StateChange.objects.filter(kind="job").latest("pk"),
    }
    for model in admin.site._registry:  # a model that came later: any row of it will do
        if model._meta.label_lower not in rows and (row := model._default_manager.first()) is not None:
            rows[model._meta.label_lower] = row
    return rows


def put_environment(user: User) -> EnvironmentVersion:
    """Create a version of a named environment that could not be installed."""
    environment = NamedEnvironment.objects.create(user=user, tenant=user.tenant, name="paint", last=1)
    version = EnvironmentVersion.objects.create(
        environment=environment, number=1, user=user, requirements="colours\n", packages="0" * 32
    )
    record_created(version, by=user.username)
    version.fail(by="runner", reason="exit code 1")
    version.save()
    return version


def put_sweep(user: User, job: Job, words: str = "0 < 1", name: str = "tune") -> Sweep:
    """Create a sweep with two trials: one that the job is, and one without a job."""
    files = {"folder": "", "files": [["train.py", "0" * 64, 7]], "skipped": [], "open": [], "more": 0}
    code, _created = Snapshot.objects.get_or_create(user=user, digest="0" * 64, defaults={"manifest": files})
    parameters = [["lr", {"type": "float", "low": 0.1, "high": 1, "log": True}], ["kind", {"choices": [words, True]}]]
    parameters[1][1]["type"] = "categorical"
    sweep = Sweep.objects.create(
        user=user, name=name, snapshot=code, job={"entry": "train.py", "args": [words], "env": {"KEY": "hush"}},
        parameters=parameters, pass_as="options", sampler={"type": "tpe", "seed": None}, pruner={"type": "none"},
        objectives=[{"metric": "loss", "direction": "minimize", "statistic": "last"}], stop={"failures": 5},
        trials_wanted=4, parallel=2, asked=2, best=[0], importance={"loss": {"lr": 0.7, "kind": 0.3}}, reason=words,
        notes=words,
    )  # fmt: skip
    record_created(sweep, by=user.username)
    Trial.objects.create(sweep=sweep, number=0, params={"lr": 0.5, "kind": words}, values=[1.5], job=job)
    Trial.objects.create(sweep=sweep, number=1, params={"lr": 0.2}, reason=words)
    return sweep


def put_schedule(user: User, words: str = "0 < 1", name: str = "night", job: Job | None = None) -> Schedule:
    """Create a schedule that has submitted the job, and failed once."""
    now = timezone.now()
    schedule = Schedule.objects.create(
        user=user, name=name, kind="job", spec={"entry": "train.py", "args": [words]}, cron="0 3 * * *",
        time_zone="Europe/Berlin", next_at=now, since=now, notes=words, reason=words,
    )  # fmt: skip
    record_created(schedule, by=user.username)
    Firing.objects.create(
        schedule=schedule, key="one", state="submitted", planned=now, at=now, made=job.name if job else "", job=job
    )
    Firing.objects.create(schedule=schedule, key="two", state="failed", planned=now, at=now, reason=words)
    return schedule


def put_pipeline(user: User, job: Job, words: str = "0 < 1", name: str = "flow") -> Pipeline:
    """Create a pipeline with a run: one step is the job, the other waits for approval."""
    steps = [["a", {"job": {"entry": "train.py"}, "needs": []}], ["b", {"approve": words, "needs": ["a"]}]]
    row = Pipeline.objects.create(user=user, name=name, steps=steps, params={"x": words}, notes=words, last=1)
    run = PipelineRun.objects.create(user=user, pipeline=row, number=1, params={"x": words}, reason=words)
    record_created(run, by=user.username)
    Step.objects.create(run=run, place=0, name="a", spec=steps[0][1], state="complete", job=job, reason=words)
    Step.objects.create(run=run, place=1, name="b", spec=steps[1][1], state="approval")
    return row


def registry(alice: User, model: TrainedModel, app: Application) -> None:
    """Create a row of each model of the registry, and a rollout."""
    churn = RegisteredModel.objects.create(user=alice, name="churn", last=1, tags={"team": "crm"})
    version = Version.objects.create(registered=churn, number=1, source="models/net", model=model)
    Alias.objects.create(registered=churn, name="champion", version=version)
    hook = RegistryWebhook.objects.create(
        user=alice, name="deploy", url="https://ci.example.com/hook", events=["model_version.created"]
    )
    RegistryDelivery.objects.create(
        webhook=hook, event="model_version.created", data={"name": "churn"}, open=False, problem="no such host"
    )
    Rollout.objects.create(app=app, model=model, phase=Rollout.Phase.FAILED, reason="no weights")
    Shadow.objects.create(app=app, model_name=model.name, serves=model.name, by="alice", percent=10, equal=3)


def watch(staff: User) -> None:
    """Create a row of each AIOps model."""
    run = TrainingRun.objects.create(by="test", lines=3, percent=40)
    ModelVersion.objects.create(version="v1", run=run)
    words = {"log": "it <b>broke</b>", "masked": "it broke", "level": "Anomaly"}
    names = {"cluster": "local", "namespace": "platform", "deployment": "web"}
    LogLine.objects.create(line_id="one", time=1_700_000_000_000, confidence=0.1, **names, **words)
    Template.objects.create(template_id="7", text="it <*>", sample="it broke", first=1, last=2)
    Feedback.objects.create(masked="it broke", level="Normal", by=staff)
    rule = AlertRule.objects.create(name="gone", kind="missing", owner=staff, created=run.created, checked=run.created)
    Alert.objects.create(
        rule=rule, at=run.created, words="no line", workload="local/platform/web", count=1, link="/aiops?q=it",
        samples=[{"id": "one", "time": 1_700_000_000_000, "log": "it <b>broke</b>"}],
    )  # fmt: skip
    WatchedWorkload.objects.create(namespace="platform", deployment="web", by=staff)
    SavedSearch.objects.create(owner=staff, name="broken", filters={"q": "broke"})
