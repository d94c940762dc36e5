"""The server of one language model by the protocol of OpenAI's API on uvicorn; started by apps.launching as a run.

    python chat.py --model FOLDER --name NAME [--also NAME] [--host HOST --port PORT]    (MLP_LOADING: loading.py)

How it starts and ends is in listening.py, its secret in caller.py. Answers are computed by an engine (chat_engine.py),
as many at the same time as it can; others wait, and beyond MAX_REQUESTS they are refused with 429. When the caller
disconnects, the time is over or a stop string has come, the engine is asked to stop, and the next answer begins when it
has.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import chat_requests
import embedding_requests
import orjson
from allowance import Late, also_named, in_time, most_bytes, too_large
from chat_answers import Answer
from chat_engine import Embedder, Engine, Options, Piece, WrongPrompt
from chat_fields import ApiError
from chat_pages import EMBEDDINGS, EVENTS, description, pages, posts
from chat_requests import Request
from listening import Gone, serve
from packing import unpacked
from request_counter import Traffic
from token_counter import Tokens
from values import BadRequest

BODY_BYTES = 1 << 20  # of a request: more than any context takes
MAX_REQUESTS = 32  # that are being answered or wait, of an engine that answers one at a time


class Chat:
    """The ASGI application of a language model."""

    def __init__(self, engine: Engine | Embedder, name: str, also: tuple[str, ...] = ()):
        self.engine, self.name, self.also = engine, name, also
        self.began = int(time.time())
        self.requests, self.most = 0, max(MAX_REQUESTS, 2 * engine.parallel)
        self.traffic: Traffic | None = None
        self.tokens = Tokens()
        self.slots = asyncio.Semaphore(engine.parallel)
        self.threads = ThreadPoolExecutor(engine.parallel, "engine")
        self.encoder = ThreadPoolExecutor(1, "encoder")  # tokenizers need not be safe for threads

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        scope["began"], sending = time.monotonic(), Sending(send)
        try:
            await in_time(scope, self._route(scope, receive, sending))
        except Gone:  # nobody hears an answer; neither success nor failure
            return
        except Late as problem:
            await sending.fail(ApiError(str(problem), status=504))
        except WrongPrompt as problem:  # found only while the answer is computed
            await sending.fail(ApiError(str(problem)))
        except BadRequest as problem:
            await sending.fail(ApiError(str(problem), status=problem.status))
        except ApiError as problem:
            await sending.fail(problem)
        except Exception as problem:  # of the model: its author finds the details in the log
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            await sending.fail(ApiError(f"the model failed: {type(problem).__name__}: {problem}", status=500))
        if self.traffic is not None and scope["method"] == "POST":
            self.traffic.note(time.monotonic() - scope["began"], good=sending.good, failed=sending.failed)

    async def _route(self, scope, receive, sending: Sending) -> None:
        method, path = scope["method"], scope["path"].rstrip("/")
        computed = posts(self.engine)
        if path in computed and method == "POST":
            return await self._answer(path, scope, receive, sending)
        prefix = dict(scope["headers"]).get(b"x-forwarded-prefix", b"").decode("latin-1")
        page = pages(self, prefix, also_named(scope)).get(path)
        if page is not None and method in ("GET", "HEAD"):  # the server leaves the body of a HEAD out
            return await sending.whole(200, page)
        if path in computed or page is not None:
            allowed = "POST" if path in computed else "GET, HEAD"
            problem = ApiError(f"{path or '/'} takes {allowed}, not {method}", status=405)
            problem.headers = [(b"allow", allowed.encode())]
            raise problem
        if path.startswith("/v1/models/"):
            raise self._no_model(path.removeprefix("/v1/models/"))
        raise ApiError(f"there is no {path or '/'} here: {description(self.engine)}", code="unknown_url", status=404)

    def _no_model(self, name: str) -> ApiError:
        return ApiError(f"there is no model {name[:100]} here; this is {self.name}", "model", "model_not_found", 404)

    async def _answer(self, path: str, scope, receive, sending: Sending) -> None:
        if self.requests >= self.most:
            raise ApiError("too many requests at once; try again", code="rate_limit_exceeded", status=429)
        self.requests += 1
        try:
            if path == EMBEDDINGS:
                await self._embed(scope, receive, sending)
            else:
                await self._complete(scope, receive, sending, chat=path == "/v1/chat/completions")
        finally:
            self.requests -= 1

    def _require_model(self, name: str | None, scope) -> None:
        if name is not None and name not in (self.name, *self.also, *also_named(scope)):
            raise self._no_model(name)

    async def _embed(self, scope, receive, sending: Sending) -> None:
        body = await self._body(scope, receive, embedding_requests.BODY_BYTES)
        request = await asyncio.to_thread(embedding_requests.read, body)
        self._require_model(request.model, scope)
        if request.dimensions is not None and not self.engine.may_have(request.dimensions):
            have = f"vectors of this model have {self.engine.dimensions} numbers and cannot be shortened to that"
            raise ApiError(f"dimensions: {have}", "dimensions", chat_requests.UNSUPPORTED)
        most = max(1, embedding_requests.MOST_NUMBERS // self.engine.dimensions)
        if len(request.texts) > most:
            raise ApiError(f"input: of this model's size at most {most} vectors are in one answer", "input")
        texts = await self._in_turn(self._texts, request.texts)
        await _unless_gone(receive, self._embedded(scope, request, texts, sending))

    def _texts(self, texts: list[str] | list[list[int]]) -> list[list[int]]:
        """Return the tokens of each text. Raises ApiError."""
        encode, tokens = self.engine.encode if isinstance(texts[0], str) else self.engine.encode_tokens, []
        for at, text in enumerate(texts):
            if len(text) > embedding_requests.LONGEST_TOKEN * self.engine.context:  # it would keep others waiting
                said = f"has {len(text)} characters, this model takes {self.engine.context} tokens"
                raise ApiError(f"input[{at}]: {said}", "input", "context_length_exceeded")
            try:
                tokens.append(encode(text))
            except WrongPrompt as problem:
                raise ApiError(f"input[{at}]: {problem}", "input")
            if len(tokens[-1]) > self.engine.context:
                said = f"has {len(tokens[-1])} tokens, this model takes {self.engine.context}"
                raise ApiError(f"input[{at}]: {said}", "input", "context_length_exceeded")
        if sum(map(len, tokens)) > embedding_requests.MOST_TOKENS:
            most = embedding_requests.MOST_TOKENS
            raise ApiError(f"input: has more than {most} tokens together; send several requests", "input")
        return tokens

    async def _embedded(self, scope, request: embedding_requests.Request, texts: list, sending: Sending) -> None:
        count, cancelled = sum(map(len, texts)), threading.Event()
        await self.slots.acquire()
        computing = asyncio.get_running_loop().run_in_executor(self.threads, self.engine.embed, texts, cancelled)
        computing.add_done_callback(lambda done: (self.slots.release(), done.exception()))
        try:
            vectors = await asyncio.shield(computing)
        finally:
            cancelled.set()
        self.tokens.add(scope, count, 0)
        if request.dimensions is not None:
            vectors = embedding_requests.shortened(vectors, request.dimensions)
        body = await asyncio.to_thread(embedding_requests.answer, request, self.name, vectors, count)
        await sending.whole(200, body)

    async def _complete(self, scope, receive, sending: Sending, chat: bool) -> None:
        body, able = await self._body(scope, receive), self.engine
        can = {"tools": bool(able.tools), "constrains": able.constrains}
        request = await asyncio.to_thread(chat_requests.read, body, chat=chat, **can)
        self._require_model(request.model, scope)
        tokens = await self._encoded(request)
        constraint = await self._constraint(request)
        options = request.options(request.most or able.context - len(tokens), constraint)
        await _unless_gone(receive, self._answered(scope, request, tokens, options, sending))

    async def _constraint(self, request: Request) -> object | None:
        """Return what the answer has to follow, None where it may be anything. Raises ApiError."""
        called = request.tools.callable() if request.tools is not None else None
        try:
            if request.schema is not None:
                return await self._in_turn(self.engine.constraint, request.schema)
            return await self._in_turn(self.engine.calling, called) if called is not None else None
        except WrongPrompt as problem:
            name = "tools" if request.tools is not None else "response_format"
            raise ApiError(f"{name}: the JSON schema cannot be followed ({problem})", name)

    async def _answered(self, scope, request: Request, tokens: list[int], options: Options, sending: Sending) -> None:
        answer = Answer(request, self.name, len(tokens), options.most, self.engine.tools)
        async with contextlib.aclosing(self._pieces(tokens, options)) as pieces:
            async for piece in pieces:
                if request.stream and not sending.begun:
                    await sending.begin(EVENTS, answer.first())
                before = answer.tokens
                text, calls = answer.take(piece)
                self._count(scope, answer, before)
                if request.stream and text:
                    await sending.event(answer.chunk(text))
                for event in answer.called(calls) if request.stream else ():
                    await sending.event(event)
                if answer.finish:
                    break
        if not request.stream:
            return await sending.whole(200, answer.whole())
        for event in answer.last():
            await sending.event(event)
        await sending.done()

    def _count(self, scope, answer: Answer, before: int) -> None:
        """Count a piece's tokens as it is made, so that those of an answer that is given up count, too; the prompt's
        with the first.
        """
        made = answer.tokens - before
        self.tokens.add(scope, 0 if answer.counted else answer.prompt_tokens, made)
        if self.traffic is not None:
            self.traffic.note_tokens(made, None if answer.counted else time.monotonic() - scope["began"])
        answer.counted = True

    async def _encoded(self, request: Request) -> list[int]:
        """Return the prompt's tokens. Raises ApiError where there are too many for the answer to fit."""
        name = "messages" if request.chat else "prompt"
        if request.chat and not self.engine.chats:
            raise ApiError("this model has no chat template; use /v1/completions", name, "chat_template_missing")
        encode = self.engine.encode_tokens if isinstance(request.prompt, list) else self.engine.encode
        given = [request.prompt]
        if request.chat:
            encode = self.engine.encode_messages
            given += [request.tools.listed, bool(request.tools.forced)] if request.tools else []
        try:
            tokens = await self._in_turn(encode, *given)
        except WrongPrompt as problem:
            raise ApiError(f"{name}: {problem}", name)
        wanted = len(tokens) + (request.most or 1)
        if wanted > self.engine.context:
            raise ApiError(
                f"{name}: the context of this model has {self.engine.context} tokens, but {wanted} were requested: "
                f"{len(tokens)} of the prompt, {request.most or 1} of the answer", name, "context_length_exceeded",
            )  # fmt: skip
        return tokens

    async def _in_turn(self, work: Callable, *given):
        """Return what is computed in the one thread that uses the tokenizer. A request whose time is over goes on
        there, and the next one waits for that.
        """
        return await asyncio.get_running_loop().run_in_executor(self.encoder, work, *given)

    async def _pieces(self, tokens: list[int], options: Options) -> AsyncIterator[Piece]:
        """Yield the pieces of an answer once it is its turn. The engine is free for the next when its thread ends."""
        await self.slots.acquire()
        loop, pieces, cancelled = asyncio.get_running_loop(), asyncio.Queue(), threading.Event()

        def emit(piece: Piece | Exception) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        def compute() -> None:
            try:
                self.engine.generate(tokens, options, emit, cancelled)
                emit(RuntimeError("the engine ended without a reason"))
            except Exception as problem:
                emit(problem)

        computing = loop.run_in_executor(self.threads, compute)
        computing.add_done_callback(lambda _: self.slots.release())
        try:
            while True:
                piece = await pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            cancelled.set()

    def close(self) -> None:
        """End the processes of the engine, if it has some."""
        if end := getattr(self.engine, "close", None):
            end()

    def warm_up(self) -> None:
        """Compute a token once, since the first takes longer. A model that fails is served all the same."""
        try:
            tokens = self.engine.encode("a")
            if self.engine.embeds:
                self.engine.embed([tokens], threading.Event())
            else:
                self.engine.generate(tokens, Options(1, 0), lambda piece: None, threading.Event())
        except Exception as problem:
            print(f"not warmed up: {type(problem).__name__}: {problem}", flush=True)

    async def _body(self, scope, receive, limit: int = BODY_BYTES) -> bytes:
        """Return the request's body, unpacked."""
        body, most = bytearray(), most_bytes(scope, limit)
        coding = b",".join(value for name, value in scope["headers"] if name == b"content-encoding")
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            body += message.get("body", b"")
            if len(body) > most:
                raise ApiError(too_large(most), code="request_too_large", status=413)
            if not message.get("more_body"):
                break
        return await asyncio.to_thread(unpacked, bytes(body), coding.decode("latin-1"), most) if coding else bytes(body)


