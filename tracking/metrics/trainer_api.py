"""The status contract of Kubeflow Trainer, by which a Hugging Face `Trainer` reports without changes to the script.

transformers uses it if KUBEFLOW_TRAINER_SERVER_URL is set (jobs.environment): rank 0 posts every five seconds, and
ignores errors. Each status repeats the metrics that were logged last, which are therefore deduplicated.
"""

from __future__ import annotations

import hashlib
import json
import re

from django.conf import settings
from django.db.models import Max

from jobs import lifecycle
from jobs.api import JobView
from jobs.auth import require_own_job
from jobs.models import Job, ProgressSource, Value
from jobs.serializers import TrainerIn
from kernel import bus
from kernel.effects import SUBMIT
from kernel.views import Call

from . import recording

STEP, COUNTERS = "current_step", {"current_step", "total_steps", "current_epoch"}
MAX = 100  # numbers of one status
MAX_PROGRESS = 99  # the end of the training is not that of the script
PREFIXES = ("eval", "test")  # `eval_loss` is shown as `eval/loss`, `loss` as `train/loss`, as TensorBoard does


class JobTrainer(JobView):
    """For trainers that follow the status contract of Kubeflow Trainer. Others use `:heartbeat` and `/values`."""

    accepted = frozenset({"user", "job"})
    calls = {"POST": Call("Report a trainer's progress, remaining time and metrics", SUBMIT, body=TrainerIn)}

    def post(self, request, user, name):
        status = self.body()["trainerStatus"]
        job = self.job(name)
        require_own_job(request, job)
        lifecycle.heartbeat(
            user=self.owner,
            name=name,
            by=self.by,
            state="running",
            progress=min(MAX_PROGRESS, status.get("progressPercentage", 0)),
            remaining=status.get("estimatedRemainingSeconds"),
            source=ProgressSource.TRAINER,
        )
        if job.values_kept < settings.JOB_VALUES:
            _publish(job, user, {metric["name"]: metric["value"] for metric in status.get("metrics", [])})
        return self.answer()


def _publish(job: Job, user: str, metrics: dict[str, str]) -> None:
    """Publish the metrics as reports at the trainer's step, unless they were published before. What the script reports
    itself under the trainer's name, by MLflow's callback for example, is not reported twice.
    """
    values, own = {}, set(job.summaries.filter(name__in=list(metrics)).values_list("name", flat=True))
    for name, text in metrics.items():
        number = _number(text)
        if number is not None and name not in COUNTERS | own and len(values) < MAX:
            values[shown_name(name)] = number
    if not values:
        return
    step = _number(metrics.get(STEP, ""))
    known = step is not None and 0 <= step < 2**63
    row = {"step": int(step) if known else _last_step(job), "values": values}
    digest = hashlib.sha256(json.dumps([job.attempt, values], sort_keys=True).encode()).hexdigest()
    bus.publish([(recording.values_subject(user, job.name), json.dumps([row]).encode(), f"{job.pk}.trainer.{digest}")])


def shown_name(name: str) -> str:
    """Return the name of the series of a trainer's metric."""
    name = re.sub(r"[^A-Za-z0-9_.:/ -]", "_", name)[:90]
    for prefix in PREFIXES:
        if name.startswith(f"{prefix}_") and len(name) > len(prefix) + 1:
            return f"{prefix}/{name.removeprefix(f'{prefix}_')}"
    return f"train/{name}"


def _number(text: str) -> float | None:
    """Parse the number, which may be NaN or infinite; return None for any other text."""
    try:
        return float(text)
    except ValueError:
        return None


def _last_step(job: Job) -> int:
    return Value.objects.filter(job=job).aggregate(last=Max("step"))["last"] or 0
