"""What the result of a step depends on, as a key: code, arguments, environment, datasets, inputs, runtime, image,
and the steps before it.

A step with the key of one that has completed is not run again. Values of environment variables are in the key only by
its digest.
"""

from __future__ import annotations

import hashlib
import json

import runners
from automation.models import Step, StepState
from datasets import sources as datasets
from jobs.models import State

MATTERS = ("entry", "args", "env", "runtime", "workers", "network", "gpu", "gpu_type", "requirements",
           "find_requirements", "environment")  # fmt: skip


def key_of(step: Step, sources: dict[str, Step]) -> str:
    """Return the key of a step whose inputs are there; `sources` are the steps by name that it needs."""
    job = step.spec["job"]
    inputs = {}
    for name, source in step.spec.get("inputs", {}).items():
        other, _slash, path = source.partition("/")
        inputs[name] = [_result(sources[other]), path]
    images = runners.get().images or {}
    parts = {
        "step": [step.run.pipeline_id, step.name],
        "after": {name: _result(other) for name, other in sources.items()},
        "code": step.snapshot.digest,
        "job": {name: job[name] for name in MATTERS if name in job},
        "datasets": [_dataset(step, reference) for reference in job.get("datasets", [])],
        "inputs": inputs,
        **({"image": [job["image"], images.get(job["image"], "")]} if job.get("image") else {}),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _result(step: Step) -> str:
    """Return the identity of a step's output: the run id of its job, "" of an approval."""
    return step.job.run_id.hex if step.job else ""


def _dataset(step: Step, reference: str) -> list:
    """Return the identity of what a dataset holds: that of a version does not change with those published later."""
    dataset = datasets.read_now(step.run.user, reference)
    if dataset is None:
        return [reference]
    row, version = dataset
    if datasets.parse(step.run.user, reference).version:
        return [reference.partition("@")[0], str(row.pk), str(version)]
    return [reference, str(row.pk), str(row.stored), str(row.touched)]


def earlier(step: Step, key: str) -> Step | None:
    """Return the newest completed step of the user's with this key whose output is still there."""
    rows = Step.objects.filter(key=key, state=StepState.COMPLETE, run__user=step.run.user)
    rows = rows.filter(job__state=State.FINISHED, job__trashed=None, job__output_removed=None)
    return rows.select_related("job", "run__pipeline").order_by("-pk").first()
