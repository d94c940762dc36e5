"""The chat form of a language model's page with a script: the answer as it is made, as lines of JSON. Used by pages.

Each line is {"text": …}, the last {"status", "good", "words"}, with "error" where the answer has failed; empty lines
say that nothing has come yet. The connection to the application is closed when the page closes its own, which is
noticed at the next line, and the model then stops. A stream occupies a thread of the web process, so their number is
bounded as that of downloads (kernel/streams.py), and a user has one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import queue
import threading
import time
from collections.abc import Iterator

from django.core.cache import cache
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.utils import translation
from django.utils.translation import gettext as _

from kernel import outbound, sanitize, sockets
from kernel.errors import Refused
from kernel.pages import problems_of
from kernel.streams import STREAMS, Busy, Stream

from . import playground, proof
from .models import Application

MEDIA = "application/x-ndjson"
LIMIT_S = 60
BEAT_S = 0.25  # after which an empty line finds out whether the page still reads
PIECE = 8 << 10
DONE = b"data: [DONE]"


def is_asked(request: HttpRequest) -> bool:
    """Return whether the form was sent by the page's script, which reads the answer as it is made."""
    return request.method == "POST" and request.headers.get("Accept", "") == MEDIA


def respond(request: HttpRequest, app: Application) -> HttpResponse:
    """Answer the form: with the stream, or with {"error", "field"} where it is refused."""
    answers: list[Answering] = []
    problems = problems_of(lambda: answers.append(Answering(app, request.POST.dict(), request.user.pk)), ("input",))
    if problems:
        field, error = next(iter(problems.fields.items()), ("", problems.general))
        return JsonResponse({"error": str(error), "field": field}, status=problems.status)
    headers = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}
    return StreamingHttpResponse(answers[0], content_type=MEDIA, headers=headers)


class Answering:
    """One answer. `close` ends it at any time. Raises Refused where it cannot begin."""

    def __init__(self, app: Application, fields: dict[str, str], user_pk: int):
        self.path, self.body = playground.chat_request(app, fields, stream=True)
        self.stream = _room(user_pk)
        self.mark = playground.take_turn(app, user_pk, LIMIT_S)
        self.address, self.headers = sockets.parse(app.address), proof.headers(app.run_name)
        self.language, self.began, self.done = translation.get_language(), time.monotonic(), False
        self.pieces: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()
        self.status, self.shown, self.closed = 0, 0, False
        self.exchange: outbound.Exchange | None = None
        self.lines = self._lines()

    def __iter__(self) -> Iterator[bytes]:
        return self.lines

    def close(self) -> None:
        """End the request to the application, so that the model stops."""
        if self.closed:
            return  # the mark may be that of the next request
        self.closed = True
        self.lines.close()
        if self.exchange is not None:
            self.exchange.cut()
        cache.delete(self.mark)
        self.stream.end()

    def _lines(self) -> Iterator[bytes]:
        try:
            self.exchange = outbound.Exchange(self.address, LIMIT_S)
        except OSError as problem:
            yield self._last(_reason(problem))
            return
        threading.Thread(target=self._read, args=[self.exchange], name="chat", daemon=True).start()
        rest = b""
        while True:
            try:
                piece = self.pieces.get(timeout=BEAT_S)
            except queue.Empty:
                yield b"\n"
                continue
            if not isinstance(piece, bytes):
                yield self._last(_reason(piece) if piece else self._missing(rest))
                return
            self.shown += len(piece)
            rest += piece
            if self.shown > playground.MAX_SENT:
                yield self._last(_("Only the beginning is shown."))
                return
            if self.status != 200:
                continue  # one JSON text, which is read as a whole
            *events, rest = rest.split(b"\n")
            for event in events:
                self.done |= event.strip() == DONE
                text, error = read_event(event)
                if text:
                    yield _line({"text": text})
                if error:
                    yield self._last(error)
                    return

    def _read(self, exchange: outbound.Exchange) -> None:
        """Read the response, on a thread of its own; its end is None or what went wrong."""
        try:
            with exchange:
                headers = {"Content-Type": "application/json", **self.headers}
                response = exchange.begin("POST", self.path, self.body, headers)
                self.status = response.status
                while piece := response.read1(PIECE):
                    self.pieces.put(piece)
            self.pieces.put(None)
        except (OSError, http.client.HTTPException) as problem:
            self.pieces.put(problem)

    def _missing(self, rest: bytes) -> str:
        """Return why the response is no whole answer, empty where it is one."""
        if self.status != 200:
            return playground.said(rest)[0]
        return "" if self.done else _("The answer ended early.")

    def _last(self, error: str) -> bytes:
        with translation.override(self.language):
            words = _("after %(ms)s ms") % {"ms": round(1000 * (time.monotonic() - self.began))}
        end = {"status": self.status, "good": self.status == 200 and not error, "words": words}
        return _line(end | ({"error": error} if error else {}))


def _room(user_pk: int) -> Stream:
    """Return what bounds the streams of this process; it is given back when it is dropped. Raises Refused."""
    stream = STREAMS.take(("chat", user_pk), 1)
    if isinstance(stream, Busy):
        if stream.own:
            raise Refused("the previous request is still running")
        raise Refused("too many answers are being shown at the same time; try again later")
    return stream


def read_event(line: bytes) -> tuple[str, str]:
    """Return the text of a server-sent event of a language model, and its error; empty where it has none."""
    if not line.startswith(b"data: {"):
        return "", ""
    with contextlib.suppress(ValueError, RecursionError, LookupError, TypeError):
        event = sanitize.read_json(line.removeprefix(b"data: ").decode(errors="replace"))
        if "error" in event:
            return "", sanitize.text(str(event["error"]["message"]))
        choice = event["choices"][0]
        text = choice["delta"].get("content") if "delta" in choice else choice["text"]
        return (sanitize.text(text), "") if isinstance(text, str) else ("", "")
    return "", ""


def _reason(problem: Exception) -> str:
    return sanitize.text(str(problem) or type(problem).__name__)


def _line(content: dict) -> bytes:
    return json.dumps(content).encode() + b"\n"