async def _unless_gone(receive, work) -> None:
    """Wait for the work. Raises Gone, and gives it up, where the caller disconnects meanwhile."""
    work, leaving = asyncio.ensure_future(work), asyncio.ensure_future(receive())
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise Gone
        return work.result()
    finally:
        leaving.cancel()
        if not work.done():
            work.cancel()
            await asyncio.wait({work})


class Sending:
    """The response to one request: whole, or as server-sent events. `good`: it was answered without an error,
    `failed`: the model or the process has failed.
    """

    def __init__(self, send):
        self.send, self.begun, self.good, self.failed = send, False, False, False

    async def whole(self, status: int, content, headers: list = ()) -> None:
        body = content if isinstance(content, bytes) else orjson.dumps(content)
        await self._start(status, [(b"content-length", str(len(body)).encode()), *headers], b"application/json")
        await self.send({"type": "http.response.body", "body": body})
        self.good = status == 200

    async def begin(self, content_type: bytes, event: dict) -> None:
        """Start a stream with its first event."""
        await self._start(200, [(b"cache-control", b"no-cache")], content_type)
        await self.event(event)

    async def event(self, content: dict) -> None:
        await self._write(orjson.dumps(content))

    async def done(self) -> None:
        await self._write(b"[DONE]", last=True)
        self.good = True

    async def fail(self, problem: ApiError) -> None:
        """Send a failure, as an event where the stream has begun."""
        self.failed = problem.status >= 500 and problem.status != 503  # 503: busy
        if self.begun:
            await self._write(orjson.dumps(problem.body()), last=True)
        else:
            await self.whole(problem.status, problem.body(), problem.headers)

    async def _start(self, status: int, headers: list, content_type: bytes) -> None:
        self.begun = True
        headers = [(b"content-type", content_type), *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, data: bytes, last: bool = False) -> None:
        body = b"data: %s\n\n" % data
        await self.send({"type": "http.response.body", "body": body, "more_body": not last})


