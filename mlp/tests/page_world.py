"""Helpers of the tests of pages: clients, objects for every page, and an HTML parser."""

from __future__ import annotations

import html
import json
import re
import struct
import zlib
from html.parser import HTMLParser
from pathlib import Path

from django.test import Client
from django.utils import timezone

from accounts import lifecycle as accounts
from accounts.models import Notice, User
from aiops import logstore
from aiops.intake import accept
from aiops.models import (
    Alert,
    AlertRule,
    RateAnomaly,
    RateClock,
    SavedSearch,
    SessionAnomaly,
    SessionClock,
    Suppression,
)
from apps import launching
from apps.models import AppKey, AppKeyUse, Application
from datasets.models import Dataset, Export
from jobs.models import (
    Diagnosis,
    EnvironmentVersion,
    Job,
    Metrics,
    NamedEnvironment,
    Project,
    Value,
)
from kernel import storage
from mlp.operators.tests.admin_world import put, put_pipeline, put_schedule, put_sweep
from models_app.models import Alias, Model, ModelVersion, RegisteredModel, RegistryDelivery, RegistryWebhook
from workspaces import place
from workspaces.models import Guest, Workspace

from .recorded_world import fill_evaluations, fill_records, fill_traces

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
EVIL_FILE = "\"'><script>alert(1)<img src=x onerror=alert(2)>.txt"
LOGGING = ["fit", "calc", EVIL]  # a job, an application, and what nobody knows
# Every page a user can open, in a world made by `fill`.
PAGES = [
    "/",
    "/index",
    "/index.jsp",
    "/account",
    "/account/security",
    "/account/program",
    "/account/tokens",
    "/account/service",
    "/settings",
    "/notifications",
    "/search",
    "/search?q=fit",
    "/start",
    "/connect",
    "/datasets",
    "/datasets?state=ready&q=dig",
    "/datasets/digits",
    "/datasets/broken",
    "/datasets/coming",
    "/exports",
    "/exports?src=datasets/digits",
    "/environments",
    "/environments/named",
    "/environments/named?like=paint@1",
    "/environments/named/paint@1",
    "/scripts",
    "/scripts/new",
    "/scripts/new?example=1",
    "/scripts/edit/train.py",
    "/aiops",
    "/aiops?level=Anomaly&q=gone",
    "/aiops/templates",
    "/aiops/searches",
    "/aiops/watched",
    "/aiops/workload?deployment=fit",
    "/aiops/alerts",
    "/aiops/alerts?search=1",
    "/jobs",
    "/projects",
    "/projects/default",
    "/traces",
    "/traces?project=default&status=error&q=fit",
    "/traces/0af7651916cd43dd8448eb211c80319c",
    "/evaluations",
    "/evaluations?project=default&q=fit",
    "/evaluations/datasets/d-0af7651916cd43dd8448eb211c80319c",
    "/evaluations/runs/fit?base=done",
    "/jobs?new=1",
    "/jobs?from=done",
    "/jobs?state=running&q=fit",
    "/jobs/fit",
    "/jobs/fit/log",
    "/jobs/fit/media",
    "/jobs/fit/code",
    "/jobs/done/code/diff?with=fit",
    "/jobs/waiting",
    "/jobs/done",
    "/jobs/broken",
    "/compare",
    "/compare?job=fit&job=done",
    "/models",
    "/models?new=1&src=jobs/done",
    "/models?state=ready&q=net",
    "/models/net",
    "/models/coming",
    "/models/broken",
    "/registry",
    "/registry?q=chu",
    "/registry/churn",
    "/registry/churn/compare?version=1&version=2",
    "/webhooks",
    "/apps",
    "/apps?new=1&model=net",
    "/apps?state=ready&q=calc",
    "/apps/calc",
    "/apps/calc/log",
    "/apps/calc/access",
    "/apps/calc/records",
    "/apps/calc/records?status=ok&id=x",
    "/apps/calc/records/1",
    "/apps/calc/drift",
    "/apps/calc/shadow",
    "/apps/calc/score",
    "/models/net/score",
    "/apps/begins",
    "/apps/broken",
    "/workspaces",
    "/workspaces?job=fit&dataset=digits&model=net",
    "/workspaces/lab",
    "/workspaces/lab/log",
    "/workspaces/broken",
    "/workspaces/of/host/desk",
    "/sweeps",
    "/sweeps?new=1&from=done",
    "/sweeps?like=tune",
    "/sweeps/tune",
    "/sweeps/tune?order=best",
    "/pipelines",
    "/pipelines/flow",
    "/pipelines/flow/runs/1",
    "/schedules",
    "/schedules?new=1&from=done",
    "/schedules?like=night",
    "/schedules/night",
    "/usage",
    "/usage?tenant=default",
    "/tenants",
    "/tenants/in/default",
    "/trash",
    "/largest",
    "/largest?kind=dataset",
    "/shared",
    "/shared/mine",
    "/share/job/fit",
]


