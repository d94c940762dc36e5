"""The endpoint for spans: OTLP/HTTP at /v1/traces, and below the address that MLflow's clients have.

It answers by OTLP's conventions, so that exporters retry when it helps: 429 and 503 with Retry-After are sent again,
what is answered 4xx otherwise is dropped. What is odd in one span never refuses the others: the answer counts what was
rejected (partial success) and says why. https://opentelemetry.io/docs/specs/otlp/#otlphttp

The project of a span is, in this order: that of the job whose token was sent; the header X-MLflow-Experiment-Id (a
project's id) or X-MLP-Project (a name); the resource's attribute `mlp.project` or `openinference.project.name`; else
the default project. A name that is new makes a project.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import islice

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import UnreadablePostError
from django.views.decorators.csrf import csrf_exempt
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from accounts.models import User
from jobs.models import Project
from jobs.summaries import labels
from kernel import after_commit, disk, stored
from kernel.dispatch import Direct, ViewApplication
from kernel.effects import SUBMIT
from kernel.errors import AWAY, Fault, Refused, TooMany, writable
from kernel.lenient import text_of
from kernel.locking import Missing
from kernel.messages import Message
from kernel.otlp import coding
from mlflow_protocol.protocol import Caller, MlflowError, caller_of
from mlflow_protocol.reading import whole_of
from tracking.runs import projects

from . import otlp, recording

log = logging.getLogger(__name__)

MAX_NAMED = 100  # projects of one request
CHUNK = 1000  # spans that are stored in one transaction
PROTOBUF = "application/x-protobuf"
RETRY_AFTER_S = 5
EXPERIMENT, PROJECT = "X-MLflow-Experiment-Id", "X-MLP-Project"
RESOURCE = ("mlp.project", "openinference.project.name")


class Places:
    """The projects that the spans of one request name, each looked up once. Raises Refused, Missing."""

    def __init__(self, request: HttpRequest, caller: Caller):
        self.caller = caller
        self.user = User.objects.get(pk=caller.user_id)
        self.named: dict[str, Project | Refused] = {}
        self._default: Project | None = None
        self.fixed = self._fixed(request)

    def _fixed(self, request: HttpRequest) -> Project | None:
        """Return the project of all spans: the job's, or that of a header."""
        if self.caller.job_id:
            return self._of_user(jobs=self.caller.job_id)
        if number := request.headers.get(EXPERIMENT, "").strip():
            key = whole_of(number)
            if key is None:
                raise Refused("must be the id of a project", field=EXPERIMENT)
            return self.default if key == 0 else self._of_user(pk=key if 0 < key < 2**63 else 0)
        name = request.headers.get(PROJECT, "").strip()
        return self.of_name(_decoded(name)) if name else None

    @property
    def default(self) -> Project:
        if self._default is None:
            self._default = Project.objects.default_of(self.user)
        return self._default

    def _of_user(self, **condition) -> Project:
        project = Project.objects.filter(user=self.user, trashed=None, **condition).first()
        if project is None:
            raise Missing("project")
        return project

    def of(self, span: otlp.Sent) -> Project | None:
        """Return the project that the span names; None where it names none."""
        if self.fixed is not None:
            return self.fixed
        name = next((text for key in RESOURCE if (text := text_of(span.resource.get(key)).strip())), "")
        return self.of_name(name) if name else None

    def of_name(self, name: str) -> Project:
        """Return the user's project of that name, which is made when there is none."""
        if name not in self.named:
            if len(self.named) >= MAX_NAMED:
                raise Refused("a request names at most %(limit)s projects", field="project", limit=MAX_NAMED)
            try:
                self.named[name] = self._found(name)
            except Refused as problem:  # the same for each span that names it
                self.named[name] = problem
        found = self.named[name]
        if isinstance(found, Refused):
            raise found
        return found

    def _found(self, name: str) -> Project:
        labels.project_name(name, "project")
        there = Project.objects.filter(user=self.user, name=name, trashed=None).first()
        return there or _made(self.user, name)


def _made(user: User, name: str) -> Project:
    try:
        return projects.create(user, name=name)
    except Refused:  # another request has made it
        row = Project.objects.filter(user=user, name=name, trashed=None).first()
        if row is None:
            raise
        return row


def _decoded(header: str) -> str:
    """Return a header as text: clients send UTF-8, which WSGI hands over as Latin-1."""
    try:
        return header.encode("latin-1").decode("utf-8")
    except (UnicodeEncodeError, UnicodeDecodeError):
        return header