def open_engine(folder: Path) -> Engine | Embedder:
    """Load the model with the engine for its format."""
    path = Path(os.environ["MLP_LOADING"])
    spec = importlib.util.spec_from_file_location("loading", path)
    loading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loading)
    kind, path = loading.find(folder)
    if kind == "gguf":
        from chat_llama_cpp import LlamaCppEngine

        return LlamaCppEngine(path, loading.gguf)
    place = path.parent
    loading.hugging_face.verify(place)
    if loading.hugging_face.makes_embeddings(place):
        from embedding_transformers import EmbeddingEngine

        return EmbeddingEngine(place, loading.hugging_face)
    if importlib.util.find_spec("vllm") is not None:
        import chat_vllm

        if chat_vllm.computes_here():
            return chat_vllm.VllmEngine(place, loading.hugging_face)
        print("vLLM needs a GPU here: transformers computes the answers", flush=True)
    from chat_transformers import TransformersEngine

    return TransformersEngine(place, loading.hugging_face)


def prepared(opened: Callable[[Path], Engine], folder: Path, name: str, also: tuple[str, ...]) -> tuple[Chat, str]:
    """Return the application that serves what `opened(folder)` returns, and the engine's format."""
    application = Chat(opened(folder), name, also)
    application.warm_up()
    return application, application.engine.format


if __name__ == "__main__":
    # While an engine computes in its thread, each write to a caller waits for the interpreter's lock: by default 5 ms.
    sys.setswitchinterval(0.0005)
    serve(partial(prepared, open_engine))