def visitor(user=None, **options) -> Client:
    """Return a client, logged in as that user. Server errors are returned as pages, not raised."""
    client = Client(raise_request_exception=False, **options)
    if user is not None:
        client.force_login(user)
    return client


def diagnose(job: Job, words: str) -> None:
    Job.objects.filter(pk=job.pk).update(reason=words)
    Diagnosis.objects.create(
        job=job, title=words, explanation=words, error="ValueError", file="train.py", line=1, code=words, action="edit",
        exception=f"Traceback\nValueError: {words}", facts={"cause": words},
    )  # fmt: skip


def fill(user, *, evil: bool = False) -> None:
    """Create jobs and datasets in all shown states, and log lines of each verdict; `evil` puts markup in every text."""
    words = EVIL if evil else "exit code 1"
    Project.objects.default_of(user)
    for name, state in (("waiting", "creating"), ("fit", "running"), ("done", "finished"), ("broken", "error")):
        put(Job, user, name, state)
    jobs = Job.objects.filter(user=user)
    jobs.update(args=["--epochs", words], env={"WORDS": words}, datasets=["digits"])
    diagnose(jobs.get(name="broken"), words)
    put_sweep(user, jobs.get(name="done"), words)
    put_schedule(user, words, job=jobs.get(name="done"))
    put_pipeline(user, jobs.get(name="done"), words)
    for name, state in (("coming", "creating"), ("digits", "ready"), ("broken", "error")):
        put(Dataset, user, name, state)
    Dataset.objects.filter(user=user, name="broken").update(reason=words)
    Export.objects.create(user=user, src="jobs/done", target=f"s3/photos/{words}", object_id=1, reason=words)
    for name, state in (("coming", "creating"), ("net", "ready"), ("broken", "error")):
        put(Model, user, name, state)
    churn = RegisteredModel.objects.create(user=user, name="churn", last=2, description=words, tags={words: words})
    for number, source in ((1, words), (2, "models/net")):
        model = Model.objects.get(user=user, name="net") if number == 2 else None
        version = ModelVersion.objects.create(
            registered=churn, number=number, source=source, model=model, description=words, tags={words: words}
        )
    Alias.objects.create(registered=churn, name="champion", version=version)
    hook = RegistryWebhook.objects.create(
        user=user, name=words, description=words, url=f"https://example.com/{words}", events=["model_version.created"]
    )
    RegistryDelivery.objects.create(webhook=hook, event="model_version.created", data={"name": words}, problem=words)
    lineage = {"job": "done", "entry": "train.py", "args": [words], "datasets": [{"name": "digits", "size": 4}]}
    Model.objects.filter(user=user).update(
        lineage={**lineage, "metrics": {"epoch": 1, "accuracy": 0.5, "loss": 1.5, "best_accuracy": 0.5}},
        notes=f"# Notes\n\n{words} [a](javascript:alert(1)) <script>alert(3)</script> ![x](x)",
        format="torchscript",
        src="jobs/done",
        checksums={EVIL_FILE if evil else "model.pt": {"size": 1, "sha256": "ab" * 32}},
        signature={"inputs": [{"name": words, "datatype": "FP32", "shape": [-1, 4]}, words]},
    )
    Model.objects.filter(user=user, name="broken").update(reason=words)
    fill_apps(user, words)
    fill_environments(user, words)
    fill_traces(user, words)
    fill_evaluations(user, words)
    for job in jobs:
        Metrics.objects.create(job=job, seq=1, epoch=1, accuracy=0.5, loss=1.5, progress=10, msg_id="one")
        folder = storage.job_dir(user.username, job.name)
        (folder / "log").mkdir(parents=True)
        (folder / "log" / "job.log").write_text(f"epoch 1\n{words}\n")
        (folder / "ckpt").mkdir()
        (folder / "ckpt" / (EVIL_FILE if evil else "model.pt")).write_text("x")
    fill_media(storage.job_dir(user.username, "fit"), words)
    folder = storage.dataset_dir(user.username, "digits")
    folder.mkdir(parents=True)
    (folder / (EVIL_FILE if evil else "one.csv")).write_text("1,2\n")
    (storage.home_dir(user.username) / "train.py").write_text(f"print({words!r})\n</textarea>{words}")
    if evil:
        _more_evil(user)
        (storage.home_dir(user.username) / EVIL_FILE).write_text("x")
        (storage.home_dir(user.username) / f"{EVIL_FILE}.py").write_text("x")
    store_lines(user, words)


