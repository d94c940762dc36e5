"""The calls about traces that MLflow 3's clients make: they report how one ended, read, search, tag and delete them.

Spans come by OTLP (intake.py). A client that has sent them reports the trace when its root has ended.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet

from jobs.models import Assessment, Project, Span, Trace, TraceLink
from kernel import after_commit, sanitize
from kernel.effects import DESTROY, READ, SUBMIT
from kernel.locking import lock_row
from mlflow_protocol import limits, search
from mlflow_protocol.protocol import Call, MlflowError, Routes, effect, for_jobs, missing
from mlflow_protocol.reading import Fields, WrongField
from tracking.mlflow import lookup as projects

from . import lookup, meaning, mlflow_assessments, mlflow_search, mlflow_shown, recording, retention
from .rows import SOURCE_RUN, in_time, require_small

RESULTS, MAX_RESULTS = 100, 500
MAX_METADATA_VALUE = 8000  # characters
MAX_LINKS = 1000  # runs of one trace
MAX_AT_ONCE = 100  # traces of a request that have their spans, or that are linked to a run
DURATION = re.compile(r"(-?\d{1,12})(?:\.(\d{1,9}))?s", re.ASCII)
INFO, LOCATION, EXPERIMENT = "trace_info", "trace_location", "mlflow_experiment"  # fields of requests
LAST_NS = 2**63 - 1


# --- what a client reports --------------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def report(call: Call) -> dict:
    """Store what a client says of a whole trace: it wins over what the spans say. A repeated call changes nothing."""
    given = call.fields.nested("trace").nested(INFO)
    text = given.text("trace_id", required=True, most=100)
    key = lookup.key_of(text)
    if key is None:
        raise WrongField(f"Invalid trace ID '{text[:100]}'")
    location = given.nested(LOCATION).nested(EXPERIMENT)
    project = _active(call, location.text("experiment_id", projects.DEFAULT_ID))
    columns, said = _reported(given), given.messages("assessments", 1000)
    with transaction.atomic():
        Trace.objects.bulk_create([Trace(user_id=call.caller.user_id, project=project, key=key)], ignore_conflicts=True)
        trace = lock_row(Trace, user_id=call.caller.user_id, key=key)
        if trace is None or trace.project_id != project.pk:
            raise WrongField(f"The trace {text} is in another experiment")
        tags, metadata = columns.pop("tags"), columns.pop("metadata")
        trace.tags, trace.metadata = {**trace.tags, **tags}, {**trace.metadata, **metadata}
        _require_few(trace)
        for name, value in columns.items():
            if value not in ("", None):
                setattr(trace, name, value)
        _take_over(trace)
        trace.reported = trace.status != Trace.Status.IN_PROGRESS
        trace.save()
        if not Assessment.objects.filter(trace=trace).exists():
            for message in said:
                mlflow_assessments.add(trace, message)
    after_commit.changed(call.caller.username, "project", "", moving=True)
    return {"trace": {"trace_info": mlflow_shown.info(trace, _said_of([trace])[trace.pk])}}


def _active(call: Call, experiment: str) -> Project:
    project = projects.project(call, experiment, write=True)
    if project.trashed is not None:
        raise WrongField(f"The experiment {project.pk} must be in the 'active' state. Current state is deleted.")
    return project


def _reported(given: Fields) -> dict:
    """Return the columns that a TraceInfo gives. Raises WrongField."""
    state = given.text("state", "STATE_UNSPECIFIED")
    status = {said: own for own, said in mlflow_shown.STATES.items()}.get(state, Trace.Status.OK)
    columns = {
        "status": status,
        "request": recording.short(given.text("request_preview")),
        "response": recording.short(given.text("response_preview")),
        "tags": _pairs(given, "tags", limits.MAX_TAG),
        "metadata": _pairs(given, "trace_metadata", MAX_METADATA_VALUE),
    }
    if client_id := given.text("client_request_id", most=1000):
        columns["metadata"]["client_request_id"] = client_id
    if (begin := given.text("request_time")) != "":
        columns["started_ns"] = _ns(begin)
        if match := DURATION.fullmatch(given.text("execution_duration")):
            lasted = int(match[1]) * 10**9 + int((match[2] or "").ljust(9, "0"))
            columns["ended_ns"] = min(columns["started_ns"] + max(lasted, 0), LAST_NS)
    return columns


def _ns(text: str) -> int:
    """Return the nanoseconds of a Timestamp. Raises WrongField."""
    whole, dot, fraction = text.removesuffix("Z").partition(".")
    try:
        moment = datetime.fromisoformat(f"{whole}+00:00")
        nanoseconds = int(fraction.ljust(9, "0")[:9]) if dot else 0
    except ValueError:
        raise WrongField(f"Invalid value '{text[:50]}' for parameter 'request_time': must be a time") from None
    return min(max(0, int((moment - mlflow_shown.EPOCH).total_seconds())) * 10**9 + nanoseconds, LAST_NS)


def _pairs(given: Fields, name: str, most: int) -> dict[str, str]:
    """Return an object of texts, each cut to so many characters. Raises WrongField."""
    values = given.given.get(name) or {}
    if not isinstance(values, dict) or len(values) > recording.MAX_METADATA:
        most = recording.MAX_METADATA
        raise WrongField(f"Invalid value for parameter '{name}': must be an object of at most {most} texts")
    return {sanitize.text(str(key))[: limits.MAX_KEY]: sanitize.text(str(values[key]))[:most] for key in values}


def _require_few(trace: Trace) -> None:
    tags, metadata, size = recording.MAX_TAGS, recording.MAX_METADATA, recording.MAX_DETAILS
    if len(trace.tags) > tags or len(trace.metadata) > metadata:
        raise WrongField(f"a trace has at most {tags} tags and {metadata} entries of metadata")
    if recording.size_of(trace) > size:
        raise WrongField(f"the tags and metadata of a trace have at most {size} characters")


def _take_over(trace: Trace) -> None:
    """Take name, session, user, tokens and cost over from tags and metadata."""
    trace.name = (trace.tags.get(mlflow_shown.NAME) or trace.name)[:500]
    trace.session = (trace.metadata.get(recording.SESSION) or trace.session)[:250]
    trace.end_user = (trace.metadata.get(recording.END_USER) or trace.end_user)[:250]
    if recording.USAGE in trace.metadata:
        usage = {"mlflow.chat.tokenUsage": trace.metadata[recording.USAGE]}
        trace.input_tokens, trace.output_tokens = meaning.tokens_of(usage)
    if recording.COST in trace.metadata:
        trace.cost = meaning.cost_of({"mlflow.llm.cost": trace.metadata[recording.COST]}, "", (None, None))


# --- what is read -----------------------------------------------------------------------------------------------------
def _said_of(traces: list[Trace]) -> dict[int, list[Assessment]]:
    """Return the assessments of traces. Raises Refused for more than one answer may have."""
    found: dict[int, list[Assessment]] = defaultdict(list)
    rows = Assessment.objects.filter(trace__in=[trace.pk for trace in traces])
    require_small(rows)
    for row in rows.order_by("pk"):
        found[row.trace_id].append(row)
    return found


@effect(READ)
@for_jobs
def get_info(call: Call, trace: str) -> dict:
    row = lookup.trace(call, trace)
    return {"trace": {"trace_info": mlflow_shown.info(row, _said_of([row])[row.pk])}}


@effect(READ)
@for_jobs
def get(call: Call) -> dict:
    """Return a trace with its spans."""
    row = lookup.trace(call, call.fields.text("trace_id", required=True))
    return {"trace": _whole([row])[0]}


@effect(READ)
@for_jobs
def batch_get(call: Call) -> dict:
    """Return several traces with their spans, as many as fit; those that cannot be read are left out."""
    texts = call.fields.texts("trace_ids")
    if len(texts) > MAX_AT_ONCE:
        raise WrongField(f"Invalid value for parameter 'trace_ids': at most {MAX_AT_ONCE} traces at once")
    return {"traces": _whole(mlflow_search.readable(call, [key for text in texts if (key := lookup.key_of(text))]))}


@effect(READ)
@for_jobs
def batch_get_infos(call: Call) -> dict:
    """Return what is known of several traces, without their spans."""
    texts = call.fields.texts("trace_ids")
    if len(texts) > MAX_RESULTS:
        raise WrongField(f"Invalid value for parameter 'trace_ids': at most {MAX_RESULTS} traces at once")
    rows = mlflow_search.readable(call, [key for text in texts if (key := lookup.key_of(text))])
    said = _said_of(rows)
    return {"trace_infos": [mlflow_shown.info(row, said[row.pk]) for row in rows]}


def _whole(rows: list[Trace]) -> list[dict]:
    """Return traces with their spans. Raises Refused for more than one answer may have."""
    require_small(Span.objects.filter(trace__in=[row.pk for row in rows]))
    keys = {row.pk: row.key for row in rows}
    spans: dict[int, list[dict]] = defaultdict(list)
    for span in Span.objects.filter(trace__in=list(keys)).order_by("started_ns", "pk").iterator(500):
        spans[span.trace_id].append(mlflow_shown.span(span, keys[span.trace_id]))
    said = _said_of(rows)
    return [{"trace_info": mlflow_shown.info(row, said[row.pk]), "spans": spans[row.pk]} for row in rows]


@effect(READ)
@for_jobs
def find(call: Call) -> dict:
    """Return the traces of some experiments that match; those that are not the caller's have none."""
    fields = call.fields
    limit, offset = search.page(fields, RESULTS, MAX_RESULTS)
    experiments = fields.texts("experiment_ids")
    for location in fields.messages("locations", 1000):
        experiments.append(location.nested(EXPERIMENT).text("experiment_id", required=True))
    rows = mlflow_search.find(call, experiments, fields.text("filter"))
    orders = search.orders(fields.texts("order_by"), mlflow_search.KINDS)
    ordered = mlflow_search.ordered(rows, orders).values_list("pk", flat=True)
    with in_time():
        found = list(ordered[offset : offset + limit + 1])
    shown = mlflow_search.whole(found[:limit])
    said = _said_of(shown)
    answer: dict = {"traces": [mlflow_shown.info(row, said[row.pk]) for row in shown]}
    if len(found) > limit > 0:
        answer["next_page_token"] = search.token(offset + limit)
    return answer


