"""The endpoints for log shippers: OTLP/HTTP at /v1/logs, Loki's push at /loki/api/v1/push.

They answer by the shippers' own conventions, so that these retry when it helps: 401 without a token, 400 for what
cannot be read, 415 for a Content-Encoding other than gzip, 503 while the store or the bus is away. The token is sent as
Bearer, or as the password of Basic. OTLP: https://opentelemetry.io/docs/specs/otlp/#otlphttp; Loki: POST
/loki/api/v1/push of its HTTP API.
"""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import cramjam
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from accounts.auth import basic, bearer, user_of_token
from aiops.wire import loki, otlp_records
from kernel.database import reachable
from kernel.errors import Fault, Refused

from . import accept

log = logging.getLogger(__name__)

MOST_BYTES = 32 << 20  # of a decompressed body
CHUNK = 5000  # lines that are stored at a time
PROTOBUF = "application/x-protobuf"
# Attributes that name a workload; the first one present counts.
CLUSTER = ("cluster_id", "k8s.cluster.name", "cluster")
NAMESPACE = ("namespace_name", "k8s.namespace.name", "service.namespace", "namespace")
DEPLOYMENT = ("deployment", "k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name", "k8s.job.name",
              "service.name", "app", "service_name", "job", "container")  # fmt: skip
POD = ("pod_name", "k8s.pod.name", "pod", "host.name", "instance", "filename")


Store = Callable[[Sequence[dict]], int]


class Unreadable(Exception):
    """The body is not in the endpoint's format."""

    status = 400


class Unsupported(Unreadable):
    """The body has an encoding that is not unpacked."""

    status = 415


@csrf_exempt
@require_POST
def otlp(request: HttpRequest, store: Store | None = None) -> HttpResponse:
    """Take an ExportLogsServiceRequest as protobuf or JSON, plain or gzip; protobuf is read record by record."""
    is_json, rejected, ids = _media(request) == "application/json", [0], accept.Ids()

    def read(data: bytes, user) -> Iterator[dict]:
        try:
            records = otlp_records.read_json(data) if is_json else otlp_records.read_protobuf(data)
            for resource, record in records:
                if record is None:
                    rejected[0] += 1
                else:
                    yield _otlp_line(resource, record, user, ids)
        except ValueError as problem:
            raise Unreadable(f"no ExportLogsServiceRequest: {problem}")

    answer = _take(request, read, store)
    if answer is not None:
        return answer
    done = ExportLogsServiceResponse()
    if rejected[0]:
        done.partial_success.rejected_log_records = rejected[0]
        done.partial_success.error_message = "these records cannot be read, or have more than 4 MiB"
    if is_json:
        return JsonResponse({"partialSuccess": {}, **json_format.MessageToDict(done)})
    return HttpResponse(done.SerializeToString(), content_type=PROTOBUF)


@csrf_exempt
@require_POST
def loki_push(request: HttpRequest, store: Store | None = None) -> HttpResponse:
    """Take Loki's push: JSON, or protobuf in a snappy block. Answers 204 as Loki does."""
    is_json, ids = _media(request) == "application/json", accept.Ids()

    def read(data: bytes, user) -> Iterator[dict]:
        try:
            for labels, entries in loki.read_json(data) if is_json else loki.read_protobuf(_unsnap(data)):
                for at, text, extra in entries:
                    yield _line(text, {**labels, **extra}, user, at, ids)
        except ValueError as problem:
            raise Unreadable(str(problem))

    return _take(request, read, store) or HttpResponse(status=204)


def _take(request: HttpRequest, read, store: Store | None) -> HttpResponse | None:
    """Store the lines of a request, CHUNK at a time; return the refusal, or None when all are stored."""
    try:
        user = _user(request)
        if user is None:
            return _refusal(401, "send the API token: Authorization: Bearer {token}, or Basic with it as the password")
        lines = read(_body(request), user)
        more = True
        while more:
            chunk = list(islice(lines, CHUNK))
            more = len(chunk) == CHUNK
            (store or accept.store)([one for one in chunk if one["log"]])
    except Unreadable as problem:
        return _refusal(problem.status, str(problem))
    except Refused as problem:
        return _refusal(400, problem.msg)
    except Fault as problem:
        answer = _refusal(503, problem.msg)
        answer["Retry-After"] = "5"
        return answer
    return None


