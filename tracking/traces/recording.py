"""Stores spans and keeps what is known of their traces: the only writer of both.

A span is known by its trace and its id. One that is sent again, as exporters do after an answer was lost, is stored
once; one that is sent before its end and after it keeps the later end. So spans may come in any order, in several
requests, the root last.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from jobs.models import Project, Span, Trace
from jobs.models.traces import MAX_PREVIEW
from kernel import sanitize
from kernel.lenient import text_of
from kernel.messages import Message

from . import meaning, storable
from .otlp import Sent

log = logging.getLogger(__name__)

TRACE_ID, SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")
ZEROS = re.compile(r"0*")
MAX_SPANS = 10_000  # of one trace
MAX_TAGS, MAX_METADATA = 1000, 1000  # of one trace
MAX_DETAILS = 256 << 10  # characters of all tags and metadata of one trace, which are read with it
PREFIX = "tr-"  # of a trace's id, as MLflow has it
UPDATED = [field.name for field in Span._meta.concrete_fields if field.name not in ("id", "user", "trace", "key")]
SUMMED = (
    "pk", "trace_id", "key", "parent", "from_afar", "name", "status", "started_ns", "ended_ns",
    "input_tokens", "output_tokens", "cost", "model",
)  # fmt: skip
SUMS = (
    "name", "status", "started_ns", "ended_ns", "spans_kept", "errors", "input_tokens", "output_tokens", "cost",
    "model", "request", "response", "session", "end_user", "tags", "updated",
)  # fmt: skip
USAGE, COST = "mlflow.trace.tokenUsage", "mlflow.trace.cost"
TAG, PROMPTS, MAX_TAG = "mlflow.traceTag.", "mlflow.linkedPrompts", 8000
SESSION, END_USER = "mlflow.trace.session", "mlflow.trace.user"


@dataclass
class Outcome:
    """What became of some spans: how many were not stored, and why the last of them was not."""

    rejected: int = 0
    why: str = ""

    def reject(self, count: int, why: str) -> None:
        if count:
            self.rejected, self.why = self.rejected + count, why


def problem_of(span: Sent) -> str:
    """Return what is wrong with the ids of a span; "" for nothing."""
    if not TRACE_ID.fullmatch(span.trace) or ZEROS.fullmatch(span.trace):
        return str(Message("a trace id must be 16 bytes that are not all zero"))
    if not SPAN_ID.fullmatch(span.key) or ZEROS.fullmatch(span.key):
        return str(Message("a span id must be 8 bytes that are not all zero"))
    return ""


def store(user_id: int, spans: Sequence[tuple[Project | None, Sent]], default: Project, outcome: Outcome) -> None:
    """Store spans, each with the project that it names; None for the project of its trace, `default` for a new one."""
    good: dict[str, list[tuple[Project | None, Sent]]] = {}
    for project, span in spans:
        if why := problem_of(span):
            outcome.reject(1, why)
        else:
            good.setdefault(span.trace, []).append((project, span))
    if not good:
        return
    with transaction.atomic():
        traces = _locked(user_id, good, default)
        fresh: dict[int, list[Sent]] = {}
        for key, trace in traces.items():
            same = [span for project, span in good[key] if project is None or project.pk == trace.project_id]
            outcome.reject(len(good[key]) - len(same), str(Message("the trace %(id)s is in another project", id=key)))
            fresh[trace.pk] = same
        _store_spans(user_id, traces.values(), fresh, outcome)
        summarise(traces.values(), {pk: {span.key: span for span in some} for pk, some in fresh.items()})


def _locked(user_id: int, good: dict[str, list[tuple[Project | None, Sent]]], default: Project) -> dict[str, Trace]:
    """Return the traces of these ids, locked in the order of the ids; those that are missing are made."""
    made = []
    for key in sorted(good):
        project = next((project for project, _span in good[key] if project is not None), default)
        made.append(Trace(user_id=user_id, project=project, key=key))
    Trace.objects.bulk_create(made, ignore_conflicts=True)
    rows = Trace.objects.select_for_update(no_key=True).filter(user_id=user_id, key__in=list(good)).order_by("key")
    return {trace.key: trace for trace in rows}


def _store_spans(user_id: int, traces: Iterable[Trace], fresh: dict[int, list[Sent]], outcome: Outcome) -> None:
    """Store the spans of locked traces, those that are known with a later end only."""
    keys = {span.key for some in fresh.values() for span in some}
    known = {
        (trace, key): (pk, ended)
        for pk, trace, key, ended in Span.objects.filter(trace__in=list(fresh), key__in=keys).values_list(
            "pk", "trace_id", "key", "ended_ns"
        )
    }
    new: dict[tuple[int, str], Span] = {}
    later: dict[tuple[int, str], Span] = {}
    for trace in traces:
        room = MAX_SPANS - trace.spans_kept
        for sent in fresh[trace.pk]:
            place = (trace.pk, sent.key)
            pk, ended = known.get(place, (None, None))
            if place in new:
                ended = new[place].ended_ns
            if place in known or place in new:
                if (sent.ended_ns or 0) > (ended or 0) and (row := _readable(user_id, trace.pk, sent, outcome)):
                    row.pk = pk
                    (later if pk else new)[place] = row
                    known[place] = (pk, sent.ended_ns)
                continue
            if room <= 0:
                outcome.reject(1, str(Message("a trace has at most %(limit)s spans", limit=MAX_SPANS)))
                continue
            if row := _readable(user_id, trace.pk, sent, outcome):
                room -= 1
                new[place] = row
    Span.objects.bulk_create(new.values(), batch_size=500)
    if later:
        Span.objects.bulk_update(later.values(), UPDATED, batch_size=200)


def _readable(user_id: int, trace: int, sent: Sent, outcome: Outcome) -> Span | None:
    """Return the row of a span; None for one that nobody has thought of, which is rejected: an answer of 503 would be
    sent again for ever, and with it all other spans of its request.
    """
    try:
        return row_of(user_id, trace, sent)
    except Exception as problem:
        log.error("a span cannot be read", exc_info=problem)
        outcome.reject(1, str(Message("a span cannot be read")))
        return None


def row_of(user_id: int, trace: int, sent: Sent) -> Span:
    """Return the row of a span, with what its attributes say of a model."""
    attributes = sent.attributes
    model, tokens = meaning.model_of(attributes), meaning.tokens_of(attributes)
    ended = sent.ended_ns
    return Span(
        user_id=user_id,
        trace_id=trace,
        key=sent.key,
        parent=sent.parent if SPAN_ID.fullmatch(sent.parent) and not ZEROS.fullmatch(sent.parent) else "",
        name=sanitize.text(sent.name)[:500],
        kind=sent.kind,
        type=sanitize.text(meaning.type_of(attributes)),
        status=sent.status,
        message=sanitize.text(sent.message)[: storable.MAX_TEXT],
        started_ns=sent.started_ns,
        ended_ns=None if ended is None else max(ended, sent.started_ns),  # a clock that was set back meanwhile
        attributes=attributes,
        events=sent.events,
        resource=sent.resource,
        scope=sanitize.text(sent.scope)[:250],
        from_afar=sent.from_afar,
        model=sanitize.text(model),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cost=meaning.cost_of(attributes, model, tokens),
    )


# --- what the spans say of their trace --------------------------------------------------------------------------------
def summarise(traces: Iterable[Trace], sent: dict[int, dict[str, Sent]]) -> None:
    """Compute what is known of locked traces from all their spans; `sent` are those that have just come, by trace and
    id.
    """
    rows = {trace.pk: trace for trace in traces}
    spans: dict[int, list[dict]] = {pk: [] for pk in rows}
    for span in Span.objects.filter(trace__in=list(rows)).order_by("started_ns", "pk").values(*SUMMED):
        spans[span["trace_id"]].append(span)
    now = timezone.now()
    changed = [trace for pk, trace in rows.items() if spans[pk]]
    for trace in changed:
        _sum_up(trace, spans[trace.pk], sent.get(trace.pk, {}))
        trace.updated = now
    Trace.objects.bulk_update(changed, SUMS, batch_size=200)


def _sum_up(trace: Trace, spans: list[dict], sent: dict[str, Sent]) -> None:
    root = _root_of(spans)
    trace.spans_kept = len(spans)
    trace.errors = sum(span["status"] == Span.Status.ERROR for span in spans)
    input_tokens, output_tokens, cost = _usage(spans)
    if USAGE not in trace.metadata:
        trace.input_tokens, trace.output_tokens = input_tokens, output_tokens
    if COST not in trace.metadata:
        trace.cost = cost
    trace.model = next((span["model"] for span in spans if span["model"]), trace.model)
    _describe(trace, sent, root)
    if trace.reported:
        return
    first = min((span["started_ns"] for span in spans if span["started_ns"]), default=0)
    trace.started_ns = (root["started_ns"] if root else 0) or first  # other machines have other clocks
    ended = root["ended_ns"] if root else None
    trace.ended_ns = ended
    trace.name = (root or spans[0])["name"]
    if ended is None:
        trace.status = Trace.Status.IN_PROGRESS
    else:
        trace.status = Trace.Status.ERROR if root["status"] == Span.Status.ERROR else Trace.Status.OK


def _root_of(spans: list[dict]) -> dict | None:
    """Return the span that the others are in; None while it has not come. Where another process has begun the trace,
    whose spans may be sent to elsewhere or nowhere, the first span with a parent there stands for it.
    """
    keys = {span["key"] for span in spans}
    first = next((span for span in spans if not span["parent"]), None)
    return first or next((span for span in spans if span["from_afar"] and span["parent"] not in keys), None)


def _describe(trace: Trace, sent: dict[str, Sent], root: dict | None) -> None:
    """Take over what spans that have just come say of the whole: session, end user, and the root's input and output."""
    for span in sent.values():
        for field, names in (("session", meaning.SESSIONS), ("end_user", meaning.END_USERS)):
            if not getattr(trace, field) and (text := meaning.first_text(span.attributes, names)):
                setattr(trace, field, sanitize.text(text)[:250])
        _add_tags(trace, _tags_in(span.attributes))
    whole = sent.get(root["key"]) if root else None
    if whole is not None and not trace.reported:
        trace.request = short(meaning.preview(whole.attributes, meaning.INPUTS)) or _said(whole, first=True)
        trace.response = short(meaning.preview(whole.attributes, meaning.OUTPUTS)) or _said(whole, first=False)