def fill_apps(user, words: str) -> None:
    for name, state in (("begins", "creating"), ("calc", "ready"), ("broken", "error")):
        app = put(Application, user, name, state)
        launching.log_path(app).parent.mkdir(parents=True)
        launching.log_path(app).write_text(f"epoch 1\n{words}\n")
    Application.objects.filter(user=user).exclude(name="calc").update(reason=words)
    for name, state in (("lab", "ready"), ("broken", "error")):
        log = place.log_path(put(Workspace, user, name, state))
        log.parent.mkdir(parents=True)
        log.write_text(f"{words}\n")
    Workspace.objects.filter(user=user, name="broken").update(reason=words)
    fill_guests(user, words)
    calc = Application.objects.get(user=user, name="calc")
    key = AppKey.objects.create(app=calc, name="shop", used=timezone.now())
    AppKeyUse.objects.create(key=key, day=timezone.now().date(), requests=7)
    fill_records(calc, words)


def fill_guests(user, words: str) -> None:
    """Invite the user to a workspace of another one, and that one to the user's."""
    host = User.objects.filter(username="host").first()
    host = host or accounts.register(username="host", password="correct horse battery", by="test")
    desk = Workspace.objects.filter(user=host).first() or put(Workspace, host, "desk", "ready")
    Workspace.objects.filter(pk=desk.pk).update(title=words)
    Guest.objects.create(workspace=desk, user=user)
    Guest.objects.create(workspace=Workspace.objects.get(user=user, name="lab"), user=host, accepted=timezone.now())


def fill_environments(user, words: str) -> None:
    """Create a version of a named environment that has failed, which a job has used."""
    environment, _new = NamedEnvironment.objects.get_or_create(
        tenant=user.tenant, name="paint", defaults={"user": user}
    )
    environment.last += 1
    environment.save()
    version = EnvironmentVersion.objects.create(
        environment=environment, number=environment.last, user=user, requirements=words, pins=words,
        packages="0" * 32, reason=words, failed_package=words, state="failed",
    )  # fmt: skip
    done = Job.objects.filter(user=user, name="done")
    done.update(environment=version.reference, environment_version=version)


def fill_media(folder: Path, words: str, steps: int = 3) -> None:
    """Store media of each kind as `mlp_report` does, with these words in captions, cells and labels."""
    for step in range(steps):
        grey = zlib.compress((b"\0" + bytes([50 * step] * 4)) * 3)
        parts = (b"IHDR", struct.pack(">IIBBBBB", 4, 3, 8, 0, 0, 0, 0)), (b"IDAT", grey), (b"IEND", b"")
        chunks = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in parts)
        silence = b"RIFF" + struct.pack(
            "<I4s4sIHHIIHH4sI", 44, b"WAVE", b"fmt ", 16, 1, 1, 8000, 16000, 2, 16, b"data", 8
        )
        contents = {
            "image": (b"\x89PNG\r\n\x1a\n" + b"".join(chunks), "png"),
            "audio": (silence + bytes(8), "wav"),
            "text": (f"# Step {step}\n\n{words}".encode(), "md"),
            "table": (
                json.dumps({"columns": ["input", words], "rows": [[words, at * step] for at in range(5)]}),
                "json",
            ),
            "histogram": (json.dumps({"counts": [1, 4 + step, 2], "edges": [0, 1, 2, 3]}), "json"),
            "matrix": (json.dumps({"labels": ["cat", words], "matrix": [[8 + step, 2], [1, 9]]}), "json"),
        }
        for kind, (data, extension) in contents.items():
            path = folder / "media" / kind / f"{step}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data if isinstance(data, bytes) else data.encode())
            line = {"kind": kind, "name": f"val/{kind}", "step": step, "file": f"{kind}/{path.name}", "time": 1}
            with (folder / "media" / "index.jsonl").open("a") as index:
                index.write(json.dumps({**line, "attempt": 1, "caption": words}) + "\n")