# --- what is changed --------------------------------------------------------------------------------------------------
@effect(SUBMIT)
@for_jobs
def set_tag(call: Call, trace: str) -> dict:
    key = limits.tag_key(call.fields.text("key", required=True))
    value = call.fields.text("value")[: limits.MAX_TAG]
    with transaction.atomic():
        row = _locked(call, trace)
        row.tags = {**row.tags, key: value}
        if key == mlflow_shown.NAME:
            row.name = value[:500]
        _require_few(row)
        row.save(update_fields=["tags", "name", "updated"])
    return {}


@effect(DESTROY)
@for_jobs
def delete_tag(call: Call, trace: str) -> dict:
    key = call.fields.text("key", required=True)
    with transaction.atomic():
        row = _locked(call, trace)
        if row.tags.pop(key, None) is None:
            raise MlflowError("RESOURCE_DOES_NOT_EXIST", f"No trace tag with key '{key[:250]}' for trace '{trace}'.")
        row.save(update_fields=["tags", "updated"])
    return {}


def _locked(call: Call, text: str) -> Trace:
    """Return the caller's trace, locked. Raises MlflowError."""
    found = lookup.trace(call, text, write=True)
    lookup.require_active(found)
    row = lock_row(Trace, pk=found.pk)
    if row is None:
        raise missing("Trace", text[:100])
    return row


