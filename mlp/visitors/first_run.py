"""The guided tour: takes a new user from a dataset to a job, a model and an application, with a working example.

The example is the handwritten digits of `examples/digits`: the buttons store its dataset and script where an upload
would, and submit the job as the form would.
"""

from __future__ import annotations

import gzip
import importlib.util

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from accounts import lifecycle as accounts
from apps import lifecycle as apps
from apps import queueing
from apps.models import Application
from datasets import lifecycle as datasets
from datasets.models import Dataset
from datasets.script_pages import save_in_home
from jobs import lifecycle as jobs
from jobs.models import Job
from jobs.models import State as JobState
from jobs.queue import waiting
from kernel import storage
from kernel.errors import Refused
from kernel.messages import Message
from kernel.pages import address, attempt
from models_app import lifecycle as models
from models_app import sources
from models_app.models import Model

NAME = "digits"
EXAMPLES = settings.BASE_DIR / "examples"
TRAINING = 1500  # of the 1797 images; the rest is the test set
EPOCHS = 10
JOB_CPU, APP_CPU = 0.5, 0.25  # little, since everybody's application of the tour goes on


@login_required
@never_cache
@require_GET
def start(request):
    dataset = Dataset.kept.filter(user=request.user, name=NAME).first()
    job = Job.kept.filter(user=request.user, name=NAME).first()
    app = Application.kept.filter(user=request.user, name=NAME).select_related("user").first()
    context = {
        "dataset": dataset,
        "job": job,
        "job_waits": waiting.explain(job) if job else None,
        "model": Model.kept.filter(user=request.user, name=NAME).first(),
        "app": app,
        "app_waits": queueing.explain(app) if app else None,
        "src": _source(request.user) if job and job.state == JobState.FINISHED else "",
        "token": accounts.token_of(request.user),
        "gateway": address(request),
    }
    return render(request, "start.html", context)


def _source(user) -> str:
    """Return the source of a model in the example job's output; "" where it has none (the example without PyTorch)."""
    return next(iter(sources.of_job(user.username, NAME)), "")


@login_required
@require_POST
def make_dataset(request):
    """Create the example's dataset. Idempotent."""
    if not Dataset.objects.filter(user=request.user, name=NAME).exists():
        problem = attempt(lambda: _make_dataset(request.user))
        if problem:
            messages.error(request, problem)
    return redirect("start")


def _make_dataset(user) -> None:
    files = digits()
    by = user.username
    row = datasets.create_dataset(user=user, name=NAME, size=sum(map(len, files.values())), by=by)
    try:
        for path, data in files.items():
            storage.write_atomic(storage.dataset_dir(user.username, NAME) / path, data)
    except OSError as problem:
        datasets.fail(row.pk, Message("the example could not be written: %(problem)s", problem=problem.strerror), by)
        return
    datasets.heartbeat(user=user, name=NAME, state="ready", progress=100, by=by)


def digits() -> dict[str, bytes]:
    """Return the files of the example's dataset, laid out as by `examples/digits/make_dataset.py`."""
    rows = gzip.decompress((EXAMPLES / "digits" / "digits.csv.gz").read_bytes()).decode().splitlines()
    files = {}
    for part, part_rows in (("train", rows[:TRAINING]), ("test", rows[TRAINING:])):
        pairs = [row.split(",", 1) for row in part_rows]
        files[f"{part}/digits_x.csv"] = "".join(f"{pixels}\n" for _, pixels in pairs).encode()
        files[f"{part}/digits_y.csv"] = "".join(f"{label}\n" for label, _ in pairs).encode()
    return files


@login_required
@require_POST
def make_job(request):
    """Store the example's script, unless one of that name exists, and submit a job that runs it. Idempotent."""
    if not Job.objects.filter(user=request.user, name=NAME).exists():
        problem = attempt(lambda: _make_job(request.user))
        if problem:
            messages.error(request, problem)
            return redirect("start")
    return redirect("job", name=NAME)


def _make_job(user) -> None:
    torch = importlib.util.find_spec("torch") is not None
    entry = "digits/train.py" if torch else "plain_python/train.py"
    script = storage.home_dir(user.username) / entry
    try:
        if not script.is_file():
            save_in_home(user, entry, (EXAMPLES / entry).read_bytes(), replace=False)
    except Refused:
        if not script.is_file():  # otherwise a concurrent request has stored it
            raise
    jobs.create_job(
        user=user,
        name=NAME,
        entry=entry,
        runtime="torch" if torch else "python",
        cpu=JOB_CPU,
        ram=1024 if torch else 512,
        datasets=[NAME] if torch else [],
        args=["--epochs", str(EPOCHS)],
        by=user.username,
    )


@login_required
@require_POST
def make_model(request):
    """Create a model from the example job's output. Idempotent."""
    if not Model.objects.filter(user=request.user, name=NAME).exists():
        src, by = _source(request.user) or f"jobs/{NAME}", request.user.username
        problem = attempt(lambda: models.create_model(user=request.user, name=NAME, src=src, by=by))
        if problem:
            messages.error(request, problem)
    return redirect("start")


@login_required
@require_POST
def make_app(request):
    """Create the application that serves the model. Idempotent."""
    if not Application.objects.filter(user=request.user, name=NAME).exists():
        by = request.user.username
        problem = attempt(lambda: apps.create_app(user=request.user, name=NAME, model_name=NAME, cpu=APP_CPU, by=by))
        if problem:
            messages.error(request, problem)
            return redirect("start")
    return redirect("application", name=NAME)
