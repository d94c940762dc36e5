"""Scores a dataset: creates the job and the dataset of its results, and says what the job's run needs.

The job is like any other: it is queued for its resources, shows its log and its progress, is cancelled and retried. Its
code is score.py; the code that answers requests and the files of the model are added to its run (`of_run`), and its
packages are those that the model is served with. The dataset of the results is created with the job. Its files are
copied when the job has finished (datasets.copies); when the job fails it fails, too.
"""

from __future__ import annotations

from pathlib import Path

from django.db import transaction

from accounts import throttle
from accounts.tenancy import members
from datasets import lifecycle as datasets
from datasets import sources
from datasets.models import Dataset
from jobs import environment as job_environment
from jobs import lifecycle as jobs
from jobs.artifacts import outputs
from jobs.code import snapshot_code
from jobs.models import Job
from kernel import names, trash
from kernel.errors import Refused
from kernel.locking import lock_row
from kernel.messages import Message, word
from kernel.pages import free_name
from models_app import external, fetched, packages
from models_app.launching import LOADERS, LOADING, MODEL, PROGRAM
from models_app.models import Model
from models_app.models import State as ModelState
from runners import Mount, Runner

from ..launching import SERVING, of_engine
from ..models import Application, Scoring

ENTRY = "score.py"
FOLDER = Path(__file__).resolve().parent / "program"
OUTPUT = "scored"  # in the job's folder
BESIDE, SEEN = "/opt/mlp", "/opt/scoring"
LIVE = ("creating", "running")


def create(
    *, user, model: Model, dataset: str, output: str, name: str = "", tenant: str | None = None, gpu: int = 0,
    cpu: float = 1, ram: int = 1024, retries: int = 0, environment: str = "", gpu_type: str = "", by: str,
) -> Job:  # fmt: skip
    """Score a dataset with a model in a job, whose results become the dataset `output`.

    `name` is the job's, by default that of the output; `environment` a named one in place of the model's packages.
    Raises Refused, which names the field; Fault, with nothing stored, without the task queue.
    """
    names.dataset_name(output, "output")
    _require_ready(model)
    throttle.count_submission(user.username)
    outputs.require(user.pk)
    chosen = {"environment": environment or model.environment} if environment or model.environment_version_id else {
        "requirements": packages.pinned(model)
    }  # fmt: skip

    def enter(job: Job) -> None:
        locked = lock_row(Model, pk=model.pk)
        if locked is None:
            raise Refused("you have no model named %(name)s", field="model", name=model.name)
        trash.require_kept(locked)
        Scoring.objects.create(job=job, model=locked, output=output)
        try:
            datasets.create_dataset(user=user, name=output, size=0, src=f"jobs/{job.name}/{OUTPUT}",
                                    tenant=job.tenant.name, by=by)  # fmt: skip
        except Refused as refused:
            raise Refused(refused.problem, field="output" if refused.field == "name" else refused.field) from refused

    name = name or free_name(Job.objects.filter(user=user), output.replace(".", ""), "scoring")
    with snapshot_code.taken(user, ENTRY, home=FOLDER) as code, transaction.atomic():
        members.hold(user, tenant)
        return jobs.create_job(
            user=user, name=name, entry=ENTRY, snapshot=snapshot_code.record(user, code), datasets=[dataset],
            tenant=tenant, gpu=gpu, gpu_type=gpu_type, cpu=cpu, ram=ram, retries=retries, within=enter, by=by, **chosen,
        )  # fmt: skip


def _require_ready(model: Model) -> None:
    if model.state != ModelState.READY:
        raise Refused("the model %(name)s is %(state)s; it can score once it is ready",
                      field="model", name=model.name, state=word(model.state))  # fmt: skip


def of_run(job: Job, runner: Runner) -> job_environment.Extra | None:
    """Return what the run of a job that scores has beside other jobs'; None for any other job."""
    row = Scoring.objects.select_related("model__user").filter(job=job).first() if job.entry == ENTRY else None
    if row is None or row.model is None:
        return None
    model = row.model
    files = external.folder(model)
    mounts = [Mount(each.source, each.target.replace(BESIDE, SEEN, 1)) for each in LOADERS]  # a job has its own there
    mounts += [Mount(SERVING, f"{SEEN}/serving"), Mount(files, MODEL)]
    variables = {
        "MLP_SERVING": runner.place(SERVING, f"{SEEN}/serving"),
        "MLP_LOADING": runner.place(PROGRAM, LOADING.replace(BESIDE, SEEN, 1)),
        "MLP_SCORING_MODEL": runner.place(files, MODEL),
        "MLP_SCORING_NAME": model.name,
        "MLP_SCORING_DATASET": sources.parse(job.user, job.datasets[0]).name,
        **({"MLP_SCORING_CHAT": "1", **of_engine(job.ram)} if model.is_language_model else {}),
    }
    return job_environment.Extra(tuple(mounts), variables, "serve")


def waits_for(job: Job) -> Message | None:
    """Return what a job that scores waits for: the files of a model that is in a bucket. Raises Refused."""
    row = Scoring.objects.select_related("model__user").filter(job=job).first() if job.entry == ENTRY else None
    return fetched.waits_for(row.model, job.not_before) if row is not None and row.model is not None else None


def output_of(job: Job) -> Dataset | None:
    """Return the dataset of the results of a job."""
    row = Scoring.objects.filter(job=job).first()
    return Dataset.objects.filter(user=job.user, name=row.output).first() if row else None


def of_application(app: Application) -> dict:
    """Return what a scoring with an application's model takes of the application."""
    return {"model": app.model, "environment": app.environment if app.environment_version_id else ""}


def register() -> None:
    """Let jobs that score have what they need."""
    job_environment.register(of_run, waits_for)
