"""The server of one model by the Open Inference Protocol v2 (REST) on uvicorn; started by apps.launching as a run.

    python server.py --model FOLDER --name NAME [--also NAME] [--host HOST --port PORT]    (MLP_LOADING: loading.py)

How it starts and ends is in listening.py. With MLP_APP_SECRET in its environment it answers only those who know it
(caller.py). Before the server is ready it has computed the smallest example of its signature once. Language models are
served by chat.py.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
import os
import sys
import time
from pathlib import Path

import api_errors
import bodies
import described
import numpy as np
import openapi
import orjson
import scoring
from allowance import also_named, in_time, most_bytes, too_large
from batching import Batcher
from listening import Gone, serve
from packing import unpacked
from protocol import joined, plain, read_request, write_response, written
from request_counter import Traffic
from token_counter import Tokens
from values import BadRequest, TooLarge, fitted

BODY_BYTES = 64 << 20
LARGE_BYTES = 1 << 20
IN_FLIGHT_BYTES = 128 << 20  # of the bodies of all requests that are not answered yet
EXTENSIONS = ["binary_tensor_data", "model_configuration", "statistics"]
PUBLIC = "MLP_APP_PUBLIC"  # in the environment: no key is needed
CERTAIN = ("onnx", "torch.export")  # formats whose files declare types and shapes


def open_model(folder: str):
    """Load the model by the platform's loading.py, whose path is in MLP_LOADING."""
    spec = importlib.util.spec_from_file_location("loading", os.environ["MLP_LOADING"])
    loading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loading)
    return loading.load(Path(folder))


class Busy(Exception):
    """There is no room for the body now."""


