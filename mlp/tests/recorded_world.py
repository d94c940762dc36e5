"""What pages show of programs' requests: traces, evaluations, and records of applications. Part of page_world.py."""

from __future__ import annotations

import json
from datetime import timedelta

from django.utils import timezone

from apps.drift.columns import columns_of, profile_of
from apps.drift.comparing import Rule, compare
from apps.models import Application, DriftCheck, DriftWindow, Feedback, Record, Recording, Shadow, ShadowPair
from jobs.models import Assessment, EvaluationDataset, Job, Project, Scorer, ScorerVersion, Span, Trace
from tracking.evaluations import datasets, records


def fill_traces(user, words: str) -> None:
    """Create a trace of two spans with messages and feedback."""
    trace = Trace.objects.create(
        user=user, project=Project.objects.default_of(user), key="0af7651916cd43dd8448eb211c80319c", name=words,
        status="error", started_ns=1_790_000_000 * 10**9, ended_ns=1_790_000_002 * 10**9, spans_kept=2, errors=1,
        input_tokens=12, output_tokens=3, model=words, request=words, response=words, session=words,
        tags={words: words},
    )  # fmt: skip
    said = json.dumps([{"role": words, "content": words}])
    for key, parent in (("1" * 16, ""), ("2" * 16, "1" * 16)):
        Span.objects.create(
            user=user, trace=trace, key=key, parent=parent, name=words, type="CHAT_MODEL" if parent else words[:50],
            status="error", message=words, started_ns=trace.started_ns, ended_ns=trace.ended_ns,
            attributes={"gen_ai.input.messages": said, words: words}, resource={words: words},
            events=[{"name": words, "at_ns": 1, "attributes": {words: words}}],
        )  # fmt: skip
    Assessment.objects.create(user=user, trace=trace, name=words, value=words, rationale=words, source=words)


def fill_evaluations(user, words: str) -> None:
    """Create an evaluation dataset with a record, a scorer, and two evaluations that differ."""
    project = Project.objects.default_of(user)
    row = datasets.create(user, words, [project], {words: words, "w" * 255: "v" * 300})
    if EvaluationDataset.objects.count() == 1:  # the first one is in an address of PAGES
        EvaluationDataset.objects.filter(pk=row.pk).update(key="d-0af7651916cd43dd8448eb211c80319c")
    given = [{
        "inputs": {words: words}, "outputs": words, "expectations": {words: words}, "tags": {"mlflow.user": words},
        "source": {"source_type": "HUMAN", "source_data": {"source_id": words}},
    }]  # fmt: skip
    datasets.merge(row, records.given(json.dumps(given)))
    scorer = Scorer.objects.create(user=user, project=project, name=words[:255])
    ScorerVersion.objects.create(user=user, scorer=scorer, number=1, serialized=json.dumps({words: words}))
    for number, run in enumerate(Job.objects.filter(user=user, name__in=("fit", "done")).order_by("name")):
        Job.objects.filter(pk=run.pk).update(project=project, system_tags={"mlflow.runType": "genai_evaluate"})
        trace = Trace.objects.create(
            user=user, project=project, key=f"{number + 100:032x}", name=words, request=words, status="ok",
            started_ns=1, response=f"{words} {number}", metadata={"mlflow.sourceRun": run.run_id.hex},
        )  # fmt: skip
        for name, value in ((words, f"{words} {number}"), ("good", bool(number))):
            Assessment.objects.create(user=user, trace=trace, name=name, value=value, rationale=words)
        Assessment.objects.create(user=user, trace=trace, name=words, kind="expectation", value=words)


def move_recorded(project: Project) -> None:
    """Move the first trace, the evaluation datasets and the evaluation done to a project."""
    Trace.objects.filter(key="0af7651916cd43dd8448eb211c80319c").update(project=project)
    Job.objects.filter(user=project.user, name="done").update(project=project)
    project.evaluation_datasets.add(*EvaluationDataset.objects.filter(user=project.user))


def fill_records(app: Application, words: str) -> None:
    """Let an application have recorded a request, with feedback."""
    Recording.objects.create(app=app, on=True, dropped=3, problem=words, mask=[words])
    kept = {f"{side}_{what}": value for side in ("input", "output") for what, value in (
        ("kept", "all"), ("type", words[:100]), ("size", 9))}  # fmt: skip
    number = Record.objects.count() + 1  # the first one is in an address of PAGES
    Record.objects.create(
        pk=number, app=app, user=app.user, request_id=words[:64], at=timezone.now(), run_name="app-1-1",
        model_name=words[:50], caller=words[:50], path=words, status=200, ms=1.5, size=400, input=words,
        output=json.dumps({words: words}), **kept,
    )  # fmt: skip
    Feedback.objects.create(app=app, user=app.user, request_id=words[:64], value=words, comment=words)
    fill_drift(app, words)
    fill_shadow(app, words)


def fill_shadow(app: Application, words: str) -> None:
    """Let an application have had a shadow: one pair of answers that differ."""
    shadow = Shadow.objects.create(
        app=app, model_name=words[:50], serves=words[:50], by=words[:80], percent=10, ended=timezone.now(),
        outcome="failed", reason=words, different=1, base_ms={"7": 1}, shadow_ms={"9": 1}, ignore=[words],
        hours={"2026-11-30T21:00Z": {**dict.fromkeys(Shadow.COUNTS, 0), "different": 1}},
    )  # fmt: skip
    ShadowPair.objects.create(
        shadow=shadow, user=app.user, request_id=words[:64], path=words[:200], kind="different", at_path=words[:200],
        base_status=200, shadow_status=200, base_ms=1.5, shadow_ms=2.5, input=words, base_output=words,
        shadow_output=words,
    )  # fmt: skip


def fill_drift(app: Application, words: str) -> None:
    """Let an application have been compared with a reference: one window with a feature of each kind."""
    rows = [{words: number % 3, "n": number / 7, "t": f"{words} and more {number}"} for number in range(60)]
    profile = profile_of(rows, {}, "input")
    found = compare(profile, columns_of(rows), Rule())
    DriftCheck.objects.create(app=app, user=app.user, on=True, dataset="digits", target=words[:100], profile=profile,
                              problem=words, kinds={words: "skip"})  # fmt: skip
    begin = timezone.now() - timedelta(days=2)
    DriftWindow.objects.create(app=app, user=app.user, begin=begin, end=begin + timedelta(days=1), verdict="drift",
                               count=60, compared=3, drifted=1, features=found)  # fmt: skip
