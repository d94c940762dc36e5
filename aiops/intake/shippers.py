"""The endpoints for log shippers: OTLP/HTTP at /v1/logs, Loki's push at /loki/api/v1/push.

They answer by the shippers' own conventions, so that these retry when it helps: 401 without a token, 400 for a body of
which nothing or not all can be read, 415 for a coding that is unknown, 503 while the store or the bus is unavailable.
Shippers drop for good what is answered 4xx, so what is odd in one record never refuses the others. The token is sent as
Bearer, or as the password of Basic. OTLP: https://opentelemetry.io/docs/specs/otlp/#otlphttp; Loki: POST
/loki/api/v1/push of its HTTP API.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse

from accounts.auth import basic, bearer, user_of_token
from aiops.wire import loki, otlp_records
from kernel.database import reachable
from kernel.errors import AWAY, Fault, Refused, writable
from kernel.lenient import text_of
from kernel.otlp import coding

from . import accept, quota

log = logging.getLogger(__name__)

OTLP = "/v1/logs"
CHUNK = 5000  # lines that are stored at a time
RETRY_AFTER_S = 5
PROTOBUF = "application/x-protobuf"
BARE = b"\n"  # a PushRequest begins with the tag of its first stream
# Attributes that name a workload; the first one present counts.
CLUSTER = ("cluster_id", "k8s.cluster.name", "cluster")
NAMESPACE = ("namespace_name", "k8s.namespace.name", "service.namespace", "namespace")
DEPLOYMENT = ("deployment", "k8s.deployment.name", "k8s.statefulset.name", "k8s.daemonset.name", "k8s.job.name",
              "service.name", "app", "service_name", "job", "container")  # fmt: skip
POD = ("pod_name", "k8s.pod.name", "pod", "host.name", "instance", "filename")


class Larger(Exception):
    """The request has more lines than the intake takes of one."""


class Intake:
    """How requests are admitted and their lines stored: each request for itself. Those that have arrived together have
    an intake of their own (web/log_listener.py).
    """

    most = 0  # lines of a request; 0: any number

    def __init__(self, store: Callable[[Sequence[dict]], int] | None = None):
        self._store = store or accept.store

    def user(self, token: str):
        """Return the user whom a token belongs to, or None. Raises Fault."""
        with reachable():
            return user_of_token(token)

    def require(self, user) -> None:
        """Raise quota.TooMany where the user has to wait."""
        quota.require(user)

    def store(self, user, lines: list[dict]) -> None:
        """Count the lines and store those that have a text. Raises Fault."""
        quota.count(user, lines)
        self._store(with_text(lines))


def with_text(lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["log"]]


class Unreadable(Exception):
    """The body is not in the endpoint's format, or from some place on not."""


class Reading:
    """What a request's lines are read with: their ids, how many were read, and how many could not be."""

    def __init__(self, user):
        self.user, self.ids, self.unread, self.taken = user, accept.Ids(), 0, 0
        self.is_json = False

    def lines(self, items: Iterator, line: Callable) -> Iterator[dict]:
        """Yield the document of each item; one that is None cannot be read."""
        for item in items:
            try:
                record = None if item is None else line(item)
            except Exception:  # whatever is wrong with one record, the others are stored
                if not self.unread:
                    log.exception("a log record cannot be read")
                record = None
            if record is None:
                self.unread += 1
            else:
                yield record


@csrf_exempt
def otlp(request: HttpRequest, intake: Intake | None = None) -> HttpResponse:
    """Take an ExportLogsServiceRequest as protobuf or JSON; protobuf is read record by record."""

    def read(data: bytes, reading: Reading) -> Iterator[dict]:
        records = otlp_records.read_json(data) if reading.is_json else otlp_records.read_protobuf(data)
        return reading.lines(
            records, lambda record: _line(record.text, record.names, reading.user, record.at, reading.ids)
        )

    answer, reading = _take(request, read, intake, "ExportLogsServiceRequest")
    if answer is not None:
        return answer
    done = ExportLogsServiceResponse()
    if reading.unread:
        done.partial_success.rejected_log_records = reading.unread
        done.partial_success.error_message = "these records cannot be read"
    if reading.is_json:
        return JsonResponse({"partialSuccess": {}, **json_format.MessageToDict(done)})
    return HttpResponse(done.SerializeToString(), content_type=PROTOBUF)


@csrf_exempt
def loki_push(request: HttpRequest, intake: Intake | None = None) -> HttpResponse:
    """Take Loki's push: JSON, or protobuf in a snappy block. Answers 204 as Loki does."""

    def entries(data: bytes, reading: Reading) -> Iterator[loki.Entry | None]:
        for labels, some in loki.read_json(data) if reading.is_json else loki.read_protobuf(_unsnap(data)):
            yield from (entry and (entry[0], entry[1], labels | entry[2]) for entry in some)

    def read(data: bytes, reading: Reading) -> Iterator[dict]:
        return reading.lines(
            entries(data, reading), lambda entry: _line(entry[1], entry[2], reading.user, entry[0], reading.ids)
        )

    answer, reading = _take(request, read, intake, "push request")
    if answer is None and reading.unread:
        if not reading.taken:
            return _refusal(400, "no entry of this push request can be read")
        log.warning("%s entries of a push request could not be read", reading.unread)
    return answer or HttpResponse(status=204)