@csrf_exempt
def traces(request: HttpRequest) -> HttpResponse:
    """Take an ExportTraceServiceRequest as protobuf or JSON; protobuf is read span by span."""
    if request.method != "POST":
        answer = _refusal(405, "send it by POST")
        answer["Allow"] = "POST"
        return answer
    try:
        caller = caller_of(request, SUBMIT)
        disk.require()
        stored.require(caller.user_id)
        places = Places(request, caller)
        data = coding.unpacked(request.body, request.headers.get("Content-Encoding", ""))
        is_json = _is_json(request, data)
        outcome = _store(places, otlp.read_json(data) if is_json else otlp.read_protobuf(data))
    except Exception as problem:
        return _refused(problem)
    return _done(outcome, is_json)


def _store(places: Places, spans: Iterator[otlp.Sent | None]) -> recording.Outcome:
    """Store the spans that can be read, also those before a place from which nothing can. Raises ValueError for it."""
    outcome, problem, more = recording.Outcome(), None, True
    while more:
        chunk: list[tuple[Project | None, otlp.Sent]] = []
        read = 0
        try:
            for span in islice(spans, CHUNK):
                read += 1
                if span is None:
                    outcome.reject(1, str(Message("a span cannot be read")))
                elif place := _placed(places, span, outcome):
                    chunk.append(place)
        except ValueError as odd:
            problem = odd
        more = read == CHUNK and problem is None
        if chunk:
            stored.require(places.caller.user_id)  # a body may be stored as a multiple of its size
            default = places.fixed or places.default
            recording.store(places.caller.user_id, chunk, default, outcome)
            after_commit.changed(places.caller.username, "project", "", moving=True)
    if problem is not None:
        raise problem
    return outcome


def _placed(places: Places, span: otlp.Sent, outcome: recording.Outcome):
    """Return the span with its project; None for one that names no possible project, which is rejected."""
    try:
        return places.of(span), span
    except Refused as problem:
        outcome.reject(1, str(problem.msg))
        return None


def _is_json(request: HttpRequest, data: bytes) -> bool:
    """Return whether the body is JSON; where the header says neither, its first character shows it."""
    media = (request.content_type or "").split(";")[0].strip().lower()
    return media.endswith("json") or ("protobuf" not in media and data.startswith(b"{"))


def _done(outcome: recording.Outcome, is_json: bool) -> HttpResponse:
    done = ExportTraceServiceResponse()
    if outcome.rejected:
        done.partial_success.rejected_spans = outcome.rejected
        done.partial_success.error_message = writable(outcome.why)
    if is_json:
        return JsonResponse({"partialSuccess": {}, **json_format.MessageToDict(done)})
    return HttpResponse(done.SerializeToString(), content_type=PROTOBUF)


def _refused(problem: Exception) -> HttpResponse:
    """Return the answer to whatever was raised: what may be sent again is 429 or 503, all else 4xx."""
    match problem:
        case coding.UnknownCoding():
            answer = _refusal(415, f"Content-Encoding: {problem} is unknown, there is {coding.ACCEPTED}")
            answer["Accept-Encoding"] = coding.ACCEPTED
            return answer
        case MlflowError():
            answer = _refusal(problem.status, problem.message)
            for name, value in problem.headers.items():
                answer[name] = value
            return answer
        case RequestDataTooBig():
            return _refusal(413, "body: too large")
        case stored.TooMuch():
            return _refusal(403, problem.msg)
        case TooMany():
            return _again(429, problem.msg, problem.retry_after_s)
        case Refused() | Missing():  # 404 and 413 would get the gateway's own words
            return _refusal(400, problem.msg)
        case UnreadablePostError():
            return _refusal(400, "the body could not be read")
        case ValueError():
            return _refusal(400, f"no ExportTraceServiceRequest: {problem}")
        case Fault():
            return _again(503, problem.msg, getattr(problem, "retry_after_s", RETRY_AFTER_S))
    log.error("a request with spans failed", exc_info=problem)
    return _again(503, AWAY, RETRY_AFTER_S)


def _again(status: int, words: str, seconds: int) -> HttpResponse:
    answer = _refusal(status, words)
    answer["Retry-After"] = str(seconds)
    return answer


def _refusal(status: int, words: str) -> HttpResponse:
    return JsonResponse({"code": status, "message": writable(str(words))}, status=status)


ADDRESSES = ("/v1/traces", "/mlflow/v1/traces")
DIRECT = {address: Direct(ViewApplication(traces)) for address in ADDRESSES}
