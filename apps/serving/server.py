"""Serves one model by the Open Inference Protocol v2 (REST) on uvicorn; started by apps.launching as a run.

    python server.py --model FOLDER --name NAME --host HOST --port PORT      (MLP_LOADING: the path of loading.py)

The model computes in one thread. While it is busy requests queue, and those that fit together (same names, types and
sides but the first) are then computed as one, so a batch costs no waiting; batches are used only after one was proven
to give what its requests give alone. SIGTERM: no new connections, the requests in flight are finished.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import orjson
import uvicorn
from protocol import BadRequest, read_request, write_answer

MOST_AT_ONCE = 64
BODY_BYTES = 64 << 20
EXTENSIONS = ["binary_tensor_data"]


def open_model(folder: str):
    spec = importlib.util.spec_from_file_location("loading", os.environ["MLP_LOADING"])
    loading = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loading)
    return loading.load(Path(folder))


class Batcher:
    """Computes what comes, several requests at once where the model is proven to allow it."""

    def __init__(self, model):
        self.model, self.waiting, self.busy = model, [], False
        self.together = None if model.batches else False  # None: not proven yet
        self.thread = ThreadPoolExecutor(1)

    async def predict(self, tensors: list[dict]) -> list[dict]:
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((tensors, done))
        if not self.busy:
            await self._work()
        return await done

    async def _work(self) -> None:
        self.busy = True
        try:
            while self.waiting:
                batch = self._take()
                found = await asyncio.get_running_loop().run_in_executor(self.thread, self._compute, batch)
                for (_tensors, done), answer in zip(batch, found, strict=True):
                    if done.cancelled():
                        continue
                    if isinstance(answer, Exception):
                        done.set_exception(answer)
                    else:
                        done.set_result(answer)
                if self.waiting:  # the rest is a task's, so that this request is answered now
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
        chosen = [one for one in self.waiting if _alike(one[0]) == kind][:MOST_AT_ONCE]
        taken = {id(one) for one in chosen}
        self.waiting = [one for one in self.waiting if id(one) not in taken]
        return chosen

    def _compute(self, batch: list) -> list:
        if len(batch) > 1 and self.together:
            try:
                return self._at_once(batch)
            except Exception:  # one of them may be at fault: then each is told for itself
                return [self._alone(tensors) for tensors, _done in batch]
        found = [self._alone(tensors) for tensors, _done in batch]
        if len(batch) > 1:
            self._prove(batch, found)
        return found

    def _alone(self, tensors):
        try:
            return self.model.predict(tensors)
        except Exception as problem:
            return problem

    def _prove(self, batch: list, found: list) -> None:
        if any(isinstance(one, Exception) for one in found):
            return
        try:
            pairs = zip(found, self._at_once(batch), strict=True)
            self.together = all(
                _same(one, other) for alone, joined in pairs for one, other in zip(alone, joined, strict=True)
            )
        except Exception:
            self.together = False

    def _at_once(self, batch: list) -> list:
        counts = [tensors[0]["shape"][0] for tensors, _done in batch]
        joined = []
        for index, one in enumerate(batch[0][0]):
            data = np.concatenate([tensors[index]["data"] for tensors, _done in batch])
            joined.append({**one, "shape": list(data.shape), "data": data})
        outputs = self.model.predict(joined)
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
        return id(tensors)  # without a common first side it fits no other
    return tuple((one["name"], one["datatype"], tuple(one["shape"][1:])) for one in tensors)


def _same(one: dict, other: dict) -> bool:
    if one["datatype"] == "BYTES" or one["data"].dtype.kind not in "fiub":
        return bool(np.array_equal(one["data"], other["data"]))
    return bool(np.allclose(one["data"], other["data"], rtol=1e-3, atol=1e-5, equal_nan=True))


class Application:
    """The ASGI application: one coroutine for each address of the protocol, and /predict for plain JSON."""

    def __init__(self, model, name: str):
        self.model, self.name, self.batcher = model, name, Batcher(model)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        try:
            status, body, headers = await self._route(scope, receive)
        except BadRequest as problem:
            status, body, headers = 400, orjson.dumps({"error": str(problem)}), []
        except Exception as problem:  # of the model: its maker reads the whole of it in the log
            print(f"{type(problem).__name__}: {problem}", file=sys.stderr, flush=True)
            status, headers = 500, []
            body = orjson.dumps({"error": f"the model failed: {type(problem).__name__}: {problem}"})
        headers = [(b"content-type", b"application/json"), *headers]
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": list(dict(headers).items())})
        await send({"type": "http.response.body", "body": body})

    async def _route(self, scope, receive):
        method, path = scope["method"], scope["path"].rstrip("/")
        base = f"/v2/models/{self.name}"
        path = path.replace(f"{base}/versions/1", base, 1)
        if method == "POST" and path == f"{base}/infer":
            return await self._infer(scope, receive)
        if method == "POST" and path == "/predict":
            return await self._predict(receive)
        if method != "GET":
            return 404, orjson.dumps({"error": f"there is nothing to {method} at {path or '/'}"}), []
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
        told = {"name": self.name, "versions": ["1"], "platform": self.model.format}
        return told | {"inputs": self.model.inputs, "outputs": self.model.outputs}

    def _schema(self) -> dict:
        names = {one["name"]: {"type": "array", "description": f"{one['datatype']} {one['shape']}"}
                 for one in self.model.inputs}  # fmt: skip
        return {
            "model": self._metadata(),
            "predict": {"type": "object", "properties": names, "description": "POST /predict: name: nested list"},
        }

    async def _infer(self, scope, receive):
        headers = dict(scope["headers"])
        length = headers.get(b"inference-header-content-length")
        request, tensors = read_request(await _body(receive), length and length.decode("latin-1"))
        outputs = await self.batcher.predict(tensors)
        body, head = write_answer(request, self.name, outputs)
        if head is None:
            return 200, body, []
        binary = [(b"content-type", b"application/octet-stream")]
        return 200, body, [*binary, (b"inference-header-content-length", str(head).encode())]

    async def _predict(self, receive):
        """{"name": nested list, …} or, for a model of one input, the nested list itself."""
        try:
            given = orjson.loads(await _body(receive))
        except orjson.JSONDecodeError as problem:
            raise BadRequest(f"body: not JSON ({problem})")
        declared = self.model.inputs or [{"name": "input", "datatype": "FP32"}]
        if not isinstance(given, dict):
            given = {declared[0]["name"]: given}
        kinds = {one["name"]: one["datatype"] for one in declared}
        inputs = []
        for name, data in given.items():
            try:
                shape = list(np.shape(data))
            except ValueError:
                raise BadRequest(f"{name}: the lists in it are of different lengths")
            inputs.append({"name": name, "datatype": kinds.get(name, "FP32"), "shape": shape, "data": data})
        _request, tensors = read_request(orjson.dumps({"inputs": inputs}), None)
        outputs = await self.batcher.predict(tensors)
        told = {one["name"]: np.asarray(one["data"]).tolist() for one in outputs}
        return 200, orjson.dumps(told, default=lambda word: word.decode(errors="replace")), []


async def _body(receive) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BadRequest("body: broken off")
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        if size > BODY_BYTES:
            raise BadRequest(f"body: too large, at most {BODY_BYTES >> 20} MiB")
        if not message.get("more_body"):
            return b"".join(pieces)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--model", "--name", "--host", "--port"):
        parser.add_argument(option, required=True)
    given = parser.parse_args()
    model = open_model(given.model)
    print(f"serving {given.name} ({model.format}) on port {given.port}", flush=True)
    uvicorn.run(
        Application(model, given.name), host=given.host, port=int(given.port), log_level="warning",
        access_log=False, lifespan="off", timeout_graceful_shutdown=8, server_header=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