class Application:
    """The ASGI application: a coroutine for each path of the protocol, and /predict for plain JSON."""

    def __init__(self, model, name: str, also: tuple[str, ...] = ()):
        self.model, self.name, self.batcher = model, name, Batcher(model)
        self.also = [f"/v2/models/{other}" for other in also]  # addresses of the same model
        self.traffic: Traffic | None = None
        self.tokens = Tokens()  # of which other models have none
        self.in_flight = 0  # bytes of bodies
        self.unpacking = asyncio.Lock()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        began = time.monotonic()
        scope["taken"] = 0
        try:
            status, body, headers = await in_time(scope, self._route(scope, receive))
        except Gone:  # nobody hears an answer; neither success nor failure
            return
        except Busy:
            status, headers = 503, [(b"retry-after", b"1")]
            body = orjson.dumps({"error": "too many large requests at once; try again"})
        except BadRequest as problem:
            status, body, headers = problem.status, orjson.dumps({"error": str(problem)}), [*problem.headers]
        except Exception as problem:  # of the model: its author finds the details in the log
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            status, headers = 500, []
            body = orjson.dumps({"error": f"the model failed: {type(problem).__name__}: {problem}"})
        finally:
            self.in_flight -= scope["taken"]
        if self.traffic is not None and scope["method"] == "POST":
            failed = status >= 500 and status != 503  # 503: busy
            self.traffic.note(time.monotonic() - began, good=status == 200, failed=failed)
        headers = [(b"content-type", b"application/json"), *headers]
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": list(dict(headers).items())})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope, receive):
        method, path = scope["method"], scope["path"].rstrip("/")
        base = f"/v2/models/{self.name}"
        for other in (*self.also, *(f"/v2/models/{one}" for one in also_named(scope))):
            if path == other or path.startswith(f"{other}/"):
                path = base + path.removeprefix(other)
        path = path.replace(f"{base}/versions/1", base, 1)
        computing = {f"{base}/infer": self._infer, "/predict": self._predict, "/invocations": self._invocations}
        compute, answer = computing.get(path), self._read(path, base)
        if path == "/openapi.json":
            answer = 200, orjson.dumps(self._openapi(scope)), []
        if path == "/v2/repository/index" and method == "POST":
            await self._body(scope, receive)  # only `ready`, which this model is
            return 200, orjson.dumps(described.index(self.name)), []
        if compute is not None and method == "POST":
            return await compute(scope, receive)
        if answer is not None and method in ("GET", "HEAD"):  # the server leaves the body of a HEAD out
            return answer
        allowed = "POST" if compute is not None else "GET, HEAD" if answer is not None else ""
        if allowed:
            body = orjson.dumps({"error": f"{path or '/'} takes {allowed}, not {method}"})
            return 405, body, [(b"allow", allowed.encode())]
        if path.startswith("/v2/models/"):
            return 404, orjson.dumps({"error": f"there is no such model here; this is {self.name}"}), []
        if path.startswith("/v1/"):  # whose callers read errors in the form of OpenAI's API
            words = f"there is no {path} here: {self.name} is no language model"
            return 404, orjson.dumps(api_errors.content(404, words, code="unknown_url")), []
        return 404, orjson.dumps({"error": f"no such address {path}"}), []

    def _read(self, path: str, base: str):
        """Return the answer at an address that is read, None where there is none."""
        if path in ("/ping", "/health"):
            return 200, b"\n", []
        if path == "/version":
            return 200, scoring.VERSION.encode(), [(b"content-type", b"text/plain")]
        if path in ("/v2/health/live", "/v2/health/ready", f"{base}/ready"):
            return 200, orjson.dumps({"live": True, "ready": True}), []
        if path == "/v2":
            return 200, orjson.dumps({"name": "mlp-serving", "version": "1", "extensions": EXTENSIONS}), []
        if path == base:
            return 200, orjson.dumps(self._metadata()), []
        if path == f"{base}/config":
            return 200, orjson.dumps(described.config(self.name, self.model)), []
        if path in ("/v2/models/stats", f"{base}/stats"):
            return 200, orjson.dumps(self.batcher.statistics.shown(self.name)), []
        return (200, orjson.dumps(self._schema()), []) if path in ("", "/schema") else None

    def _openapi(self, scope) -> dict:
        """Return the description for callers of the gateway, which says the application's own path there."""
        prefix = dict(scope["headers"]).get(b"x-forwarded-prefix", b"").decode("latin-1")
        names, public = tuple(one.removeprefix("/v2/models/") for one in self.also), bool(os.environ.get(PUBLIC))
        return openapi.document(self.name, self.model, also=names, public=public, prefix=prefix)

    def _metadata(self) -> dict:
        identity = {"name": self.name, "versions": ["1"], "platform": self.model.format}
        return identity | {"inputs": self.model.inputs, "outputs": self.model.outputs}

    def _schema(self) -> dict:
        names = {spec["name"]: {"type": "array", "description": f"{spec['datatype']} {spec['shape']}"}
                 for spec in self.model.inputs}  # fmt: skip
        example = {tensor["name"]: plain(tensor) for tensor in self.model.example()}
        schema = {"type": "object", "properties": names, "description": "POST /predict: name: nested list"}
        return {"model": self._metadata(), "predict": {**schema, "example": example, "takes": bodies.TAKES}}

    def _arranged(self, tensors: list[dict]) -> list[dict]:
        """Return the tensors in the order of the model's inputs. A model with one input accepts any name for it."""
        names = [spec["name"] for spec in self.model.inputs]
        if self.model.format == "predictor" or not names:
            return tensors
        given = {tensor["name"]: tensor for tensor in tensors}
        if len(names) == len(tensors) == 1:
            given = {names[0]: {**tensors[0], "name": names[0]}}
        missing = set(names) - set(given)
        if len(given) != len(tensors) or set(given) - set(names) or missing - self.model.optional:
            raise BadRequest(f"inputs: the model takes {', '.join(names)}; given were {', '.join(given)}")
        taken = [(given[spec["name"]], spec) for spec in self.model.inputs if spec["name"] in given]
        for each, spec in taken if self.model.certain else ():
            _check(each, spec, kinds=self.model.format in CERTAIN)
        return [fitted(each, spec) if self.model.columns else each for each, spec in taken]

    async def _computed(self, receive, tensors: list[dict], wanted: tuple[str, ...] = ()) -> list[dict]:
        """Return the outputs. A model that fails on what does not fit its inputs did not fail: BadRequest."""
        tensors, began = self._arranged(tensors), time.monotonic_ns()
        try:
            outputs = await self._unless_gone(receive, self.batcher.predict(tensors, wanted))
            self.batcher.statistics.answered(True, time.monotonic_ns() - began)
            return outputs
        except Gone:
            raise
        except Exception as problem:
            self.batcher.statistics.answered(False, time.monotonic_ns() - began)
            self._blame(problem, tensors)
            raise

    def _blame(self, problem: Exception, tensors: list[dict]) -> None:
        """Raise BadRequest where a model has failed on what does not fit its inputs."""
        if isinstance(problem, self.model.wrong_input):
            raise BadRequest(str(problem))
        declared = {spec["name"]: spec for spec in self.model.inputs}
        if declared and set(declared) - {tensor["name"] for tensor in tensors} - self.model.optional:
            given = ", ".join(tensor["name"] for tensor in tensors)
            raise BadRequest(f"inputs: the model takes {', '.join(declared)}; given were {given}{_failed(problem)}")
        for tensor in tensors:
            if tensor["name"] in declared:
                _check(tensor, declared[tensor["name"]], kinds="torch" in self.model.format, reason=problem)
        if self.model.format != "predictor" and isinstance(problem, ValueError):  # its own code may fail on anything
            odd = next(filter(None, map(_odd, tensors)), None)
            if odd:
                raise BadRequest(f"{odd}{_failed(problem)}")

    async def _unless_gone(self, receive, computing) -> list[dict]:
        """Return what is computed. Raises Gone, and gives it up, where the caller disconnects meanwhile."""
        computing, leaving = asyncio.ensure_future(computing), asyncio.ensure_future(receive())
        try:
            await asyncio.wait({computing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not computing.done():
                raise Gone
            return computing.result()
        finally:
            computing.cancel()
            leaving.cancel()

    async def _infer(self, scope, receive):
        length = dict(scope["headers"]).get(b"inference-header-content-length")
        body = await self._body(scope, receive)
        request, tensors = await _read(read_request, body, None if length is None else length.decode("latin-1"))
        tensors = joined(request, tensors, *self._declared())
        wanted = tuple(sorted(output["name"] for output in request.get("outputs") or []))
        outputs = await self._computed(receive, tensors, wanted)
        body, head = await _write(outputs, write_response, request, self.name, outputs)
        if head is None:
            return 200, body, []
        binary = [(b"content-type", b"application/octet-stream")]
        return 200, body, [*binary, (b"inference-header-content-length", str(head).encode())]

    async def _predict(self, scope, receive):
        """Answer plain JSON or a file (see bodies.py) with {"name of an output": nested list, ...}."""
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        tensors = await _read(bodies.read, await self._body(scope, receive), content_type, *self._declared())
        outputs = await self._computed(receive, tensors)
        return 200, await _write(outputs, _named, outputs), []

    def _declared(self) -> tuple[list[dict], tuple[str, ...]]:
        return self.model.inputs, self.model.features

    async def _invocations(self, scope, receive):
        """Answer a request of MLflow's scoring protocol (see scoring.py)."""
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        tensors = await _read(scoring.read, await self._body(scope, receive), content_type, self.model)
        outputs = await self._computed(receive, tensors)
        return 200, await _write(outputs, _predictions, outputs), []

    async def _body(self, scope, receive) -> bytes:
        """Return the request's body, unpacked. Raises Busy where those of all requests would fill the memory."""
        pieces, most = [], most_bytes(scope, BODY_BYTES)
        coding = b",".join(value for name, value in scope["headers"] if name == b"content-encoding")
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            pieces.append(message.get("body", b""))
            self._hold(scope, len(pieces[-1]))
            if scope["taken"] > most:
                raise TooLarge(too_large(most))
            if not message.get("more_body"):
                break
        if not coding:
            return b"".join(pieces)
        async with self.unpacking:  # one at a time, since its size is known afterwards only
            body = await _read(unpacked, b"".join(pieces), coding.decode("latin-1"), most)
            self._hold(scope, len(body))
        return body

    def _hold(self, scope, size: int) -> None:
        scope["taken"] += size
        self.in_flight += size
        if self.in_flight > IN_FLIGHT_BYTES:
            raise Busy

    def warm_up(self) -> None:
        """Compute the example once, and take the outputs from it if the model's file does not declare them. A model
        that fails on it is served all the same: an example of zeros need not be a valid input.
        """
        if not self.model.inputs:
            return
        try:
            outputs = self.model.predict(self.model.example())
        except Exception as problem:
            print(f"not warmed up: {type(problem).__name__}: {problem}", flush=True)
            return
        if not self.model.outputs:
            several = all(spec["shape"][:1] == [-1] for spec in self.model.inputs)
            self.model.outputs = [
                {"name": output["name"], "datatype": output["datatype"], "shape": _open(output["shape"], several)}
                for output in outputs
            ]


async def _read(read, body: bytes, *arguments):
    """Return what `read` makes of a body; in a thread if that may take long, so that others and the health are
    answered. A small picture may have many pixels.
    """
    if len(body) < LARGE_BYTES and not str(arguments[0]).lower().startswith(("image/", "multipart/")):
        return read(body, *arguments)
    return await asyncio.to_thread(read, body, *arguments)


async def _write(outputs: list[dict], write, *arguments):
    """Return what `write` makes of the outputs, large ones in a thread."""
    if sum(array.nbytes for array in _arrays(outputs)) < LARGE_BYTES:
        return write(*arguments)
    return await asyncio.to_thread(write, *arguments)


def _named(outputs: list[dict]) -> bytes:
    return written({output["name"]: plain(output) for output in outputs}, _arrays(outputs))


def _predictions(outputs: list[dict]) -> bytes:
    predictions = scoring.predictions([(output["name"], plain(output)) for output in outputs])
    return written({"predictions": predictions}, _arrays(outputs))


def _open(shape: list[int], several: bool) -> list[int]:
    return [-1, *shape[1:]] if several and list(shape[:1]) == [1] else list(shape)


def _check(given: dict, spec: dict, kinds: bool, reason: Exception | None = None) -> None:
    """Raise BadRequest where a tensor has not the shape that the model declares, or with `kinds` the datatype."""
    name, shape, had = spec["name"], spec["shape"], given["shape"]
    failed = _failed(reason) if reason else ""
    if kinds and given["datatype"] != spec["datatype"]:
        raise BadRequest(f"{name}: must be {spec['datatype']}, given was {given['datatype']}{failed}")
    if len(had) == len(shape) and all(side in (-1, size) for size, side in zip(had, shape, strict=True)):
        return
    rows = shape[:1] == [-1] and -1 not in shape[1:] and len(shape) > 1 and spec["datatype"] != "BYTES"
    many = f"expected {math.prod(shape[1:])} numbers in each row, ".replace(" 1 numbers", " 1 number")
    raise BadRequest(f"{name}: {many * rows}must have the shape {shape}, given was {list(had)}{failed}")


def _odd(tensor: dict) -> str:
    """Return in words what many models do not take of a tensor."""
    data = np.asarray(tensor["data"])
    if not data.size:
        return f"{tensor['name']}: has no values"
    odd = data.dtype.kind == "f" and not np.isfinite(data).all()
    return f"{tensor['name']}: has NaN or infinite numbers" if odd else ""


def _failed(reason: Exception) -> str:
    return f" (the model failed: {type(reason).__name__}: {reason})"


def _arrays(outputs: list[dict]) -> list[np.ndarray]:
    return [np.asarray(output["data"]) for output in outputs]


def prepared(folder: Path, name: str, also: tuple[str, ...]) -> tuple[Application, str]:
    """Return the application that serves the model in a folder, and the model's format."""
    model = open_model(str(folder))
    application = Application(model, name, also)
    application.warm_up()
    return application, model.format


if __name__ == "__main__":
    serve(prepared)