def store_lines(user, words: str) -> None:
    """Store lines of the user's job `fit`: one of each verdict, and one without."""
    store, names = logstore.get(), {"namespace": user.username, "deployment": "fit"}
    store.append([accept.line(f"{level}: {words}", id=f"{user.username}{level}", **names) for level in "ABC"])
    shape = {"masked_log": f"<num> {words}", "template_matched": f"<*> {words}", "template_cluster_id": 7}
    odd = {"anomaly_level": "Anomaly", "unexpected": [[1, words]], "opnilog_confidence": 0.25}
    store.update_many([(f"{user.username}A", {**shape, **odd}), (f"{user.username}B", {"anomaly_level": "Normal"})])
    now = timezone.now()
    search = SavedSearch.objects.create(owner=user, name=words[:64], filters={"q": words})
    rule = AlertRule.objects.create(name=words[:64], kind="search", search=search, owner=user, created=now, checked=now)
    sample = {"id": f"{user.username}A", "time": 1, "log": words}
    Alert.objects.create(rule=rule, at=now, words=words, workload=words, count=1, samples=[sample], link="/aiops?q=a")
    _store_anomalies(user, words, {"cluster": "local", **names}, int(now.timestamp() * 1000))


def _store_anomalies(user, words: str, workload: dict, at: int) -> None:
    """Store an unusual session and an unusual rate, and one of each kind that is marked as normal."""
    clock = SessionClock.objects.create(**workload, since=at, until=at)
    session = {"value": words[:128], "since": at, "lines": 3, "reasons": [["order", words, words]]}
    SessionAnomaly.objects.create(clock=clock, last=at, **session)
    rate = {"template_id": 7, "template": words, "since": at, "lines": 50, "low": 1, "high": 2}
    counted = RateClock.objects.create(**workload, minute=at // 60_000)
    RateAnomaly.objects.create(clock=counted, kind="often", last=at, **rate)
    Suppression.objects.create(**workload, kind="session", by=user, note=words[:200], **session)
    Suppression.objects.create(**workload, kind="silent", by=user, note=words[:200], **rate)


def _more_evil(user) -> None:
    """Store texts that scripts display: names of series, log lines with their sources, notices."""
    now = timezone.now()
    for job in Job.objects.filter(user=user):
        for step in (1, 2):
            Value.objects.create(job=job, name=EVIL[:100], step=step, value=step, at=now, msg_id=f"evil{step}")
    Notice.objects.create(user=user, kind="job", name=EVIL[:64], event="error", reason=EVIL)
    at = int(now.timestamp() * 1000)
    names = {"cluster_id": EVIL, "namespace_name": user.username, "log_type": "workload"}
    lines = [
        {"_id": f"evil{n}", "time": at, "log": EVIL, "deployment": name, **names} for n, name in enumerate(LOGGING)
    ]
    logstore.get().append(lines)
    verdict = {"masked_log": EVIL, "anomaly_level": "Anomaly", "template_matched": EVIL, "opnilog_confidence": 0.1}
    verdict |= {"template_cluster_id": 8, "unexpected": [[0, EVIL]]}
    logstore.get().update_many([(line["_id"], verdict) for line in lines])


class Markup(HTMLParser):
    """The start tags of a page, the values of its fields by name, and inline code and foreign links."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.values: dict[str, str] = {}
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag == "input" and attributes.get("name"):
            self.values[attributes["name"]] = attributes.get("value") or ""
        if tag == "style" or (tag == "script" and not attributes.get("src")):
            self.inline.append(tag)
        self.inline += [f"{tag} {name}" for name in attributes if name == "style" or name.startswith("on")]
        links = (attributes.get(name) or "" for name in ("href", "src", "action", "formaction"))
        self.inline += [link for link in links if re.match(r"\s*(javascript|data|vbscript):", link, re.IGNORECASE)]


def markup(response) -> Markup:
    return Markup(response.content.decode())


def visible_text(response) -> str:
    """Return the page's visible text in one line."""
    text = re.sub(r"<[^>]*>", " ", response.content.decode())
    return re.sub(r"\s+", " ", html.unescape(text))