def _add_tags(trace: Trace, tags: dict[str, str]) -> None:
    """Add the tags that a trace does not have yet, as many as fit."""
    fresh = [(name, text) for name, text in tags.items() if name not in trace.tags]
    room = MAX_DETAILS - size_of(trace) if fresh else 0
    for name, text in fresh:
        room -= len(name) + len(text)
        if len(trace.tags) >= MAX_TAGS or room < 0:
            return
        trace.tags[name] = text


def size_of(trace: Trace) -> int:
    """Return the characters of a trace's tags and metadata."""
    return sum(len(name) + len(text) for each in (trace.tags, trace.metadata) for name, text in each.items())


def _tags_in(attributes: dict[str, object]) -> dict[str, str]:
    """Return the tags of the trace that MLflow's exporter of OTLP sends with a span: they have no call of their own."""
    tags = {name.removeprefix(TAG): text_of(value) for name, value in attributes.items() if name.startswith(TAG)}
    if prompts := attributes.get(PROMPTS):
        tags[PROMPTS] = text_of(prompts)
    return {sanitize.text(name)[:250]: sanitize.text(text)[:MAX_TAG] for name, text in list(tags.items())[:100]}


def _said(span: Sent, first: bool) -> str:
    """Return the last message before the answer, or the answer, of a span that has its messages elsewhere."""
    found = meaning.messages(span.attributes, span.events)
    is_answer = bool(found) and found[-1].role == "assistant"
    if first:
        found = found[:-1] if is_answer else found
        return short(found[-1].text) if found else ""
    return short(found[-1].text) if is_answer else ""