@effect(SUBMIT)
@for_jobs
def link_to_run(call: Call) -> dict:
    """Record of traces that they belong to a run: as that in which they were made, or as one more."""
    run = projects.run(call, text=call.fields.text("run_id", required=True)).run_id.hex
    for text in _few(call, "trace_ids"):
        with transaction.atomic():
            row = _locked(call, text)
            if row.metadata.setdefault(SOURCE_RUN, run) != run:
                _link(row, run)
                continue
            _require_few(row)
            row.save(update_fields=["metadata", "updated"])
    return {}


def _link(row: Trace, run: str) -> None:
    """Link a locked trace to one more run. Raises WrongField."""
    if TraceLink.objects.filter(trace=row).exclude(run=run).count() >= MAX_LINKS:
        raise WrongField(f"a trace belongs to at most {MAX_LINKS} runs")
    TraceLink.objects.bulk_create([TraceLink(user_id=row.user_id, trace=row, run=run)], ignore_conflicts=True)


@effect(SUBMIT)
@for_jobs
def link_prompts(call: Call) -> dict:
    """Record the versions of prompts that a trace has used, as a tag in JSON."""
    versions = [
        {"name": one.text("name", required=True)[:500], "version": one.text("version", required=True)[:50]}
        for one in call.fields.messages("prompt_versions", MAX_AT_ONCE)
    ]
    with transaction.atomic():
        row = _locked(call, call.fields.text("trace_id", required=True))
        try:
            known = json.loads(row.tags.get(recording.PROMPTS, "[]"))
        except ValueError:
            known = []
        known = known if isinstance(known, list) else []
        text = json.dumps([*known, *(one for one in versions if one not in known)])
        if len(text) > limits.MAX_TAG:
            raise WrongField(f"the prompts of a trace have more than {limits.MAX_TAG} characters")
        row.tags = {**row.tags, recording.PROMPTS: text}
        _require_few(row)
        row.save(update_fields=["tags", "updated"])
    return {}


