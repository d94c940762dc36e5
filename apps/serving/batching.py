"""Computes the requests of an application; used by server.py.

While the model is busy requests queue, and compatible ones (same names, types and dimensions but the first) are then
computed as one batch, without added latency; batches are used only after one gave the same results as its requests
alone. A model computes one batch at a time, unless it says `concurrency`. Requests whose callers have gone are not
computed, and where all callers of a batch have gone, a predictor.py is interrupted.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from described import Statistics

MAX_AT_ONCE = 64
INTERRUPTED = ("predictor",)  # formats that are; in the libraries of others nobody knows what would stay half done


class GivenUp(BaseException):
    """Raised in the code of a model whose callers have gone; no Exception, as KeyboardInterrupt is none."""


class Computation:
    """One batch in a thread, which can be interrupted while it computes."""

    def __init__(self, batch: list, compute):
        self.batch, self.compute = batch, compute
        self.lock, self.thread = threading.Lock(), None

    def run(self) -> list:
        """Return a result for each request, or the exception that it ended with."""
        try:
            try:
                with self.lock:
                    self.thread = threading.get_ident()
                return self.compute(self.batch)
            finally:
                self._end()
        except GivenUp as reason:
            self._end()
            return [reason] * len(self.batch)

    def interrupt(self) -> None:
        """Raise GivenUp in the thread, at the next step of its Python code."""
        with self.lock:
            if self.thread is not None:
                _raise_in(self.thread, ctypes.py_object(GivenUp))

    def _end(self) -> None:
        """Let no interruption reach what the thread does next."""
        with self.lock:
            self.thread = None
            _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, kind) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), kind)


class Batcher:
    """Computes the requests, several at once if the model is proven to allow it."""

    def __init__(self, model):
        self.model, self.waiting, self.busy = model, [], 0
        self.together = None if model.batches else False  # None: not known yet
        self.threads = ThreadPoolExecutor(model.concurrency)
        self.running: list[Computation] = []
        self.statistics, self.entered = Statistics(), {}  # when each request has come
        self.tasks: set[asyncio.Task] = set()  # the event loop keeps no task alive

    async def predict(self, tensors: list[dict], wanted: tuple[str, ...] = ()) -> list[dict]:
        """Return the outputs, only the `wanted` ones if any are named; raises what the model raises.

        Where it is cancelled, the request is given up.
        """
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        done.add_done_callback(self._left)
        self.waiting.append((tensors, wanted, done))
        self.entered[done] = time.monotonic_ns()
        if self.busy < self.model.concurrency:
            self.busy += 1
            task = loop.create_task(self._work())
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        return await done

    def _left(self, done: asyncio.Future) -> None:
        """End the computation of a request that was given up if nobody else waits for it."""
        self.entered.pop(done, None)
        if not done.cancelled() or self.model.format not in INTERRUPTED:
            return
        for computation in self.running:
            futures = [future for *_, future in computation.batch]
            if done in futures and all(future.cancelled() for future in futures):
                computation.interrupt()

    async def _work(self) -> None:
        try:
            while batch := self._take():
                computation = Computation(batch, self._compute)
                self.running.append(computation)
                began = time.monotonic_ns()
                waited = [began - self.entered.get(done, began) for *_, done in batch]
                results = await asyncio.get_running_loop().run_in_executor(self.threads, computation.run)
                self.running.remove(computation)
                self.statistics.executed(waited, time.monotonic_ns() - began)
                for (_tensors, _wanted, done), result in zip(batch, results, strict=True):
                    if done.cancelled():
                        continue
                    if isinstance(result, BaseException):
                        done.set_exception(result)
                    else:
                        done.set_result(result)
        finally:
            self.busy -= 1

    def _take(self) -> list:
        """Return the requests that are computed next, none if none wait."""
        self.waiting = [request for request in self.waiting if not request[2].cancelled()]
        if not self.waiting:
            return []
        first = self.waiting[0]
        if self.together is False:
            return [self.waiting.pop(0)]
        kind = _alike(first[0])
        alike = [request for request in self.waiting if request[1] == first[1] and _alike(request[0]) == kind]
        chosen = alike[:MAX_AT_ONCE]
        taken = {id(request) for request in chosen}
        self.waiting = [request for request in self.waiting if id(request) not in taken]
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
        if any(isinstance(result, Exception) for result in results):
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
        for index, tensor in enumerate(batch[0][0]):
            data = np.concatenate([tensors[index]["data"] for tensors, *_ in batch])
            joined.append({**tensor, "shape": list(data.shape), "data": data})
        outputs = self.model.predict(joined, batch[0][1])
        if any(not output["shape"] or output["shape"][0] != sum(counts) for output in outputs):
            raise ValueError("an output has not one row for each row of the inputs")
        ends = np.cumsum(counts)
        return [
            [
                {**output, "shape": [count, *output["shape"][1:]], "data": output["data"][end - count : end]}
                for output in outputs
            ]
            for count, end in zip(counts, ends, strict=True)
        ]


def _alike(tensors: list[dict]):
    rows = {tuple(tensor["shape"][:1]) for tensor in tensors}
    if len(rows) != 1 or () in rows:
        return id(tensors)  # without a common first dimension it is compatible with no other
    return tuple((tensor["name"], tensor["datatype"], tuple(tensor["shape"][1:])) for tensor in tensors)


def _same(one: dict, other: dict) -> bool:
    if one["data"].shape != other["data"].shape:
        return False
    if one["datatype"] == "BYTES" or one["data"].dtype.kind not in "fiub":
        return bool(np.array_equal(one["data"], other["data"]))
    return bool(np.allclose(one["data"], other["data"], rtol=1e-3, atol=1e-5, equal_nan=True))
