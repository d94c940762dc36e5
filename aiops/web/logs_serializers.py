"""Bodies and answers of the calls on log lines below /api/v1/aiops/logs."""

from __future__ import annotations

from collections.abc import Sequence

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from aiops.intake import accept
from aiops.judging import own_models, watching
from kernel import sanitize, sent_times
from kernel.errors import Refused
from kernel.fields import StrictSerializer, StrictString

ID_HELP = "lines with the same id are stored once; returned as {username}:{_id}, for administrators unchanged"
KINDS = ("workload", "controlplane", "rancher", "longhorn", "event", "auditlog")


ALSO = {"log": ("message", "msg", "body"), "time": ("date", "timestamp", "@timestamp")}  # as shippers name them


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}]})
class TimeField(serializers.Field):
    """A number (seconds, ms, µs or ns since 1970, recognised by its size) or a date in a usual form."""


class LineIn(StrictSerializer):
    """A log line; a POST takes one, a list, or one a line (application/x-ndjson). Other fields are attributes.

    It documents the usual line: `usual` and `odd_lines` read what is sent.
    """

    log = StrictString(max_length=accept.MAX_CHARACTERS, help_text="a longer text is cut")
    time = TimeField(required=False)
    _id = StrictString(required=False, max_length=accept.MAX_ID, help_text=ID_HELP)
    cluster_id = StrictString(required=False, max_length=accept.MAX_NAME, help_text="default: local")
    namespace_name = StrictString(required=False, max_length=accept.MAX_NAME, help_text="default: the user's name")
    deployment = StrictString(required=False, allow_blank=True, max_length=accept.MAX_NAME)
    pod_name = StrictString(required=False, allow_blank=True, max_length=accept.MAX_NAME)
    service = StrictString(required=False, allow_blank=True, max_length=accept.MAX_NAME)
    log_type = StrictString(required=False, max_length=40, help_text="default: workload")
    attributes = serializers.DictField(required=False, help_text="anything else, as texts: at most 64")


def _with_attributes(data: dict) -> dict:
    """Return the fields of a line with all others among its attributes."""
    known = {name: value for name, value in data.items() if name in KNOWN}
    others = {name: value for name, value in data.items() if name not in KNOWN}
    for name, also in ALSO.items():
        attribute = next((alias for alias in also if name not in known and alias in others), None)
        if attribute is not None:
            known[name] = others.pop(attribute)
    given = known.get("attributes", {})
    if others and isinstance(given, dict):
        known["attributes"] = given | others
    return known


def usual(data) -> dict | None:
    """Return the fields of a line that is plainly valid; None for any other, which `odd_lines` reads: nearly every
    line is plain.
    """
    if not isinstance(data, dict):
        return None
    if not TEXTS.keys() >= data.keys():
        data = _with_attributes(data)
    for name, value in data.items():
        if name == "time":
            at = time_of(value)
            if at is None:
                return None
            data = {**data, "time": at}
        elif name == "attributes":
            if type(value) is not dict or _has_odd_text(value):
                return None
        elif (
            type(value) is not str
            or len(value) > TEXTS[name]
            or sanitize.UNSTORABLE.search(value)
            or (not value and name not in MAY_BE_BLANK)
        ):
            return None
    return data if "log" in data else None


def _has_odd_text(attributes: dict) -> bool:
    odd = sanitize.UNSTORABLE.search
    return any(odd(name) or (type(value) is str and odd(value)) for name, value in attributes.items())


def time_of(value: object) -> int | None:
    """Return ms since 1970; None for what is no time, or one that no line can have."""
    at = sent_times.milliseconds(value)
    return at if at is not None and accept.EARLIEST <= at <= accept.LATEST else None