def _few(call: Call, name: str) -> list[str]:
    texts = call.fields.texts(name)
    if len(texts) > MAX_AT_ONCE:
        raise WrongField(f"Invalid value for parameter '{name}': at most {MAX_AT_ONCE} traces at once")
    return texts


@effect(DESTROY)
def delete(call: Call) -> dict:
    """Delete traces of an experiment: those of some ids, or the oldest up to a time."""
    fields = call.fields
    project = projects.project(call, write=True)
    rows = lookup.own(call).filter(project=project)
    texts = fields.texts("trace_ids") + fields.texts("request_ids")
    latest = fields.whole("max_timestamp_millis")
    most = fields.whole("max_traces", MAX_RESULTS, low=1)
    if texts and (latest is not None or "max_traces" in fields):
        raise WrongField("trace_ids cannot be given together with max_timestamp_millis or max_traces")
    if texts:
        rows, most = rows.filter(key__in=[lookup.key_of(text) for text in texts]), len(texts)
    elif latest is None:
        raise WrongField("Missing value for required parameter 'trace_ids' or 'max_timestamp_millis'.")
    else:
        rows = rows.filter(started_ns__lte=min(latest * mlflow_search.MS + mlflow_search.MS - 1, LAST_NS))
    deleted = _delete(rows.order_by("started_ns", "pk"), most)
    after_commit.changed(call.caller.username, "project", "")
    return {"traces_deleted": deleted}


def _delete(rows: QuerySet, most: int) -> int:
    done = 0
    while done < most:
        count = retention.delete(rows, min(retention.ROWS, most - done))
        done += count
        if not count:
            break
    return done


ROUTES_3: Routes = {
    "traces": {"POST": report},
    "traces/get": {"GET": get},
    "traces/batchGet": {"GET": batch_get},
    "traces/batchGetInfos": {"POST": batch_get_infos},
    "traces/search": {"POST": find},
    "traces/delete-traces": {"POST": delete},
    "traces/link-prompts": {"POST": link_prompts},
    "traces/link-to-run": {"POST": link_to_run},
    "traces/<str:trace>": {"GET": get_info},
    "traces/<str:trace>/tags": {"PATCH": set_tag, "DELETE": delete_tag},
}
ROUTES_2: Routes = {
    "traces/delete-traces": {"POST": delete},
    "traces/link-prompts": {"POST": link_prompts},
    "traces/link-to-run": {"POST": link_to_run},
    "traces/<str:trace>/tags": {"PATCH": set_tag, "DELETE": delete_tag},
}
