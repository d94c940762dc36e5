"""The form of a new sweep, as the body that REST takes; and a sweep as the YAML that creates it again."""

from __future__ import annotations

from collections.abc import Callable

from django.http import QueryDict

from automation.models import Sweep
from jobs import form_values
from kernel import yaml_input
from kernel.errors import Refused

EXAMPLE = """\
lr: {type: float, low: 1e-4, high: 0.1, log: true}
batch: {type: int, low: 16, high: 128, step: 16}
optimizer: {choices: [sgd, adam]}
momentum: {type: float, low: 0, high: 0.99, when: {optimizer: sgd}}
"""
FIRST = {
    "cpu": 1, "gpu": 0, "ram": 512, "space": EXAMPLE, "direction": "minimize", "statistic": "last", "sampler": "tpe",
    "pruner": "none", "trials": 20, "parallel": 2, "pass_as": "options", "failures": 5, "datasets": [],
}  # fmt: skip
MAX_YAML = 1 << 20


def body_of(post: QueryDict) -> dict:
    """Return the body of POST …/sweeps that the form means. Raises Refused."""
    if "yaml" in post:
        if len(post["yaml"]) > MAX_YAML:
            raise Refused("must have at most %(limit)s bytes", field="yaml", limit=MAX_YAML)
        return yaml_input.read(post["yaml"], "yaml")
    body = {
        "name": post.get("name", "").strip(),
        "title": post.get("title", ""),
        "job": job_of(post),
        "space": yaml_input.read(post.get("space", ""), "space"),
    }
    objective = {name: post[name] for name in ("direction", "statistic") if post.get(name)}
    body["objective"] = {"metric": post.get("metric", "").strip(), **objective}
    body |= {name: post[name] for name in ("sampler", "pruner", "pass_as", "notes") if post.get(name)}
    body |= _numbers(post, {"trials": int, "parallel": int})
    stop = _numbers(post, {"hours": float, "gpu_hours": float, "target": float, "patience": int, "failures": int})
    return body | ({"stop": stop} if stop else {})


def job_of(post: QueryDict) -> dict:
    """Return the job that a form means, without a name. Raises Refused."""
    job: dict = {"entry": post.get("entry", "").strip()}
    job |= _numbers(post, {"cpu": float, "gpu": int, "ram": int, "retries": int})
    if post.get("args", "").strip():
        job["args"] = form_values.arguments(post["args"])
    if post.get("env", "").strip():
        job["env"] = form_values.variables(post["env"])
    if post.get("timeout", "").strip():
        job["timeout"] = form_values.seconds(post["timeout"].strip())
    if datasets := [name for name in post.getlist("datasets") if name]:
        job["datasets"] = datasets
    if post.get("tags", "").strip():
        job["tags"] = form_values.tags(post["tags"])
    texts = {name: post.get(name, "").strip() for name in ("environment", "image", "gpu_type", "project")}
    return job | {name: text for name, text in texts.items() if text}


def _numbers(post: QueryDict, kinds: dict[str, Callable]) -> dict:
    """Return the numbers of the form; what is none is left as it is for the serializer to refuse."""
    numbers = {}
    for name, kind in kinds.items():
        text = post.get(name, "").strip()
        if text:
            try:
                numbers[name] = kind(text)
            except ValueError:
                numbers[name] = text
    return numbers


def params_of(sweep: Sweep, post: QueryDict) -> dict:
    """Return the values that the form of an own trial has; empty ones are left to the sampler."""
    params = {}
    for name, parameter in sweep.space.items():
        text = post.get(f"param-{name}", "").strip()
        if not text:
            continue
        if parameter["type"] == "categorical":
            place = int(text) if text.isascii() and text.isdigit() else -1
            if not 0 <= place < len(parameter["choices"]):
                raise Refused("is not in the search space", field=f"params.{name}")
            params[name] = parameter["choices"][place]
        else:
            try:
                params[name] = int(text) if parameter["type"] == "int" else float(text)
            except ValueError:
                raise Refused("must be a number", field=f"params.{name}")
    return params


def as_yaml(sweep: Sweep, job: dict) -> str:
    """Return the YAML that creates such a sweep; `job` is what each trial submits, as the reader may see it."""
    objectives = sweep.objectives
    body = {
        "name": sweep.name,
        **({"title": sweep.title} if sweep.title else {}),
        **({"notes": sweep.notes} if sweep.notes else {}),
        "job": job,
        "space": sweep.space,
        "pass_as": sweep.pass_as,
        **({"objective": objectives[0]} if len(objectives) == 1 else {"objectives": objectives}),
        "sampler": _short(sweep.sampler),
        "pruner": _short(sweep.pruner),
        "trials": sweep.trials_wanted,
        "parallel": sweep.parallel,
        "stop": sweep.stop,
    }
    return yaml_input.write(body)


def _short(chosen: dict) -> dict | str:
    """Return a sampler or pruner without the options that the engine decides."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return given if len(given) > 1 else given["type"]