def _refusal(status: int, words: str) -> HttpResponse:
    answer = JsonResponse({"code": status, "message": words}, status=status)
    if status == 401:
        answer["WWW-Authenticate"] = 'Basic realm="log intake"'
    if status == 415:
        answer["Accept-Encoding"] = "gzip"
    return answer


def _user(request: HttpRequest):
    header = request.headers.get("Authorization", "")
    try:
        pair = basic(header)
        token = pair[1] if pair else bearer(header)
    except Refused:
        return None
    with reachable():
        return user_of_token(token) if token else None


def _media(request: HttpRequest) -> str:
    return (request.content_type or "").split(";")[0].strip().lower()


def _body(request: HttpRequest) -> bytes:
    coding = request.headers.get("Content-Encoding", "identity").strip().lower()
    data = request.body
    if coding in {"", "identity", "snappy"}:
        return data
    if coding != "gzip":
        raise Unsupported(f"Content-Encoding: {coding} is unknown, there is gzip")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpack:
            plain = unpack.read(MOST_BYTES + 1)
    except (zlib.error, gzip.BadGzipFile, EOFError) as problem:
        raise Unreadable(f"body: no gzip: {problem}")
    if len(plain) > MOST_BYTES:
        raise Unreadable(f"body: more than {MOST_BYTES >> 20} MiB unpacked")
    return plain


def _unsnap(data: bytes) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(data) > MOST_BYTES:
            raise Unreadable(f"body: more than {MOST_BYTES >> 20} MiB unpacked")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as problem:
        raise Unreadable(f"body: no snappy block: {problem}")


def _otlp_line(resource, record, user, ids: accept.Ids) -> dict:
    pairs = (*resource.attributes, *record.attributes)
    at = record.time_unix_nano or record.observed_time_unix_nano
    names = {pair.key: _plain(pair.value) for pair in pairs}
    if record.severity_text or record.severity_number:
        names["severity"] = record.severity_text or str(record.severity_number)
    for name in ("trace_id", "span_id"):
        if given := getattr(record, name):
            names[name] = given.hex()
    return _line(_plain(record.body), names, user, at, ids)


def _plain(value) -> str:
    """Return an attribute's or a body's value as text; structured values as JSON."""
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    if kind == "string_value":
        return value.string_value
    if kind in {"bool_value", "int_value", "double_value"}:
        return str(getattr(value, kind))
    return json.dumps(json_format.MessageToDict(value), ensure_ascii=False)


def _line(text: str, names: dict, user, at_ns: int, ids: accept.Ids) -> dict:
    """Return the document of a line: a user's are in the user's own namespace of this cluster; an operator's shipper
    names any. A line without a time (0) has an id of chance: two of the same text may be two lines.
    """
    namespace = _first(names, NAMESPACE) if user.is_staff else ""
    deployment = re.sub(r".*/", "", _first(names, DEPLOYMENT))  # Loki's `job` is namespace/name
    cluster = (_first(names, CLUSTER) if user.is_staff else "") or accept.LOCAL
    more = {"pod": _first(names, POD), "kind": names.get("log_type") or "workload"}
    namespace = namespace or user.username
    used = {_key(names, keys) for keys in (CLUSTER, NAMESPACE, DEPLOYMENT, POD, ("log_type",))}
    return accept.line(
        text,
        cluster=cluster,
        namespace=namespace,
        deployment=deployment,
        at_ms=at_ns // 1_000_000 if at_ns else None,
        id=ids.of(cluster, namespace, names, at_ns, text) if at_ns else "",
        attributes={name: value for name, value in names.items() if name not in used},
        **more,
    )


def _first(names: dict, keys: tuple[str, ...]) -> str:
    return str(names.get(_key(names, keys), ""))


def _key(names: dict, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if names.get(key)), "")
