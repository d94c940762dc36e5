"""The server of one model by the Open Inference Protocol v2 (REST) on uvicorn; started by apps.launching as a run.

    python server.py --model FOLDER --name NAME [--also NAME] [--host HOST --port PORT]    (MLP_LOADING: loading.py)

It serves on the socket that it is handed (LISTEN_FDS, as systemd does), else on the port. With MLP_APP_SECRET in its
environment it answers only those who know it (door.py).

The model computes in one thread. While it is busy requests queue, and compatible ones (same names, types and
dimensions but the first) are then computed as one batch, without added latency; batches are used only after one gave
the same results as its requests alone. Before the server is ready it has computed the smallest example of its signature
once. SIGTERM: no new connections, requests in flight are finished.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bodies
import numpy as np
import orjson
import scoring
import uvicorn
from door import Door, take_secret
from protocol import BadRequest, read_request, write_response
from request_counter import Traffic

MOST_AT_ONCE = 64
BODY_BYTES = 64 << 20
IN_FLIGHT_BYTES = 128 << 20  # of the bodies of all requests that are not answered yet
STOP_S = 8
FIRST_HANDED_OVER = 3  # descriptor
EXTENSIONS = ["binary_tensor_data"]
CERTAIN = ("onnx", "torch.export")  # formats whose files declare types and shapes


def open_model(folder: str):
    """Load the model by the platform's loading.py, whose path is in MLP_LOADING."""
    spec = importlib.util.spec_from_file_location("loading", os.environ["MLP_LOADING"])
    loading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loading)
    return loading.load(Path(folder))


class Busy(Exception):
    """There is no room for the body now."""


class Batcher:
    """Computes the requests, several at once if the model is proven to allow it."""

    def __init__(self, model):
        self.model, self.waiting, self.busy = model, [], False
        self.together = None if model.batches else False  # None: not known yet
        self.thread = ThreadPoolExecutor(1)

    async def predict(self, tensors: list[dict], wanted: tuple[str, ...] = ()) -> list[dict]:
        """Return the outputs, only the `wanted` ones if any are named; raises what the model raises."""
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((tensors, wanted, done))
        if not self.busy:
            await self._work()
        return await done

    async def _work(self) -> None:
        self.busy = True
        try:
            while self.waiting:
                batch = self._take()
                results = await asyncio.get_running_loop().run_in_executor(self.thread, self._compute, batch)
                for (_tensors, _wanted, done), result in zip(batch, results, strict=True):
                    if done.cancelled():
                        continue
                    if isinstance(result, Exception):
                        done.set_exception(result)
                    else:
                        done.set_result(result)
                if self.waiting:  # the rest in a task, so that this request is answered now
                    asyncio.get_running_loop().create_task(self._work())
                    return
        finally:
            if not self.waiting:
                self.busy = False

    def _take(self) -> list:
        first = self.waiting[0]
        if self.together is False:
            return [self.waiting.pop(0)]
        kind = _alike(first[0])
        chosen = [one for one in self.waiting if one[1] == first[1] and _alike(one[0]) == kind][:MOST_AT_ONCE]
        taken = {id(one) for one in chosen}
        self.waiting = [one for one in self.waiting if id(one) not in taken]
        return chosen

    def _compute(self, batch: list) -> list:
        if len(batch) > 1 and self.together:
            try:
                return self._at_once(batch)
            except Exception:  # one request may be at fault: compute each alone
                pass
        results = [self._alone(tensors, wanted) for tensors, wanted, _done in batch]
        if len(batch) > 1 and self.together is None:
            self._prove(batch, results)
        return results

    def _alone(self, tensors: list[dict], wanted: tuple[str, ...]):
        try:
            return self.model.predict(tensors, wanted)
        except Exception as problem:
            return problem

    def _prove(self, batch: list, results: list) -> None:
        """Set `together`: whether the batch gives the same as its requests alone."""
        if any(isinstance(one, Exception) for one in results):
            return
        first, wanted, _done = batch[0]
        if all(_same(one, other) for tensors, *_ in batch[1:] for one, other in zip(first, tensors, strict=True)):
            # A model that mixes its rows does not show with equal rows: add the example, if it differs.
            example = self.model.example()
            if _alike(example) != _alike(first) or all(map(_same, first, example)):
                return
            batch, results = [*batch, (example, wanted, None)], [*results, self._alone(example, wanted)]
            if isinstance(results[-1], Exception):
                return
        try:
            pairs = zip(results, self._at_once(batch), strict=True)
            self.together = all(
                _same(one, other) for alone, joined in pairs for one, other in zip(alone, joined, strict=True)
            )
        except Exception:
            self.together = False

    def _at_once(self, batch: list) -> list:
        counts = [tensors[0]["shape"][0] for tensors, *_ in batch]
        joined = []
        for index, one in enumerate(batch[0][0]):
            data = np.concatenate([tensors[index]["data"] for tensors, *_ in batch])
            joined.append({**one, "shape": list(data.shape), "data": data})
        outputs = self.model.predict(joined, batch[0][1])
        if any(not one["shape"] or one["shape"][0] != sum(counts) for one in outputs):
            raise ValueError("an output has not one row for each row of the inputs")
        ends = np.cumsum(counts)
        return [
            [{**one, "shape": [count, *one["shape"][1:]], "data": one["data"][end - count : end]} for one in outputs]
            for count, end in zip(counts, ends, strict=True)
        ]