def short(text: str) -> str:
    return sanitize.text(text)[:MAX_PREVIEW]


def _usage(spans: list[dict]) -> tuple[int | None, int | None, float | None]:
    """Return the tokens and the cost of a trace. Of a span with usage those within it do not count: a framework's span
    repeats what the client's span below it says.
    """
    by_key = {span["key"]: span for span in spans}
    within: dict[str, list[dict]] = defaultdict(list)
    for span in spans:
        within[span["parent"]].append(span)
    inside = _inside(spans, by_key)
    counted = [span for span in spans if _has_usage(span) and span["key"] not in inside]
    sums = []
    for field in ("input_tokens", "output_tokens"):
        known = [span[field] for span in counted if span[field] is not None]
        sums.append(sum(known) if known else None)
    costs = [_cost_of(span, within, set()) for span in counted]
    complete = bool(costs) and all(cost is not None for cost in costs)
    return sums[0], sums[1], sum(costs) if complete else None  # a part of the cost would be read as all of it


def _cost_of(span: dict, within: dict[str, list[dict]], seen: set[str]) -> float | None:
    """Return the cost of a span, else of those within it that have usage; None where one of them has none. The span of
    an agent has the tokens of all its calls, and no model.
    """
    total, waiting, found = 0.0, [span], False
    while waiting:
        one = waiting.pop()
        if one["key"] in seen:
            continue
        seen.add(one["key"])
        inner = within[one["key"]]
        if one["cost"] is not None:
            total, found = total + one["cost"], True
        elif inner:
            waiting += inner
        elif _has_usage(one):
            return None
    return total if found else None


def _has_usage(span: dict) -> bool:
    return span["input_tokens"] is not None or span["output_tokens"] is not None or span["cost"] is not None


def _inside(spans: list[dict], by_key: dict[str, dict]) -> set[str]:
    """Return the keys of the spans that are within a span with usage. Each is looked at once, however deep it is."""
    around: dict[str, bool] = {}  # whether the span, or one around it, has usage
    for span in spans:
        path: list[dict] = []
        one: dict | None = span
        while one is not None and one["key"] not in around:
            around[one["key"]] = False  # ends here where a program has sent a circle
            path.append(one)
            one = by_key.get(one["parent"])
        known = one is not None and around[one["key"]]
        for each in reversed(path):
            known = known or _has_usage(each)
            around[each["key"]] = known
    return {span["key"] for span in spans if span["parent"] != span["key"] and around.get(span["parent"], False)}
