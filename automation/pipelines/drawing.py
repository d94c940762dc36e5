"""A pipeline drawn from jobs: "this job uses the output of that one", for all that a job has used."""

from __future__ import annotations

from jobs.models import Job
from kernel import yaml_input

from . import graph

MAX = 100
TAKEN_OVER = (
    "entry",
    "args",
    "env",
    "cpu",
    "gpu",
    "ram",
    "datasets",
    "retries",
    "runtime",
    "workers",
    "network",
    "requirements",
    "environment",
    "image",
    "gpu_type",
)
USUAL = {
    "args": [],
    "env": {},
    "gpu": 0,
    "datasets": [],
    "retries": 0,
    "runtime": "python",
    "workers": 1,
    "network": "",
    "requirements": "",
    "environment": "",
    "image": "",
    "gpu_type": "",
}


def as_yaml(job: Job) -> str:
    """Return the YAML of the pipeline that ends with the job: its steps are the jobs whose outputs lead to it."""
    body = {"name": job.name, "steps": steps_of(job)}
    return yaml_input.write(body)


def steps_of(job: Job) -> dict[str, dict]:
    """Return the steps by name, which is the job's, each after those that it needs; of very many the last ones."""
    jobs: dict[str, Job] = {}
    left = [job]
    while left and len(jobs) < MAX:
        step = left.pop(0)
        jobs.pop(step.name, None)  # it comes before all that use it
        jobs[step.name] = step
        names = {source.partition("/")[0] for source in step.job_inputs.values()}
        left += Job.objects.filter(user=job.user_id, name__in=sorted(names)).order_by("pk")
    return {job.name[:40]: _step(job) for job in reversed(jobs.values())}


def _step(job: Job) -> dict:
    step = {name: getattr(job, name) for name in TAKEN_OVER}
    step["args"] = [graph.escaped(text) for text in job.args]
    step["env"] = {name: graph.escaped(text) for name, text in job.env.items()}
    step = {name: value for name, value in step.items() if name not in USUAL or value != USUAL[name]}
    return step | ({"inputs": job.job_inputs} if job.job_inputs else {})
