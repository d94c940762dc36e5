"""Pipelines in the browser: the list with its form, one pipeline with its graph and runs, one run."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from automation.models import LIVE_STEPS, Pipeline, PipelineRun, RunState, StepState
from automation.sweeps.forms import MAX_YAML
from jobs.models import Job
from kernel import yaml_input
from kernel.errors import Refused
from kernel.models import history_of
from kernel.pages import Listing, act, create_once, form_mark, named, page_of, retitle, why_not

from . import drawing, graph, lifecycle
from .serializers import PipelineChangeIn, PipelineIn

EXAMPLE = """\
name: nightly
params: {epochs: 10}
steps:
  prepare: {entry: prepare.py}
  train:
    entry: train.py
    args: [--epochs, "${epochs}"]
    inputs: {DATA: prepare}
  good: {needs: [train], when: {train: accuracy > 0.9}, approve: "Publish this model?"}
  publish: {entry: publish.py, needs: [good], inputs: {MODEL: train/ckpt}}
"""
TONES = {  # the state of other objects that is shown alike
    StepState.WAITING: "waiting",
    StepState.APPROVAL: "creating",
    StepState.COMPLETE: "finished",
    StepState.CACHED: "finished",
    StepState.SKIPPED: "cancelled",
    StepState.FAILED: "error",
}
HISTORY_SHOWN = 20
LISTING = Listing(
    heading=gettext_lazy("Pipelines"),
    about=gettext_lazy(
        "A pipeline is a graph of jobs: the output of one is an input of the next, and what has not changed is not run "
        "again."
    ),
    new=gettext_lazy("New pipeline"),
    none=gettext_lazy("No pipelines yet"),
    hint=gettext_lazy("Describe the first one above, in YAML."),
    icon="again",
)


@login_required
@require_http_methods(["GET", "POST"])
def pipelines(request):
    """Show the user's pipelines, and the form of a new one, which a POST creates."""
    problems, made = create_once(request, Pipeline, _create, ("yaml",))
    if made is not None:
        return made
    page = page_of(request, Pipeline.objects.filter(user=request.user, deleted=False).order_by("-pk"))
    rows = list(page.object_list)
    newest = PipelineRun.objects.filter(pipeline__in=rows).order_by("pipeline", "-number").distinct("pipeline")
    last = {run.pipeline_id: run for run in newest}
    for row in rows:
        row.last_run = last.get(row.pk)
    context = {
        "listing": LISTING,
        "page": page,
        "pipelines": rows,
        "problems": problems,
        "form": request.POST if request.method == "POST" else {"yaml": _first(request)},
        "any": bool(rows),
        "open": bool(problems or not rows or {"new", "from"} & set(request.GET)),
        "mark": form_mark(request),
        "full": why_not(lambda: lifecycle.require_room(request.user)),
    }
    return render(request, "automation/pipelines.html", context, status=problems.status if problems else 200)


def _first(request) -> str:
    """Return the form at first: an example, or the pipeline that leads to `?from=job`."""
    job = named(request, Job.objects.filter(user=request.user), "from")
    return drawing.as_yaml(job) if job is not None else EXAMPLE


def _read(request) -> dict:
    text = request.POST.get("yaml", "")
    if len(text) > MAX_YAML:
        raise Refused("must have at most %(limit)s bytes", field="yaml", limit=MAX_YAML)
    return yaml_input.read(text, "yaml")


def _create(request) -> Pipeline:
    given = {"params": {}, **PipelineIn.read(_read(request))}
    return lifecycle.save_pipeline(user=request.user, **given)


def as_yaml(row: Pipeline) -> str:
    """Return the YAML that creates such a pipeline."""
    steps = {
        name: {**step.get("job", {}), **{key: each for key, each in step.items() if _is_shown(key, each)}}
        for name, step in row.steps
    }
    body = {"name": row.name} | {name: text for name in ("title", "notes") if (text := getattr(row, name))}
    body |= {"params": row.params} if row.params else {}
    body["steps"] = steps
    return yaml_input.write(body)


def _is_shown(key: str, value: object) -> bool:
    """Return whether a field of a step is not what it is by default."""
    return key != "job" and value not in ([], {}) and not (key == "cache" and value is True)


# --- one pipeline ----------------------------------------------------------------------------------------------------
def _own(request, name: str) -> Pipeline:
    return get_object_or_404(Pipeline.objects.select_related("user"), user=request.user, name=name, deleted=False)


def _run_of(request, name: str, number: str) -> PipelineRun:
    rows = lifecycle.with_steps(PipelineRun.objects.filter(pipeline__user=request.user, pipeline__name=name))
    run = rows.filter(number=int(number)).first() if number.isascii() and number.isdigit() and len(number) < 9 else None
    if run is None:
        raise Http404
    return run