def _alike(tensors: list[dict]):
    rows = {tuple(one["shape"][:1]) for one in tensors}
    if len(rows) != 1 or () in rows:
        return id(tensors)  # without a common first dimension it is compatible with no other
    return tuple((one["name"], one["datatype"], tuple(one["shape"][1:])) for one in tensors)


def _same(one: dict, other: dict) -> bool:
    if one["data"].shape != other["data"].shape:
        return False
    if one["datatype"] == "BYTES" or one["data"].dtype.kind not in "fiub":
        return bool(np.array_equal(one["data"], other["data"]))
    return bool(np.allclose(one["data"], other["data"], rtol=1e-3, atol=1e-5, equal_nan=True))


class Application:
    """The ASGI application: a coroutine for each path of the protocol, and /predict for plain JSON."""

    def __init__(self, model, name: str, also: tuple[str, ...] = ()):
        self.model, self.name, self.batcher = model, name, Batcher(model)
        self.also = [f"/v2/models/{one}" for one in also]  # addresses of the same model
        self.traffic: Traffic | None = None
        self.in_flight = 0  # bytes of bodies

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        began = time.monotonic()
        scope["taken"] = 0
        try:
            status, body, headers = await self._route(scope, receive)
        except Busy:
            status, headers = 503, [(b"retry-after", b"1")]
            body = orjson.dumps({"error": "too many large requests at once; try again"})
        except BadRequest as problem:
            status, body, headers = 400, orjson.dumps({"error": str(problem)}), []
        except Exception as problem:  # of the model: its author finds the details in the log
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            status, headers = 500, []
            body = orjson.dumps({"error": f"the model failed: {type(problem).__name__}: {problem}"})
        finally:
            self.in_flight -= scope["taken"]
        if self.traffic is not None and scope["method"] == "POST":
            self.traffic.note(time.monotonic() - began, good=status == 200)
        headers = [(b"content-type", b"application/json"), *headers]
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": list(dict(headers).items())})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope, receive):
        method, path = scope["method"], scope["path"].rstrip("/")
        base = f"/v2/models/{self.name}"
        for other in self.also:
            if path == other or path.startswith(f"{other}/"):
                path = base + path.removeprefix(other)
        path = path.replace(f"{base}/versions/1", base, 1)
        if method == "POST" and path == f"{base}/infer":
            return await self._infer(scope, receive)
        if method == "POST" and path == "/predict":
            return await self._predict(scope, receive)
        if method == "POST" and path == "/invocations":
            return await self._invocations(scope, receive)
        if method != "GET":
            return 404, orjson.dumps({"error": f"there is nothing to {method} at {path or '/'}"}), []
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
        if path in ("", "/schema"):
            return 200, orjson.dumps(self._schema()), []
        if path.startswith("/v2/models/"):
            return 404, orjson.dumps({"error": f"there is no such model here; this is {self.name}"}), []
        return 404, orjson.dumps({"error": f"no such address {path}"}), []

    def _metadata(self) -> dict:
        identity = {"name": self.name, "versions": ["1"], "platform": self.model.format}
        return identity | {"inputs": self.model.inputs, "outputs": self.model.outputs}

    def _schema(self) -> dict:
        names = {one["name"]: {"type": "array", "description": f"{one['datatype']} {one['shape']}"}
                 for one in self.model.inputs}  # fmt: skip
        example = {one["name"]: _plain(one) for one in self.model.example()}
        schema = {"type": "object", "properties": names, "description": "POST /predict: name: nested list"}
        return {"model": self._metadata(), "predict": {**schema, "example": example, "takes": bodies.TAKES}}

    def _arranged(self, tensors: list[dict]) -> list[dict]:
        """Return the tensors in the order of the model's inputs. A model with one input accepts any name for it."""
        names = [one["name"] for one in self.model.inputs]
        if self.model.format == "predictor" or not names:
            return tensors
        if len(names) == len(tensors) == 1:
            tensors = [{**tensors[0], "name": names[0]}]
        given = {one["name"]: one for one in tensors}
        if sorted(given) != sorted(names) or len(given) != len(tensors):
            raise BadRequest(f"inputs: the model takes {', '.join(names)}; given were {', '.join(given)}")
        if self.model.format in CERTAIN:
            for one in self.model.inputs:
                _check(given[one["name"]], one)
        return [given[name] for name in names]

    async def _infer(self, scope, receive):
        headers = dict(scope["headers"])
        length = headers.get(b"inference-header-content-length")
        request, tensors = read_request(await self._body(scope, receive), length and length.decode("latin-1"))
        wanted = tuple(sorted(one["name"] for one in request.get("outputs") or []))
        outputs = await self.batcher.predict(self._arranged(tensors), wanted)
        body, head = write_response(request, self.name, outputs)
        if head is None:
            return 200, body, []
        binary = [(b"content-type", b"application/octet-stream")]
        return 200, body, [*binary, (b"inference-header-content-length", str(head).encode())]

    async def _predict(self, scope, receive):
        """Answer plain JSON or a file (see bodies.py) with {"name of an output": nested list, ...}."""
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        tensors = bodies.read(await self._body(scope, receive), content_type, self.model.inputs)
        outputs = await self.batcher.predict(self._arranged(tensors))
        return 200, orjson.dumps({one["name"]: _plain(one) for one in outputs}), []

    async def _invocations(self, scope, receive):
        """Answer a request of MLflow's scoring protocol (see scoring.py)."""
        content_type = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        tensors = scoring.read(await self._body(scope, receive), content_type, self.model.inputs, self.model.frames)
        outputs = await self.batcher.predict(self._arranged(tensors))
        found = scoring.predictions([(one["name"], _plain(one)) for one in outputs])
        return 200, orjson.dumps({"predictions": found}), []

    async def _body(self, scope, receive) -> bytes:
        """Return the request's body. Raises Busy where those of all requests would fill the memory."""
        pieces = []
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise BadRequest("body: broken off")
            pieces.append(message.get("body", b""))
            scope["taken"] += len(pieces[-1])
            self.in_flight += len(pieces[-1])
            if scope["taken"] > BODY_BYTES:
                raise BadRequest(f"body: too large, at most {BODY_BYTES >> 20} MiB")
            if self.in_flight > IN_FLIGHT_BYTES:
                raise Busy
            if not message.get("more_body"):
                return b"".join(pieces)

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
            several = all(one["shape"][:1] == [-1] for one in self.model.inputs)
            self.model.outputs = [
                {"name": one["name"], "datatype": one["datatype"], "shape": _open(one["shape"], several)}
                for one in outputs
            ]