def ready(request: HttpRequest) -> HttpResponse:
    """Answer the health check that shippers make before they push to Loki."""
    return HttpResponse("ready\n", content_type="text/plain; charset=utf-8")


def _take(request: HttpRequest, read, intake: Intake | None, kind: str) -> tuple[HttpResponse | None, Reading | None]:
    """Store the lines of a request, CHUNK at a time; return the refusal, or None when all are stored. Raises Larger."""
    if request.method != "POST":
        answer = _refusal(405, "send it by POST")
        answer["Allow"] = "POST"
        return answer, None
    reading, intake = None, intake or Intake()
    try:
        user = _user(request, intake)
        if user is None:
            words = "send the API token: Authorization: Bearer {token}, or Basic with it as the password"
            return _refusal(401, words), None
        intake.require(user)
        reading, data = Reading(user), _body(request)
        reading.is_json = _is_json(request, data)
        _store(read(data, reading), reading, intake)
    except coding.UnknownCoding as problem:
        answer = _refusal(415, f"Content-Encoding: {problem} is unknown, there is {coding.ACCEPTED}")
        answer["Accept-Encoding"] = coding.ACCEPTED
        return answer, reading
    except RequestDataTooBig:
        return _refusal(413, "body: too large"), reading
    except Unreadable as problem:
        return _refusal(400, f"no {kind}: {problem}"), reading
    except Refused as problem:
        return _refusal(400, problem.msg), reading
    except Larger:
        raise
    except Exception as problem:
        return fault(problem), reading
    return None, reading


def fault(problem: BaseException) -> HttpResponse:
    """Return the answer to a request that failed: it may be sent again, so nothing here is final."""
    if not isinstance(problem, Fault):
        log.error("a request with log lines failed", exc_info=problem)
    answer = _refusal(503, problem.msg if isinstance(problem, Fault) else AWAY)
    answer["Retry-After"] = str(getattr(problem, "retry_after_s", RETRY_AFTER_S))
    return answer


def _store(lines: Iterator[dict], reading: Reading, intake: Intake) -> None:
    """Store the lines that can be read, also those before a place from which nothing can. Raises Unreadable for such
    a place.
    """
    problem, more, size = None, True, intake.most + 1 if intake.most else CHUNK
    while more:
        chunk: list[dict] = []
        try:
            for line in islice(lines, size):
                chunk.append(line)
        except ValueError as odd:
            problem = Unreadable(str(odd))
        more = len(chunk) == size
        if more and intake.most:
            raise Larger
        reading.taken += len(chunk)
        intake.store(reading.user, chunk)
    if problem is not None:
        raise problem


def _refusal(status: int, words: str) -> HttpResponse:
    answer = JsonResponse({"code": status, "message": writable(words)}, status=status)
    if status == 401:
        answer["WWW-Authenticate"] = 'Basic realm="log intake"'
    return answer


def _user(request: HttpRequest, intake: Intake):
    header = request.headers.get("Authorization", "")
    try:
        pair = basic(header)
        token = pair[1] if pair else bearer(header)
    except Refused:
        return None
    return intake.user(token) if token else None


def _is_json(request: HttpRequest, data: bytes) -> bool:
    """Return whether the body is JSON; where the header says neither, its first character shows it."""
    media = (request.content_type or "").split(";")[0].strip().lower()
    return media.endswith("json") or ("protobuf" not in media and data.startswith(b"{"))


def _body(request: HttpRequest) -> bytes:
    header = request.headers.get("Content-Encoding", "")
    if header.strip().lower() == "snappy" and not request.path.startswith(OTLP):
        header = ""  # Loki's protobuf is a snappy block, whether the header says so or not
    try:
        return coding.unpacked(request.body, header)
    except ValueError as problem:
        raise Unreadable(f"body: {problem}") from None


def _unsnap(data: bytes) -> bytes:
    """Return the content of the snappy block; a message that is not in one is taken as it is."""
    try:
        return coding.snappy(data)
    except coding.TooLarge:
        raise
    except ValueError:
        if data.startswith(BARE):
            return data
        raise


def _line(text: str, names: dict, user, at_ns: int, ids: accept.Ids) -> dict:
    """Return the document of a line: a user's are in the user's own namespace of this cluster; an operator's shipper
    names any. A line without a time (0) has an id of chance: two of the same text may be two lines.
    """
    namespace = _first(names, NAMESPACE) if user.is_administrator else ""
    deployment = re.sub(r".*/", "", _first(names, DEPLOYMENT))  # Loki's `job` is namespace/name
    cluster = (_first(names, CLUSTER) if user.is_administrator else "") or accept.LOCAL
    more = {"pod": _first(names, POD), "kind": text_of(names.get("log_type")) or "workload"}
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
    return text_of(names.get(_key(names, keys)))


def _key(names: dict, keys: tuple[str, ...]) -> str:
    return next((key for key in keys if names.get(key)), "")