def document(row: dict, user) -> dict:
    """Return the document of a validated line of that user (or holder of a token). Raises Refused where the line is of
    another namespace or cluster than the user may send.
    """
    namespace = row.get("namespace_name", user.username)
    if namespace != user.username and not user.is_administrator:
        raise Refused("must be your own user name", field="namespace_name")
    cluster = row.get("cluster_id", accept.LOCAL)
    if cluster != accept.LOCAL and not user.is_administrator:
        raise Refused("only administrators can send lines of other clusters", field="cluster_id")
    id = row.get("_id", "")
    return accept.line(
        row["log"],
        id=id if user.is_administrator or not id else accept.id_of(user.username, id),
        cluster=cluster,
        namespace=namespace,
        deployment=row.get("deployment", ""),
        pod=row.get("pod_name", ""),
        service=row.get("service", ""),
        kind=row.get("log_type", "workload"),
        at_ms=row.get("time"),
        attributes=row.get("attributes"),
    )


class ProblemOut(serializers.Serializer):
    """Why a line was not stored, or what of it was stored in another form; of at most 100 lines."""

    line = serializers.IntegerField(help_text="its number, from 1")
    msg = serializers.CharField()
    stored = serializers.BooleanField(required=False, help_text="true for a line that was stored")


class TakenOut(serializers.Serializer):
    taken = serializers.IntegerField(help_text="number of lines stored")
    new = serializers.IntegerField(help_text="number of lines not stored before")
    refused = serializers.IntegerField(required=False, help_text="number of lines not stored, if any")
    changed = serializers.IntegerField(required=False, help_text="number of lines stored in another form, if any")
    problems = ProblemOut(many=True, required=False)


class LineOut(serializers.Serializer):
    _id = serializers.CharField()
    time = serializers.IntegerField(help_text="ms since 1970")
    cluster_id = serializers.CharField()
    namespace_name = serializers.CharField(allow_blank=True)
    deployment = serializers.CharField(allow_blank=True)
    pod_name = serializers.CharField(allow_blank=True)
    service = serializers.CharField(allow_blank=True)
    log_type = serializers.CharField()
    log = serializers.CharField(allow_blank=True)
    attributes = serializers.DictField(child=serializers.CharField(allow_blank=True))
    masked_log = serializers.CharField(allow_blank=True)
    anomaly_level = serializers.CharField(allow_blank=True, help_text="empty: not classified yet")
    no_verdict = serializers.CharField(
        allow_blank=True,
        help_text="why a line has no verdict: `pending`: it gets one soon; `unwatched`: its workload is not watched; "
        "`untrained`: its tenant's own model is not trained, and no other model judges it; `training`: that model is "
        "being trained for the first time, or is queued for it. Empty: it has one, or is not of a workload",
    )
    template_matched = serializers.CharField(allow_blank=True)
    template_cluster_id = serializers.IntegerField(allow_null=True)
    inference_model = serializers.CharField(allow_blank=True)
    model_tenant = serializers.CharField(
        allow_blank=True, help_text="the tenant whose own model judged the line; empty: the platform's model did"
    )
    opnilog_confidence = serializers.FloatField(allow_null=True, help_text="0 to 1; low for an anomaly")


KNOWN = frozenset(LineIn().fields)
# The texts of a line, with the characters that each may have.
TEXTS = {name: field.max_length for name, field in LineIn().fields.items() if isinstance(field, StrictString)}
MAY_BE_BLANK = frozenset(name for name in TEXTS if LineIn().fields[name].allow_blank)
NUMBERS = ("template_cluster_id", "opnilog_confidence")


def shown(documents: Sequence[dict]) -> list[dict]:
    """Return all fields of the lines, including empty ones."""
    empty = {**dict.fromkeys(NUMBERS), "attributes": {}}
    judges = [own_models.read(document) for document in documents]
    known = watching.known() if not all(document.get("anomaly_level") for document in documents) else None
    names = own_models.names_of({model for _judge, model in judges})
    return [
        {name: document.get(name, empty.get(name, "")) for name in LineOut().fields}
        | {"inference_model": judge, "model_tenant": names[model], "no_verdict": _no_verdict(document, known)}
        for document, (judge, model) in zip(documents, judges, strict=True)
    ]


def _no_verdict(document: dict, known: watching.Known | None) -> str:
    if document.get("anomaly_level") or document.get("log_type", "workload") != "workload":
        return ""
    return watching.without_verdict(document, known) or "pending"