def _open(shape: list[int], several: bool) -> list[int]:
    return [-1, *shape[1:]] if several and list(shape[:1]) == [1] else list(shape)


def _check(given: dict, one: dict) -> None:
    """Raise BadRequest where a tensor is not what the model declares."""
    if given["datatype"] != one["datatype"]:
        raise BadRequest(f"{one['name']}: must be {one['datatype']}, given was {given['datatype']}")
    pairs = zip(given["shape"], one["shape"], strict=False)
    if len(given["shape"]) != len(one["shape"]) or any(side not in (-1, had) for had, side in pairs):
        raise BadRequest(f"{one['name']}: must have the shape {one['shape']}, given was {given['shape']}")


def _plain(one: dict) -> list:
    array = np.asarray(one["data"])
    return [] if not array.size else _words(array.tolist())


def _words(value):
    if isinstance(value, list):
        return [_words(one) for one in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def handed_over() -> list[socket.socket] | None:
    """Return the socket that this process was started with, None where there is none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    os.set_inheritable(FIRST_HANDED_OVER, False)  # not for programs that the model starts
    return [socket.socket(fileno=FIRST_HANDED_OVER)]


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--model", "--name"):
        parser.add_argument(option, required=True)
    parser.add_argument("--also", action="append", default=[], help="another name of the model in addresses")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    given, listening, secret = parser.parse_args(), handed_over(), take_secret()
    if listening is None and not given.host:
        parser.error("--host and --port are required where no socket was handed over")
    model = open_model(given.model)
    application = Application(model, given.name, tuple(given.also))
    application.warm_up()
    if os.environ.get("MLP_TRAFFIC"):
        application.traffic = Traffic(Path(os.environ["MLP_TRAFFIC"]))
        application.traffic.begin()
    where = f" on port {given.port}" if listening is None else ""
    print(f"serving {given.name} ({model.format}){where}", flush=True)
    config = uvicorn.Config(
        Door(application, secret) if secret else application,
        host=given.host or "localhost", port=given.port or 0, log_level="warning", access_log=False, lifespan="off",
        timeout_graceful_shutdown=STOP_S, server_header=False,
    )  # fmt: skip
    uvicorn.Server(config).run(sockets=listening)


if __name__ == "__main__":
    main()