@login_required
@require_GET
def pipeline(request, name):
    """Show one pipeline: its graph with the states of its last run, its runs, and its definition."""
    row = _own(request, name)
    page = page_of(request, row.runs.order_by("-number"))
    newest = lifecycle.with_steps(row.runs).order_by("-number").first()
    states = {step.name: step for step in newest.steps.all()} if newest else {}
    context = {
        "pipeline": row,
        "page": page,
        "picture": _picture(dict(row.steps), states),
        "text": as_yaml(row),
        "params": row.params,
        "unrunnable": why_not(lambda: lifecycle.require_runnable(row)),
        "newest": newest,
    }
    return render(request, "automation/pipeline.html", context)


@login_required
@require_GET
def run(request, name, number):
    """Show one run: the graph, its steps, and what waits for approval."""
    row = _run_of(request, name, number)
    steps = list(row.steps.all())
    for step in steps:
        step.tone = TONES.get(step.state, step.state)
    context = {
        "run": row,
        "pipeline": row.pipeline,
        "steps": steps,
        "picture": _picture({step.name: step.spec for step in steps}, {step.name: step for step in steps}),
        "waiting": [step for step in steps if step.state == StepState.APPROVAL],
        "active": row.state == RunState.RUNNING,
        "unrunnable": why_not(lambda: lifecycle.require_runnable(row.pipeline)),
        "done": sum(step.state not in LIVE_STEPS for step in steps),
        "history": history_of(row)[:HISTORY_SHOWN],
    }
    return render(request, "automation/pipeline_run.html", context)


def _picture(steps: dict, rows: dict) -> dict:
    """Return the drawing of a graph: `boxes` with each step's name, place, state and word."""
    picture = graph.drawn(steps)
    boxes = []
    for name, (x, y) in picture["boxes"].items():
        step = rows.get(name)
        tone = TONES.get(step.state, step.state) if step else "waiting"
        word = step.get_state_display() if step else ""
        if not word and "approve" in steps[name]:
            word = _("approval")
        boxes.append({"name": name, "x": x, "y": y, "tone": tone, "word": word, "job": step.job if step else None})
    return {**picture, "boxes": boxes, "wide": graph.WIDE, "high": graph.HIGH}


@login_required
@require_POST
def title(request, name):
    return retitle(request, Pipeline, name)


@login_required
@require_POST
def change(request, name):
    """Run, change or delete a pipeline; `do` says what."""
    actions = {"run": _run, "edit": _edit, "delete": _delete}
    return act(request, actions, _own(request, name), redirect("pipeline", name=name))


def _run(request, row: Pipeline):
    given = {
        name: _like(row.params[name], request.POST[f"param-{name}"])
        for name in row.params
        if request.POST.get(f"param-{name}", "") != ""
    }
    begun = lifecycle.begin_run(row, by=request.user.username, params=given, fresh="fresh" in request.POST)
    return redirect("pipelinerun", name=row.name, number=str(begun.number))


def _like(default, text: str):
    """Return the text as a value of the default's type, if it is one."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _edit(request, row: Pipeline):
    given = _read(request)
    given.pop("name", None)
    lifecycle.save_pipeline(user=row.user, name=row.name, new=False, **{"params": {}, **PipelineChangeIn.read(given)})
    messages.success(request, _("The pipeline is changed."))
    return redirect("pipeline", name=row.name)


def _delete(request, row: Pipeline):
    lifecycle.delete_pipeline(user=row.user, name=row.name, by=request.user.username)
    messages.success(request, _("The pipeline %(name)s is deleted.") % {"name": row.name})
    return redirect("pipelines")


@login_required
@require_POST
def change_run(request, name, number):
    """Cancel or delete a run, approve or reject one of its steps, or run it again; `do` says what."""
    shown = redirect("pipelinerun", name=name, number=number)
    return act(request, RUN_CHANGES, _run_of(request, name, number), shown)


def _cancel(request, row: PipelineRun) -> None:
    lifecycle.cancel_run(row, by=request.user.username)


def _delete_run(request, row: PipelineRun):
    lifecycle.delete_run(row, by=request.user.username)
    return redirect("pipeline", name=row.pipeline.name)


def _approve(request, row: PipelineRun) -> None:
    lifecycle.decide(row, request.POST.get("step", ""), approve=True, by=request.user.username)


def _reject(request, row: PipelineRun) -> None:
    lifecycle.decide(row, request.POST.get("step", ""), approve=False, by=request.user.username)


def _again(request, row: PipelineRun):
    params = {name: value for name, value in row.params.items() if name in row.pipeline.params}
    begun = lifecycle.begin_run(row.pipeline, by=request.user.username, params=params)
    return redirect("pipelinerun", name=row.pipeline.name, number=str(begun.number))


RUN_CHANGES: dict[str, Callable] = {
    "cancel": _cancel,
    "delete": _delete_run,
    "approve": _approve,
    "reject": _reject,
    "again": _again,
}
